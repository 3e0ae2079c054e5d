"""Records for operators of Kafka Streams, drawn once and for all: what it makes of them is in `vectors.json`.

A case is named by an operator of `bench/peers/KafkaStreamsVectors.java` and its arguments, such as a grace in ms. Times are in
ms there and in µs here: in the units of each, records and windows are the same.
"""

from __future__ import annotations

from random import Random

BASE = 1_000  # no window begins before 0, as none does there
NEVER = 100_000  # a grace within which every record comes
Sent = tuple[str, str | None, int | None, int]  # input, key, value, time

ONE_INPUT = (
    *("count", "count_view", "reduce", "aggregate", "group_table", "table_view"),
    *(f"{windows} {NEVER}" for windows in ("tumbling", "tumbling_count", "tumbling_reduce", "hopping")),
    *(f"{windows} {NEVER}" for windows in ("session", "session_count", "sliding", "sliding_count", "sliding_reduce")),
    *(f"{windows} {grace}" for windows in ("tumbling", "hopping", "sliding") for grace in (0, 7)),
    f"unlimited {BASE + 10}",
)
TWO_INPUTS = (
    "cogroup",
    f"cogroup_tumbling {NEVER}",
    *(f"{join} {kind}" for join in ("stream_table", "stream_global", "foreign") for kind in ("inner", "left")),
    *(f"table_table {kind}" for kind in ("inner", "left", "outer")),
    *(f"stream_stream {kind} {NEVER}" for kind in ("inner", "left", "outer")),
)
NAMES = (*ONE_INPUT, *TWO_INPUTS)


def sent_of(name: str) -> list[Sent]:
    """What is sent, in this order; a key or a value now and then is null. Joins by time end with a later record."""
    draw = Random(name)
    inputs = "ab" if name in TWO_INPUTS else "a"
    has_nulls = not name.endswith((" 0", " 7"))  # time does not move by them there
    is_plain = "sliding" in name or "session" in name
    found: list[Sent] = []
    for number in range(40):
        key = None if has_nulls and draw.random() < 0.08 else f"k{draw.randrange(2 if is_plain else 3)}"
        value = None if has_nulls and draw.random() < 0.12 else draw.randrange(1, 40)
        found.append((draw.choice(inputs), key, value, BASE + number * 2 - draw.choice((0, 0, 0, 1, 5, 11, 25))))
    if name.startswith("stream_stream"):
        found += [(each, "end", 1, BASE + 10 * NEVER) for each in inputs]
    return found
