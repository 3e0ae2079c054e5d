"""Words counted on Kafka, exactly once: outputs, positions and state move in one transaction.

    headrace kafka start                                      # a broker of this machine, for trials; it says where it is
    KAFKA=localhost:9092 python on_kafka.py

For a cluster with users give `kafka={"security.protocol": ..., "sasl.username": ...}` to the App: see docs/kafka.md.
"""

import os

import headrace as hr

URL = f"kafka://{os.environ.get('KAFKA', 'localhost:9092')}"

app = hr.App("word-counts", system=URL)
lines = app.stream("word-counts-lines", key=hr.String(), value=hr.String())
words = lines.flat_map(lambda r: [(word, 1) for word in r.value.lower().split()], key=hr.String(), value=hr.Long())
counts = words.group_by_key(hr.Repartitioned(name="by-word")).count(store="counts")  # a word's records meet in one task
counts.to_stream().to("word-counts-counts", value=hr.Long())

LINES = [("1", "to be or not to be"), ("2", "that is the question")]

if __name__ == "__main__":
    with hr.open_system(URL) as kafka:
        there = [stream.name for stream in kafka.streams()]
        for stream in ("word-counts-lines", "word-counts-counts"):
            if stream not in there:
                kafka.create_stream(stream, partitions=2)
        kafka.produce("word-counts-lines", LINES, key=hr.String(), value=hr.String())

    app.run(until="caught-up")

    with hr.open_system(URL) as kafka:  # others read it with isolation.level=read_committed
        found = {r.key: r.value for r in kafka.consume("word-counts-counts", key=hr.String(), value=hr.Long())}
    print(", ".join(f"{word} {count}" for word, count in sorted(found.items())))
