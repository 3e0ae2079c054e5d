"""A program for `test_secrets`: a job on Spark with secrets in its settings, and all that others can see of it, as files.

`python secrets_shown.py FOLDER MARK`. The settings are in FOLDER/headrace.toml and in the environment; MARK is in each
secret. While it runs, the command lines and environments of all other processes are searched for it.
"""

from __future__ import annotations

import os
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.cli.app_loading import load_app

APP = """
import headrace as hr

app = hr.App("secrets", system="log:./data")
words = app.stream("words", key=hr.String(), value=hr.Json("n int"))
words.filter("value.n > 2").map_values(lambda word: word.value["n"], value=hr.Long()).to("out")
"""


def main(folder: Path, mark: str) -> None:
    (folder / "app.py").write_text(APP)
    ended, seen = threading.Event(), set[str]()
    looking = threading.Thread(target=look, args=(mark.encode(), ended, seen))
    looking.start()
    try:
        app = load_app(str(folder / "app.py"))
        with hr.open_system("log:./data") as log:
            log.create_stream("words", 2)
            log.produce("words", [("k", {"n": n}) for n in range(10)], key=hr.String(), value=hr.Json())
        spark = app.spark
        app.run(until="caught-up", progress=False)
        jvm = spark._jvm.java.lang.System
        print("java", jvm.getProperty("my.trustStorePassword"), "|", jvm.getProperty("my.words"))
        print("settings", *sorted(value for _, value in spark.sparkContext.getConf().getAll() if mark in value))
        show(spark, folder)
        spark.stop()
    finally:
        ended.set()
        looking.join()
    (folder / "processes").write_text("\n".join(sorted(seen)))


def look(mark: bytes, ended: threading.Event, seen: set[str]) -> None:
    """What other processes have the mark in, until the program ends: their command lines and variables."""
    own = {os.getpid(), os.getppid()}
    while not ended.wait(0.02):
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) not in own:
                with suppress(OSError):
                    for what in ("cmdline", "environ"):
                        seen |= {f"{what}: {word!r}" for word in marked_words(process, what, mark)}


def marked_words(process: Path, what: str, mark: bytes) -> list[bytes]:
    """Between fork and exec a child of ours is a copy of us, arguments, variables and all, which nobody else can see: not
    counted."""
    if mark not in (process / what).read_bytes():
        return []
    is_copy = (process / "cmdline").read_bytes() in (b"", Path("/proc/self/cmdline").read_bytes())
    words = (process / what).read_bytes().split(b"\0")
    return [] if is_copy else [word for word in words if mark in word]


def show(spark: Any, folder: Path) -> None:
    """The pages and the REST answers of Spark's UI."""
    url, id_ = spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId
    api = f"api/v1/applications/{id_}"
    for number, page in enumerate(
        ("environment/", "SQL/", "jobs/", f"{api}/environment", f"{api}/jobs", f"{api}/sql?details=true&planDescription=true")
    ):
        with urllib.request.urlopen(f"{url}/{page}", timeout=30) as answer:
            (folder / f"page-{number}").write_bytes(answer.read())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
