"""The peer of bench/kafka.py and bench/operators.py on Quix Streams: SERVERS INPUT OUTPUT GROUP FOLDER RECORDS [count|windows].

It counts by key, or adds numbers by key and minute, with RocksDB and its changelog topic, exactly once, and prints the records
per second between the first record and the end of RECORDS. Runs in an environment of its own, where Quix Streams is installed:
it is nothing that Headrace needs. One process is one thread of it; a second process would share the partitions.
"""

import sys
import time
from datetime import timedelta

from quixstreams import Application, State
from quixstreams.models import BytesDeserializer, IntegerSerializer


def main(
    servers: str, source: str, target: str, group: str, folder: str, records: int, what: str = "count"
) -> None:
    app = Application(
        broker_address=servers,
        consumer_group=group,
        auto_offset_reset="earliest",
        state_dir=folder,
        processing_guarantee="exactly-once",
        producer_extra_config={"compression.type": "lz4"},
        auto_create_topics=True,
        loglevel="WARNING",
    )
    first: list[float] = []

    def counted(value: bytes, state: State) -> int:
        if not first:
            first.append(time.monotonic())
        total = state.get("count", 0) + 1
        state.set("count", total)
        return total

    def number(value: bytes) -> int:
        if not first:
            first.append(time.monotonic())
        return int.from_bytes(value, "big")

    rows = app.dataframe(app.topic(source, key_deserializer="bytes", value_deserializer=BytesDeserializer()))
    if what == "windows":
        rows = rows.apply(number).tumbling_window(timedelta(minutes=1), grace_ms=timedelta(seconds=10)).sum().current()
        rows = rows.apply(lambda window: int(window["value"]))
    else:
        rows = rows.apply(counted, stateful=True)
    rows.to_topic(app.topic(target, key_serializer="bytes", value_serializer=IntegerSerializer()))
    app.run(count=records)
    print(f"records_per_s {records / (time.monotonic() - first[0])}")


if __name__ == "__main__":
    main(*sys.argv[1:6], int(sys.argv[6]), *sys.argv[7:])
