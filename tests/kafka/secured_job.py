"""A program for `test_security`: jobs on Spark on a secured broker, and all that Spark shows of them, as files.

Arguments: system, input, a folder. Settings come from the environment, as a user's do.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from pathlib import Path
from typing import Any

import headrace as hr

system: str
source: str
folder: Path



def application(name: str, spark: Any = None, **keys: Any) -> hr.App:
    app = hr.App(f"{source}-{name}", system, spark, local_store_dir=str(folder / name / "stores"), **keys)
    rows = app.stream(source, key=hr.String(), value=hr.Json("n int"))
    counted = rows.filter("value.n >= 0").group_by_key().count(store="counts")
    counted.to_stream().to(f"{source}-{name}-counts", value=hr.Long())
    rows.to(f"{source}-{name}-copy")
    return app


def shown_by(spark: Any) -> None:
    """The pages and the REST answers of Spark's UI."""
    url, id_ = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    api = f"{url}/api/v1/applications/{id_}"
    queries = json.loads(fetched(f"{api}/sql?details=true&planDescription=true&length=100", "sql.json"))
    fetched(f"{api}/environment", "environment.json")
    for page in ("environment/", "SQL/", "jobs/", "stages/"):
        fetched(f"{url}/{page}", page.strip("/") + ".html")
    for query in queries:
        fetched(f"{url}/SQL/execution/?id={query['id']}", f"execution-{query['id']}.html")
    print("queries", len(queries))


def fetched(url: str, name: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as answer:
        text: str = answer.read().decode()
    (folder / "ui").mkdir(exist_ok=True)
    (folder / "ui" / name).write_text(text)
    return text


if __name__ == "__main__":
    system, source, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    first = application("scram")
    print(repr(first), first.__dict__, repr(hr.open_system(system)))
    spark = first.spark
    first.start(until="caught-up").wait(100)
    second = application("plain", spark, kafka={"sasl.mechanism": "PLAIN"})
    job = second.start(until="caught-up")
    job.wait(100)
    print(job.status())
    shown_by(spark)
    spark.stop()
