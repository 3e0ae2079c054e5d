"""Writes `vectors.json`: what Kafka Streams makes of the records of `cases`, by its test driver.

    PYTHONPATH=src:tests:. python tests/kafka_streams/make_vectors.py
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from bench.common import kafka_streams_program

from kafka_streams.cases import NAMES, sent_of

VECTORS = Path(__file__).with_name("vectors.json")


def main() -> None:
    lines = []
    for name in NAMES:
        lines.append(f"case {name}")
        lines += ["|".join("-" if part is None else str(part) for part in record) for record in sent_of(name)]
        lines.append("")
    with tempfile.TemporaryDirectory() as folder:
        command = kafka_streams_program("KafkaStreamsVectors", Path(folder))
        text = "\n".join([*lines, ""])
        done = subprocess.run([*command, f"{folder}/state"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[list[str]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("case "):
            rows = found[line.removeprefix("case ")] = []
        elif line:
            rows.append(line.split("|"))
    assert tuple(found) == NAMES, done.stderr
    text = ",\n".join(f"{json.dumps(name)}: {json.dumps(rows)}" for name, rows in found.items())
    VECTORS.write_text(f"{{\n{text}\n}}\n")


if __name__ == "__main__":
    main()
