"""Inputs of the stored applications, and what they come to by plain Python: nothing of Headrace is used here.

An input is a tuple of batches; a batch is what one round is given. A record is (stream, key, value, minutes, partition):
its event time in minutes after `START`, its partition None where the key decides. Every model takes the whole input and gives
`{"outputs": {stream: {key: [values]}}, "stores": {store: {key: value}}}` as JSON values. A key with a window is
`key|start|end` in minutes, one with a second part `key|part`.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

START = "2026-01-01T00:00:00Z"
START_US = 1_767_225_600_000_000
MINUTE_US = 60_000_000


class In(NamedTuple):
    """One record of an input."""

    stream: str
    key: str | None
    value: Any
    minutes: int
    partition: int | None = None


Batch = tuple[In, ...]
Result = dict[str, dict[str, Any]]


def in_order(batches: Iterable[Batch], *streams: str) -> list[In]:
    """The records of `streams`, batch after batch."""
    return [record for batch in batches for record in batch if record.stream in streams]


def _numbers(seed: str) -> Iterable[int]:
    """Numbers that look random and are the same everywhere."""
    count = 0
    while True:
        yield from hashlib.sha256(f"{seed}-{count}".encode()).digest()
        count += 1


# --- sums: every named aggregate, reduce, a general aggregate, a repartition stream of its own width, dead letters -----------

SHOPS, ITEMS = ("north", "south", "east"), ("tea", "milk", "salt", "rice", "corn")
BROKEN = b"no JSON"


def _sums_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("sums"))
    batches = []
    for turn in range(8):
        batch = []
        for nth in range(12):
            shop, item = SHOPS[next(numbers) % 3], ITEMS[next(numbers) % 5]
            note = None if next(numbers) % 3 == 0 else f"note {nth}"
            sale = {"item": item, "price": next(numbers) - 100, "weight": next(numbers) / 4, "note": note}
            batch.append(In("sales", shop, sale, turn * 15 + nth))
        if turn % 3 == 1:
            batch.append(In("sales", f"broken-{turn}", BROKEN, turn * 15 + 12))
        batches.append(tuple(batch))
    return tuple(batches)


def _sums(batches: tuple[Batch, ...]) -> Result:
    good = [record for record in in_order(batches, "sales") if record.value != BROKEN]
    by_shop, by_item = defaultdict(list), defaultdict(list)
    for record in good:
        by_shop[record.key].append(record.value)
        by_item[record.value["item"]].append({**record.value, "shop": record.key})

    def ends(sales: list[dict[str, Any]]) -> dict[str, Any]:
        notes = [sale["note"] for sale in sales if sale["note"] is not None]
        return {"first": sales[0]["item"], "last": sales[-1]["item"], "first_note": notes[0], "last_note": notes[-1]}

    def spread(sales: list[dict[str, Any]]) -> dict[str, Any]:
        prices, weights = [sale["price"] for sale in sales], [sale["weight"] for sale in sales]
        return {
            "n": len(sales),
            "with_note": sum(sale["note"] is not None for sale in sales),
            "total": sum(prices),
            "mean": sum(prices) / len(prices),
            "weight": sum(weights),
            "least": min(prices),
            "most": max(weights),
            "shops": len({sale["shop"] for sale in sales}),
        }

    def dearest(sales: list[dict[str, Any]]) -> dict[str, Any]:
        return max(sales, key=lambda sale: sale["price"])  # the first of equals

    broken = {record.key: ["no JSON"] for record in in_order(batches, "sales") if record.value == BROKEN}
    best = {shop: dearest(sales) for shop, sales in by_shop.items()}
    totals = {shop: sum(abs(sale["price"]) for sale in sales) for shop, sales in by_shop.items()}
    return {
        "outputs": {
            "counts": {shop: list(range(1, len(sales) + 1)) for shop, sales in by_shop.items()},
            "ends": {shop: [ends(sales)] for shop, sales in by_shop.items()},
            "per-item": {item: [spread(sales)] for item, sales in by_item.items()},
            "sums-dead": broken,
        },
        "stores": {
            "counts": {shop: len(sales) for shop, sales in by_shop.items()},
            "dearest": best,
            "totals": totals,
            "ends": {shop: ends(sales) for shop, sales in by_shop.items()},
            "per-item": {item: spread(sales) for item, sales in by_item.items()},
        },
    }


# --- hours: tumbling, hopping and session windows, results held back until windows close ------------------------------------

CLICKERS = ("ann", "bob", "cy", "dot")
FLUSH_MINUTES = 1_000  # closes all windows before it, and is below every retention


def _hours_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("hours"))
    batches = []
    for turn in range(10):
        times = sorted(turn * 37 + next(numbers) % 37 for _ in range(7))
        batches.append(tuple(In("clicks", CLICKERS[next(numbers) % 4], next(numbers), time) for time in times))
    flush = tuple(In("clicks", f"flush-{partition}", 1, FLUSH_MINUTES, partition) for partition in range(2))
    return (*batches, flush)


def _hours(batches: tuple[Batch, ...]) -> Result:
    clicks = in_order(batches, "clicks")
    hours: dict[str, list[int]] = defaultdict(list)
    halves: dict[str, int] = defaultdict(int)
    sessions: dict[str, list[tuple[int, int, int]]] = defaultdict(list)  # begin, end, sum
    for record in clicks:
        time = record.minutes
        begin = time // 60 * 60
        hours[f"{record.key}|{begin}|{begin + 60}"].append(record.value)
        for begin in (time // 30 * 30 - 30, time // 30 * 30):
            halves[f"{record.key}|{begin}|{begin + 60}"] += 1
        known = sessions[str(record.key)]
        if known and time - known[-1][1] <= 20:  # each partition is in order of time
            known[-1] = (known[-1][0], time, known[-1][2] + record.value)
        else:
            known.append((time, time, record.value))
    visits = {f"{key}|{begin}|{end}": total for key, found in sessions.items() for begin, end, total in found}
    per_hour = {key: {"n": len(values), "total": sum(values)} for key, values in hours.items()}
    return {
        "outputs": {
            "per-hour": {key: [value] for key, value in per_hour.items()},
            "hours-closed": {key: [value] for key, value in per_hour.items() if not key.startswith("flush")},
            "half-hours": {key: [count] for key, count in halves.items()},
            "visits-over": {key: [total] for key, total in visits.items() if not key.startswith("flush")},
        },
        "stores": {
            "per-hour": per_hour,
            "half-hours": dict(halves),
            "visits": {key: total for key, total in visits.items() if key.startswith("flush")},
        },
    }


# --- matches: a stream with a table, a global table, another stream; two tables; duplicates ---------------------------------

USERS = ("u0", "u1", "u2", "u3", "u4", "u5")


def _matches_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("matches"))
    batches: list[Batch] = [
        (
            *(In("prices", item, (nth + 1) * 1.5, 0) for nth, item in enumerate(ITEMS[:3])),
            *(In("users", user, f"name of {user}", 1) for user in USERS[:3]),
            *(In("limits", user, 10 * nth, 1) for nth, user in enumerate(USERS[1:4])),
        )
    ]
    for turn in range(8):
        begin = 10 + turn * 100
        batch = []
        for nth in range(8):
            user, time = USERS[next(numbers) % 6], begin + nth * 5
            order = {"id": f"o{next(numbers) % 6}", "item": ITEMS[next(numbers) % 3], "amount": next(numbers)}
            batch.append(In("orders", user, order, time))
            if next(numbers) % 2:
                batch.append(In("payments", USERS[next(numbers) % 6], next(numbers), time + 2))
        batch.append(In("users", USERS[turn % 6], None if turn % 4 == 3 else f"name {turn}", begin + 50))
        batch.append(In("limits", USERS[(turn + 2) % 6], None if turn % 4 == 2 else turn, begin + 50))
        batch.append(In("prices", ITEMS[turn % 3], turn / 4, begin + 50))
        batches.append(tuple(batch))
    late = 10_000
    flush = [In(stream, f"flush-{stream}-{p}", value, late, p) for p in range(2) for stream, value in _FLUSH.items()]
    return (*batches, tuple(flush))


_FLUSH: Mapping[str, Any] = {
    "orders": {"id": "flush", "item": ITEMS[0], "amount": 0},
    "payments": 0,
    "users": "flush",
    "limits": 0,
    "prices": 0.0,
}


def _matches(batches: tuple[Batch, ...]) -> Result:
    tables_first = [*in_order(batches, "users", "limits", "prices"), *in_order(batches, "orders", "payments")]
    everything = sorted(tables_first, key=lambda record: record.minutes)
    named, costs, once = defaultdict(list), defaultdict(list), defaultdict(list)
    users: dict[Any, str] = {}
    limits: dict[Any, int] = {}
    prices: dict[Any, float] = {}
    seen: dict[tuple[Any, str], int] = {}
    for record in everything:
        for stream, table in (("users", users), ("limits", limits), ("prices", prices)):
            if record.stream == stream:
                if record.value is None:
                    table.pop(record.key, None)
                else:
                    table[record.key] = record.value
        if record.stream == "orders":
            order = record.value
            named[record.key].append(f"{users.get(record.key, 'someone')}: {order['id']}")
            if order["item"] in prices:
                costs[record.key].append(order["amount"] * prices[order["item"]])
            if record.minutes - seen.get((record.key, order["id"]), -1_000_000) >= 60:
                seen[record.key, order["id"]] = record.minutes
                once[record.key].append(order["id"])
    both = {key: f"{users[key]} up to {limits[key]}" for key in users.keys() & limits.keys()}
    paid, either = defaultdict(list), defaultdict(list)
    orders, payments = in_order(batches, "orders"), in_order(batches, "payments")

    def pairs(left: In) -> list[In]:
        return [right for right in payments if right.key == left.key and abs(right.minutes - left.minutes) <= 30]

    for order in orders:
        found = pairs(order)
        for text in [f"{order.value['amount']}-{payment.value}" for payment in found]:
            paid[order.key].append(text)
            either[order.key].append(text)
        if not found and order.minutes < 10_000:  # the last ones' windows are open
            paid[order.key].append(f"{order.value['amount']}-None")
            either[order.key].append(f"{order.value['amount']}-None")
    for payment in payments:
        if payment.minutes < 10_000 and not any(payment in pairs(order) for order in orders):
            either[payment.key].append(f"None-{payment.value}")
    return {
        "outputs": {
            "named": dict(named),
            "costs": dict(costs),
            "once": dict(once),
            "both": {key: [text] for key, text in both.items()},
            "paid": {key: sorted(texts) for key, texts in paid.items()},
            "either": {key: sorted(texts) for key, texts in either.items()},
        },
        "stores": {"users": dict(users), "limits": dict(limits), "prices": dict(prices)},
    }


# --- watch: a Processor with timers on both clocks, several stores, and entries that expire ---------------------------------

SENSORS = {"s0": 0, "s1": 1, "s2": 0, "s3": 1, "s4": 0}  # each to its partition
TTL_MINUTES, SILENT_MINUTES = 90, 60


def _watch_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("watch"))
    batches = []
    for turn in range(9):
        begin = turn * 45
        heard = [name for name in SENSORS if next(numbers) % 3] or ["s0"]
        batch = [
            In("measured", name, next(numbers), begin + nth * 4 + place, SENSORS[name])
            for nth in range(2)
            for place, name in enumerate(heard)
        ]
        batches.append(tuple(batch))
    return tuple(batches)


def _watch(batches: tuple[Batch, ...]) -> Result:
    """A round per batch: first the timers that the rounds before have made due, then its records, then timers again."""
    passed, silent = defaultdict(list), defaultdict(list)
    count: dict[str, int] = {}
    lately: dict[str, tuple[int, int]] = {}  # value, time of the put
    halves: dict[str, int] = defaultdict(int)
    readings: dict[str, int] = {}
    due: dict[str, int] = {}
    for batch in batches:
        watermarks: dict[int | None, int] = {}
        for record in batch:
            key, time = str(record.key), record.minutes
            count[key] = count.get(key, 0) + 1
            old, put = lately.get(key, (0, -1_000_000))
            recent = (old if time - put < TTL_MINUTES else 0) + 1
            lately[key] = (recent, time)
            halves[f"{key}|{'high' if record.value >= 128 else 'low'}"] += 1
            readings[f"{key}|{time}"] = record.value
            passed[key].append({"n": count[key], "recent": recent})
            due[key] = time + SILENT_MINUTES
            watermarks[record.partition] = max(time, watermarks.get(record.partition, 0))
        for key in list(due):
            if SENSORS[key] in watermarks and due[key] <= watermarks[SENSORS[key]]:
                silent[key].append({"silent_after": count[key]})
                del due[key]
    return {
        "outputs": {
            "passed": dict(passed),
            "silent": dict(silent),
            "weekly": {key: [{"all": total}] for key, total in count.items()},
        },
        "stores": {"count": count, "halves": dict(halves), "readings": readings},
    }


# --- growing: a stream that grew, and grew again while the job was stopped --------------------------------------------------

GROWING_KEYS = tuple(f"k{nth}" for nth in range(24))


def _growing_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("growing"))
    return tuple(
        tuple(In("events", GROWING_KEYS[next(numbers) % 24], next(numbers), turn * 10 + nth) for nth in range(20))
        for turn in range(9)
    )


def _growing(batches: tuple[Batch, ...]) -> Result:
    counts, groups = defaultdict(int), defaultdict(int)
    for record in in_order(batches, "events"):
        counts[str(record.key)] += 1
        groups[f"g{record.value % 5}"] += record.value
    return {
        "outputs": {
            "event-counts": {key: list(range(1, count + 1)) for key, count in counts.items()},
            "event-groups": {key: [total] for key, total in groups.items()},
        },
        "stores": {"event-counts": dict(counts), "event-groups": dict(groups)},
    }


# --- rewound: positions that were set, with state and without it, and one that waits for the next start ---------------------


def _rewound_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("rewound"))
    return tuple(
        (
            *(In("trades", f"t{next(numbers) % 6}", next(numbers), turn * 10 + nth, nth % 2) for nth in range(10)),
            In("visits", f"v{turn % 2}", turn, turn * 10, 0),
        )
        for turn in range(8)
    )


AGAIN = 3  # of `visits` so many records are read twice, with the state kept


def _rewound(batches: tuple[Batch, ...], again: int = AGAIN) -> Result:
    sides, all_, visits = defaultdict(int), defaultdict(int), defaultdict(int)
    for record in in_order(batches, "trades"):
        sides[f"p{record.partition}"] += record.value
        all_["odd" if record.value % 2 else "even"] += 1
    read = in_order(batches, "visits")
    for record in read + read[:again]:
        visits[str(record.key)] += 1
    return {
        "outputs": {"sides": {key: [total] for key, total in sides.items()}, "parities": {k: [n] for k, n in all_.items()}},
        "stores": {"sides": dict(sides), "parities": dict(all_), "visit-counts": dict(visits)},
    }


def _undone(batches: tuple[Batch, ...]) -> Result:
    """A rewind that was planned and has moved nothing is taken back: each record counts once."""
    return _rewound(batches, again=0)


# --- starts: streams that are begun at different places; halves, everywhere: other tasks ------------------------------------

START_OFFSET, START_MINUTES = 3, 2  # in the first batch


def _starts_input() -> tuple[Batch, ...]:
    streams = ("from-earliest", "from-latest", "from-offset", "from-time", "from-bootstrap")
    return tuple(
        tuple(In(stream, f"{stream}-{turn % 2}", turn * 5 + nth, turn * 10 + nth, 0) for stream in streams for nth in range(5))
        for turn in range(6)
    )


def _starts(batches: tuple[Batch, ...]) -> Result:
    """The first batch is in the streams before the job is begun."""
    taken: dict[str, list[Any]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    before = len(in_order(batches[:1], "from-latest"))
    skipped = {
        "from-latest": lambda nth, _: nth < before,
        "from-offset": lambda nth, _: nth < START_OFFSET,
        "from-time": lambda _, record: record.minutes < START_MINUTES,
    }
    for stream in ("from-earliest", "from-latest", "from-offset", "from-time", "from-bootstrap"):
        for nth, record in enumerate(in_order(batches, stream)):
            if not skipped.get(stream, lambda *_: False)(nth, record):
                taken[str(record.key)].append(record.value)
                counts[str(record.key)] += 1
    return {"outputs": {"taken": dict(taken)}, "stores": {"taken-counts": dict(counts)}}


def _halves_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("halves"))
    return tuple(
        tuple(In("views", f"page{next(numbers) % 9}", next(numbers), turn * 10 + nth) for nth in range(12)) for turn in range(6)
    )


def _halves(batches: tuple[Batch, ...]) -> Result:
    counts: dict[str, int] = defaultdict(int)
    for record in in_order(batches, "views"):
        counts[str(record.key)] += 1
    outputs = {"view-counts": {key: list(range(1, count + 1)) for key, count in counts.items()}}
    return {"outputs": outputs, "stores": {"view-counts": dict(counts)}}


def _everywhere(batches: tuple[Batch, ...]) -> Result:
    """Each of two tasks gives every record."""
    seen: dict[str, list[Any]] = defaultdict(list)
    for record in in_order(batches, "views"):
        seen[str(record.key)] += [record.value, record.value]
    return {"outputs": {"seen": {key: sorted(values) for key, values in seen.items()}}, "stores": {}}


# --- folds: a state of several files, folded into snapshots and longer deltas -----------------------------------------------

FOLD_KEYS, TEXT_HEX = 96, 2_048


def text_of(number: int) -> str:
    """A text that a short window finds nothing equal in."""
    pieces = (hashlib.sha512(f"{number % 48}-{nth}".encode()).hexdigest() for nth in range(TEXT_HEX // 128))
    return "".join(pieces)


def _folds_input() -> tuple[Batch, ...]:
    first = [tuple(In("texts", f"d{nth}", nth, 0) for nth in range(FOLD_KEYS))]
    turns = [
        tuple(In("texts", f"d{(turn * 16 + nth) % FOLD_KEYS}", turn + nth, turn) for nth in range(16)) for turn in range(1, 13)
    ]
    small = [(In("texts", f"d{turn % 7}", turn, turn),) for turn in range(13, 33)]
    return (*first, *turns, *small)


def _folds(batches: tuple[Batch, ...]) -> Result:
    newest = {str(record.key): text_of(record.value) for record in in_order(batches, "texts")}
    return {"outputs": {}, "stores": {"newest": newest}}


# --- renamed: stores that were given other names, or given up ---------------------------------------------------------------


def _renamed_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("renamed"))
    return tuple(
        (
            *(In("visits", f"page{next(numbers) % 5}", next(numbers), turn * 10 + nth) for nth in range(6)),
            *(In("notes", f"n{nth}", turn * 10 + nth, turn * 10 + nth) for nth in range(3)),
        )
        for turn in range(6)
    )


RENAMED_AFTER = 2  # batches


def _renamed(batches: tuple[Batch, ...]) -> Result:
    """The counts keep their state under the new name; the sums began again; `notes` was left, and read again."""
    counts, sums, notes = defaultdict(int), defaultdict(int), defaultdict(list)
    for record in in_order(batches, "visits"):
        counts[str(record.key)] += 1
    for record in in_order(batches[RENAMED_AFTER:], "visits"):
        sums[str(record.key)] += record.value
    for record in in_order(batches, "notes"):
        notes[str(record.key)].append(record.value)
    return {"outputs": {"notes-read": dict(notes)}, "stores": {"page-counts": dict(counts), "page-sums": dict(sums)}}


# --- lake: Spark expressions, and rounds that are handed to a function --------------------------------------------------------


def _lake_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("lake"))
    return tuple(
        tuple(In("flights", f"f{next(numbers) % 9}", {"delay": next(numbers)}, turn * 10 + nth) for nth in range(12))
        for turn in range(5)
    )


def _lake(batches: tuple[Batch, ...]) -> Result:
    late, counts = defaultdict(list), defaultdict(int)
    for record in in_order(batches, "flights"):
        if record.value["delay"] > 99:
            late[str(record.key)].append(record.value["delay"] + 1)
            counts[str(record.key)] += 1
    in_any_order = {key: sorted(delays) for key, delays in late.items()}
    newest = {key: [count] for key, count in counts.items()}
    return {"outputs": {"late": in_any_order, "late-counts": newest}, "stores": {"late-counts": dict(counts)}}


# --- ledger: the job that is stored with a whole broker -----------------------------------------------------------------------


def _ledger_input() -> tuple[Batch, ...]:
    numbers = iter(_numbers("ledger"))
    return tuple(
        tuple(In("ledger-in", f"k{next(numbers) % 12}", next(numbers), turn * 25 + nth) for nth in range(20))
        for turn in range(6)
    )


def _ledger(batches: tuple[Batch, ...]) -> Result:
    counts, hours, groups = defaultdict(int), defaultdict(int), defaultdict(int)
    for record in in_order(batches, "ledger-in"):
        begin = record.minutes // 60 * 60
        counts[str(record.key)] += 1
        hours[f"{record.key}|{begin}|{begin + 60}"] += record.value
        groups[f"g{record.value % 5}"] += record.value
    written = {"ledger-counts": counts, "ledger-hours": hours, "ledger-groups": groups}
    return {
        "outputs": {name: {key: [value] for key, value in values.items()} for name, values in written.items()},
        "stores": {"counts": dict(counts), "hours": dict(hours), "groups": dict(groups)},
    }


INPUTS: Mapping[str, tuple[Batch, ...]] = {
    "sums": _sums_input(),
    "hours": _hours_input(),
    "matches": _matches_input(),
    "watch": _watch_input(),
    "growing": _growing_input(),
    "rewound": _rewound_input(),
    "undone": _rewound_input(),
    "starts": _starts_input(),
    "halves": _halves_input(),
    "everywhere": _halves_input(),
    "folds": _folds_input(),
    "renamed": _renamed_input(),
    "lake": _lake_input(),
    "ledger": _ledger_input(),
}
_MODELS: Mapping[str, Callable[[tuple[Batch, ...]], Result]] = {
    "sums": _sums,
    "hours": _hours,
    "matches": _matches,
    "watch": _watch,
    "growing": _growing,
    "rewound": _rewound,
    "undone": _undone,
    "starts": _starts,
    "halves": _halves,
    "everywhere": _everywhere,
    "folds": _folds,
    "renamed": _renamed,
    "lake": _lake,
    "ledger": _ledger,
}


_STARTPOINTS: Mapping[str, dict[str, int]] = {
    "rewound": {"applied": 3, "superseded": 1, "deleted": 1},
    "growing": {"applied": 1},
    "undone": {"deleted": 1},
    "starts": {"applied": 1},  # the bootstrap
    "ledger": {"applied": 3, "superseded": 1},
}


def expected_of(job: str) -> Result:
    """What the job has written and holds once its whole input is processed, and how many startpoints have come to what."""
    return _MODELS[job](INPUTS[job]) | {"startpoints": dict(_STARTPOINTS.get(job, {}))}
