"""The applications whose folders are stored, by the public API alone, and how each is begun and carried to its end.

`begin` is run once, by the version that makes a folder; `finish` by the current code, on what `begin` has left. What a job does
not do to its input is the same in both: every batch of `plain.INPUTS` is one round's. The batch at which a job is stopped is in
its streams, and not processed.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import headrace as hr
from headrace.testing import Driver, KafkaServer
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from stored.plain import INPUTS, MINUTE_US, START, START_MINUTES, START_OFFSET, START_US, Batch, text_of

LATER = "2026-02-01T00:00:00Z"  # when a stored job is continued: all its waits on the wall clock are over
WRITER = "somebody@somewhere"  # in place of the user and host that set a startpoint


class Stopped(Exception):
    """What a job is stopped by between two sub-topologies, so that its repartition stream holds unread records."""


_stops: dict[str, bool] = {}  # by job


def sent(driver: Driver, batch: Batch) -> None:
    for record in batch:
        raw = isinstance(record.value, bytes)
        key = record.key.encode() if raw and record.key else record.key
        at = START_US + record.minutes * MINUTE_US
        driver.send(record.stream, key, record.value, at=at, partition=record.partition, raw=raw)


def processed(driver: Driver, batches: Sequence[Batch]) -> None:
    for batch in batches:
        sent(driver, batch)
        driver.run()


def begun(job: StoredJob, folder: Path, url: str) -> None:
    """All batches before `stop_at`, and that one written to the streams."""
    with job.driver(folder) as driver:
        processed(driver, job.batches[: job.stop_at])
        sent(driver, job.batches[job.stop_at])


def finished(job: StoredJob, folder: Path, url: str) -> None:
    """The batch that was left, and those after it; then a run on a later clock, where no input holds the watermark back."""
    with job.driver(folder, LATER) as driver:
        driver.run()
        processed(driver, job.batches[job.stop_at + 1 :])
        driver.advance("10 minutes")
        driver.run()


@dataclass(frozen=True)
class StoredJob:
    """One application. `kept`: of which outputs the last value of a key counts, and not each: how many there are is the
    rounds' affair; `any_order`: of which the order of a key's values is not given. `stop_at`: the batch that is left unread."""

    name: str
    build: Callable[[hr.App], object]
    stop_at: int
    kept: frozenset[str] = frozenset()
    any_order: frozenset[str] = frozenset()
    partitions: int | Mapping[str, int] = 2
    settings: Mapping[str, Any] = field(default_factory=dict)
    begin: Callable[[StoredJob, Path, str], None] = begun
    finish: Callable[[StoredJob, Path, str], None] = finished

    on_kafka: bool = False
    with_stores: bool = False  # its local stores are stored too

    @property
    def batches(self) -> tuple[Batch, ...]:
        return INPUTS[self.name]

    @contextmanager
    def system(self, folder: Path) -> Iterator[str]:
        """The URL of the job's system: the log in `folder`, or a broker with the data there, which runs for so long."""
        if not self.on_kafka:
            yield f"log:{folder / 'log'}"
            return
        kept_ever = {"offsets.retention.minutes": 2**31 - 1}  # no position is forgotten, however old the folder is
        with KafkaServer(folder=folder / "kafka", properties=kept_ever) as server:
            yield f"kafka://{server.bootstrap}"

    def app(self, folder: Path, url: str, build: Callable[[hr.App], object] | None = None, **settings: Any) -> hr.App:
        """The application on `folder`, for commands too."""
        places = {"state_uri": str(folder / "state"), "local_store_dir": str(folder / "stores")}
        app = hr.App(self.name, url, **places, **{**self.settings, **settings})
        (build or self.build)(app)
        return app

    def driver(self, folder: Path, start: str = START, app: hr.App | None = None) -> Driver:
        chosen = app or self.app(folder, f"log:{folder / 'log'}")
        return Driver(chosen, start=start, partitions=self.partitions, directory=folder)


# --- sums -------------------------------------------------------------------------------------------------------------------

SALE = "item string, price long, weight double, note string"


def _dearest(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    return max(old, new, key=lambda sale: sale["price"])


def _item(record: hr.Record) -> str:
    return str(record.value["item"])


def _with_shop(record: hr.Record) -> dict[str, Any]:
    return {**record.value, "shop": record.key}


def _with_amount(total: int, record: hr.Record) -> int:
    return total + abs(record.value["price"])


def _build_sums(app: hr.App) -> None:
    sales = app.stream("sales", key=hr.String(), value=hr.Json(SALE))
    shops = sales.group_by_key()
    shops.count(store="counts").to_stream(emit="each").to("counts")
    shops.reduce(_dearest, store="dearest")
    shops.aggregate(initial=0, function=_with_amount, value=hr.Long(), store="totals")
    ends = {"first": hr.first("value.item"), "last": hr.last("value.item")}
    notes = {"first_note": hr.first("value.note"), "last_note": hr.last("value.note")}
    shops.aggregate(**ends, **notes, store="ends").to_stream().to("ends", value=hr.Json())
    items = sales.map_values(_with_shop, value=hr.Json(f"{SALE}, shop string")).select_key(_item, key=hr.String())
    items.repartition(hr.Repartitioned(name="by-item", number_of_partitions=3)).group_by_key().aggregate(
        n=hr.count(),
        with_note=hr.count("value.note"),
        total=hr.sum("value.price"),
        mean=hr.mean("value.price"),
        weight=hr.sum("value.weight"),
        least=hr.min("value.price"),
        most=hr.max("value.weight"),
        shops=hr.count_distinct("value.shop"),
        store="per-item",
    ).to_stream().to("per-item", value=hr.Json())


# --- hours ------------------------------------------------------------------------------------------------------------------


def _added(total: int, record: hr.Record) -> int:
    return int(total + record.value)


def _merged(one: int, other: int) -> int:
    return one + other


def _build_hours(app: hr.App) -> None:
    clicks = app.stream("clicks", key=hr.String(), value=hr.Long()).group_by_key()
    hours = clicks.windowed_by(hr.Tumbling("1 hour", grace="10 minutes", retention="2 days"))
    per_hour = hours.aggregate(n=hr.count(), total=hr.sum("value"), store="per-hour")
    per_hour.to_stream().to("per-hour", value=hr.Json())
    per_hour.suppress(hr.until_window_closes(), store="held").to_stream().to("hours-closed", value=hr.Json())
    clicks.windowed_by(hr.Hopping("1 hour", "30 minutes")).count(store="half-hours").to_stream().to("half-hours")
    sessions = clicks.windowed_by(hr.Session("20 minutes", grace="0 seconds"))
    visits = sessions.aggregate(initial=0, function=_added, merger=_merged, value=hr.Long(), store="visits")
    visits.to_stream(emit="closed").to("visits-over")


# --- matches ----------------------------------------------------------------------------------------------------------------

ORDER = "id string, item string, amount long"


def _named(order: dict[str, Any], user: str | None) -> str:
    return f"{user or 'someone'}: {order['id']}"


def _cost(order: dict[str, Any], price: float) -> float:
    return float(order["amount"] * price)


def _item_of_order(order: hr.Record) -> str:
    return str(order.value["item"])


def _paid(order: dict[str, Any] | None, payment: int | None) -> str:
    return f"{None if order is None else order['amount']}-{payment}"


def _limited(user: str, limit: int) -> str:
    return f"{user} up to {limit}"


def _id(record: hr.Record) -> str:
    return str(record.value["id"])


def _build_matches(app: hr.App) -> None:
    orders = app.stream("orders", key=hr.String(), value=hr.Json(ORDER))
    payments = app.stream("payments", key=hr.String(), value=hr.Long())
    users = app.table("users", key=hr.String(), value=hr.String())
    limits = app.table("limits", key=hr.String(), value=hr.Long(), store="limits")
    prices = app.global_table("prices", key=hr.String(), value=hr.Double())
    orders.left_join(users, _named, value=hr.String()).to("named")
    orders.join(prices, _cost, key=_item_of_order, value=hr.Double()).to("costs")
    orders.drop_duplicates(by=_id, within="1 hour", store="once").map_values(_id, value=hr.String()).to("once")
    users.join(limits, _limited, value=hr.String()).to("both")
    half = {"within": "30 minutes", "grace": "0 seconds", "value": hr.String()}
    orders.left_join(payments, _paid, name="paid", **half).to("paid")
    orders.outer_join(payments, _paid, name="either", store="either", **half).to("either")


# --- watch ------------------------------------------------------------------------------------------------------------------


class Watch(hr.Processor[str, int, str, Any]):
    """Counts in stores of every kind, reports a sensor that was silent for an hour, and all that it had after a week."""

    stores: ClassVar = [
        hr.KeyValueStore("count", value=hr.Long()),
        hr.KeyValueStore("halves", value=hr.Long()),
        hr.KeyValueStore("lately", value=hr.Long(), ttl="90 minutes"),
        hr.WindowStore("readings", value=hr.Long(), retention="30 days"),
    ]

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        count, lately = self.context.store("count"), self.context.store("lately")
        n, recent = count.get(default=0) + 1, lately.get(default=0) + 1
        count.put(n)
        lately.put(recent)
        half, halves = b"high" if record.value >= 128 else b"low", self.context.store("halves")
        halves.put(halves.get(default=0, sub=half) + 1, sub=half)
        self.context.store("readings").put(record.value, at=record.timestamp_us)
        self.context.timer("silent", after="1 hour")
        if n == 1:
            self.context.timer("weekly", after="7 days", clock="wall")
        self.context.forward(value={"n": n, "recent": recent}, to="passed")

    def on_timer(self, timer: Any) -> None:
        said = {"silent_after": self.context.store("count").get()}
        if timer.name == "weekly":
            self.context.forward(value={"all": self.context.store("count").get()}, to="weekly")
        else:
            self.context.forward(value=said, to="silent")


def _as_is(record: hr.Record) -> Any:
    return record.value


def build_watch(app: hr.App, processor: type[Watch] = Watch) -> None:
    watched = app.stream("measured", key=hr.String(), value=hr.Long()).process(processor, name="watch", value=hr.Json())
    for name in ("passed", "silent", "weekly"):
        watched.map_values(_as_is, value=hr.Json(), name=name).to(name)


def _finish_watch(job: StoredJob, folder: Path, url: str) -> None:
    """On the first clock until the whole input is processed, as a weekly timer counts all of it."""
    with job.driver(folder) as driver:
        driver.run()
        processed(driver, job.batches[job.stop_at + 1 :])
    with job.driver(folder, LATER) as driver:
        driver.run()


# --- growing ----------------------------------------------------------------------------------------------------------------


def _group(record: hr.Record) -> str:
    if _stops.get("growing"):
        raise Stopped
    return f"g{record.value % 5}"


def _amount(record: hr.Record) -> int:
    if _stops.get("growing-behind"):
        raise Stopped
    return int(record.value)


def _build_growing(app: hr.App) -> None:
    events = app.stream("events", key=hr.String(), value=hr.Long())
    events.group_by_key().count(store="event-counts").to_stream(emit="each").to("event-counts")
    groups = events.select_key(_group, key=hr.String()).repartition(hr.Repartitioned(name="by-group", number_of_partitions=2))
    sums = groups.map_values(_amount, value=hr.Long()).group_by_key()
    total = sums.aggregate(initial=0, function=_added, value=hr.Long(), store="event-groups")
    total.to_stream().to("event-groups")


def _begin_growing(job: StoredJob, folder: Path, url: str) -> None:
    """From 2 to 4 partitions at work; the repartition stream holds unread records at the end, and the input 8 partitions."""
    with job.driver(folder) as driver:
        processed(driver, job.batches[:2])
        driver.expand("events", 4)
        processed(driver, job.batches[2:4])
        with hr.open_system(url) as log:  # where the task is in any case: it is in the checkpoint, and not settled yet
            here = hr.Startpoint(hr.PositionType.SPECIFIC_OFFSET, log.end_offsets("events")[0])
            _points(log, job).write_startpoint(hr.SystemStreamPartition("log", "events", 0), here)
        sent(driver, job.batches[4])
        _stops["growing-behind"] = True
        try:
            with suppress(hr.HeadraceError):
                driver.run()
        finally:
            _stops.clear()
        assert driver.store("event-counts").all() != {}
    with hr.open_system(url) as log:
        log.expand_stream("events", 8)
    with hr.open_system(url) as log:
        log.produce(
            "events",
            [hr.Record(r.key, r.value, START_US + r.minutes * MINUTE_US) for r in job.batches[5]],
            key=hr.String(),
            value=hr.Long(),
        )


# --- rewound ----------------------------------------------------------------------------------------------------------------


def _side(record: hr.Record) -> str:
    return f"p{record.partition}"


def _parity(record: hr.Record) -> str:
    return "odd" if record.value % 2 else "even"


def _build_rewound(app: hr.App) -> None:
    trades = app.stream("trades", key=hr.String(), value=hr.Long())
    grouped = trades.select_key(_side, key=hr.String()).repartition(hr.Repartitioned(name="by-side", number_of_partitions=3))
    sides = grouped.group_by_key().aggregate(initial=0, function=_added, value=hr.Long(), store="sides")
    sides.to_stream().to("sides")
    trades.group_by(_parity, hr.Repartitioned(name="by-parity", number_of_partitions=2), key=hr.String()).count(
        store="parities"
    ).to_stream().to("parities")
    app.stream("visits", key=hr.String(), value=hr.Long()).group_by_key().count(store="visit-counts")


def _begin_rewound(job: StoredJob, folder: Path, url: str) -> None:
    """Startpoints of each outcome: applied with state and without it, superseded, deleted, and one not applied yet."""
    with hr.open_system(url) as log, job.driver(folder) as driver:
        points = _points(log, job)

        def written(stream: str, partition: int, offset: int, state: str) -> str:
            where = hr.Startpoint(hr.PositionType.SPECIFIC_OFFSET, offset)
            return points.write_startpoint(hr.SystemStreamPartition("log", stream, partition), where, state)

        def ran(*batches: Batch) -> None:
            processed(driver, batches) if batches else driver.run()
            driver.advance("10 minutes")

        for batch in job.batches[:2]:
            ran(batch)
        written("trades", 0, 5, "rewind")  # to after the first batch
        ran()
        ran(job.batches[2])
        written("visits", 0, 1, "keep")  # superseded by the next one
        written("visits", 0, 0, "keep")  # so all that there are by now are counted twice
        ran()
        ran(job.batches[3])
        points.delete_startpoint(written("trades", 1, 0, "keep"))
        ran()
        for batch in job.batches[4 : job.stop_at]:
            ran(batch)
        sent(driver, job.batches[job.stop_at])
        written("trades", 1, 25, "rewind")  # waits for the next start


def _points(system: Any, job: StoredJob) -> hr.StartpointManager:
    return hr.StartpointManager(system.metadata_store(job.name), written_by=WRITER)


def _begin_undone(job: StoredJob, folder: Path, url: str) -> None:
    """A rewind is planned, and the job stops before anything is committed under that plan."""
    with job.driver(folder) as driver:
        for batch in job.batches[: job.stop_at]:
            processed(driver, (batch,))
            driver.advance("10 minutes")
    with hr.open_system(url) as log:
        where = hr.Startpoint(hr.PositionType.SPECIFIC_OFFSET, 10)
        _points(log, job).write_startpoint(hr.SystemStreamPartition("log", "trades", 0), where, "rewind")
    with job.driver(folder) as driver:
        sent(driver, job.batches[job.stop_at])


def _finish_undone(job: StoredJob, folder: Path, url: str) -> None:
    with hr.startpoints(job.app(folder, url)) as points:
        (known,) = points.list()
        assert known.status == "pending", known
        points.delete(known.entry.id)
    finished(job, folder, url)


# --- starts, halves, everywhere -----------------------------------------------------------------------------------------------


def _build_starts(app: hr.App) -> None:
    time = hr.Startpoint(hr.PositionType.TIMESTAMP, START_US + START_MINUTES * MINUTE_US)
    starts = {
        "from-earliest": "earliest",
        "from-latest": "latest",
        "from-offset": START_OFFSET,
        "from-time": time,
        "from-bootstrap": hr.Startpoint(hr.PositionType.BOOTSTRAP),
    }
    streams = [app.stream(name, key=hr.String(), value=hr.Long(), start=start) for name, start in starts.items()]
    for stream in streams:
        stream.to("taken")
    streams[0].merge(*streams[1:]).group_by_key().count(store="taken-counts")


class Halves(hr.SystemStreamPartitionGrouper):
    """Two tasks: one has the even partitions of every input, the other the odd ones."""

    def group(self, previous_assignment: Any, ssps: Any) -> Any:
        tasks: dict[hr.TaskName, set[Any]] = {}
        for ssp in ssps:
            tasks.setdefault(hr.TaskName.parse(("even", "odd")[ssp.partition % 2]), set()).add(ssp)
        return tasks


def _build_halves(app: hr.App) -> None:
    views = app.stream("views", key=hr.String(), value=hr.Long())
    views.group_by_key().count(store="view-counts").to_stream(emit="each").to("view-counts")


def _build_everywhere(app: hr.App) -> None:
    app.stream("views", key=hr.String(), value=hr.Long()).to("seen")


# --- folds, renamed -----------------------------------------------------------------------------------------------------------


def _text(record: hr.Record) -> str:
    return text_of(record.value)


def _newest(old: str, new: str) -> str:
    return new


def _build_folds(app: hr.App) -> None:
    texts = app.stream("texts", key=hr.String(), value=hr.Long()).map_values(_text, value=hr.String())
    texts.group_by_key().reduce(_newest, store="newest")


def _build_renamed_before(app: hr.App) -> None:
    visits = app.stream("visits", key=hr.String(), value=hr.Long()).group_by_key()
    visits.count(store="counts")
    visits.aggregate(initial=0, function=_added, value=hr.Long(), store="sums")
    _build_notes(app)


def _build_notes(app: hr.App) -> None:
    app.stream("notes", key=hr.String(), value=hr.Long()).to("notes-read")


def _build_visits(app: hr.App) -> None:
    visits = app.stream("visits", key=hr.String(), value=hr.Long()).group_by_key()
    visits.count(store="page-counts")
    visits.aggregate(initial=0, function=_added, value=hr.Long(), store="page-sums")


def _build_renamed(app: hr.App) -> None:
    _build_visits(app)
    _build_notes(app)


EDITS = {"rename_stores": "counts=page-counts", "drop_stores": "sums"}


def _begin_renamed(job: StoredJob, folder: Path, url: str) -> None:
    """Two edits: stores get new names or are given up, and an input is left. The last driver is killed, as it seems."""
    catalog = folder / "log" / "catalog.sqlite"
    before = job.app(folder, url, _build_renamed_before, rename_stores=None, drop_stores=None)
    with job.driver(folder, app=before) as driver:
        processed(driver, job.batches[:2])
    visits = [tuple(record for record in batch if record.stream == "visits") for batch in job.batches]
    notes = [record for batch in job.batches[2 : job.stop_at] for record in batch if record.stream == "notes"]
    with job.driver(folder, app=job.app(folder, url, _build_visits)) as driver:
        processed(driver, visits[2 : job.stop_at])
        with hr.open_system(url) as log:
            for record in notes:
                at_us = START_US + record.minutes * MINUTE_US
                log.produce("notes", [hr.Record(record.key, record.value, at_us)], key=hr.String(), value=hr.Long())
        with closing(sqlite3.connect(catalog)) as db:
            ((holder,),) = db.execute("SELECT holder FROM jobs").fetchall()
        sent(driver, visits[job.stop_at])
    known = json.loads(holder)
    with closing(sqlite3.connect(catalog)) as db, db:
        killed = json.dumps(known | {"host": "somewhere", "boot_id": "boot"})
        db.execute("UPDATE jobs SET heartbeat_us = heartbeat_us - 60000000, holder = ?", (killed,))


def _finish_renamed(job: StoredJob, folder: Path, url: str) -> None:
    """The input that was left is read again, from where the job was in it."""
    with job.driver(folder, LATER) as driver:
        sent(driver, tuple(record for record in job.batches[job.stop_at] if record.stream == "notes"))
        driver.run()
        processed(driver, job.batches[job.stop_at + 1 :])


# --- lake ---------------------------------------------------------------------------------------------------------------------


class Lake:
    """What `for_each_round` hands over, as a file of JSON per round; or an error, where the job is to be stopped."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, rows: Any, round_id: int) -> None:
        found = sorted([row.key, row.value.delay, row.partition, row.offset] for row in rows.collect())
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{round_id}.json").write_text(json.dumps(found) + "\n")
        if _stops.get("lake"):
            raise Stopped


def _build_lake(app: hr.App) -> None:
    flights = app.stream("flights", key=hr.String(), value=hr.Json("delay long"))
    flights.for_each_round(Lake(Path(str(app.config_arguments["state_uri"])).with_name("lake")))
    late = flights.filter("value.delay > 99").map_values("value.delay + 1", value=hr.Long())
    late.to("late")
    late.repartition(hr.Repartitioned(name="by-flight", number_of_partitions=3)).group_by_key().count(
        store="late-counts"
    ).to_stream().to("late-counts")


def _flown(url: str, batches: Sequence[Batch]) -> None:
    with hr.open_system(url) as log:
        for batch in batches:
            records = [hr.Record(r.key, r.value, START_US + r.minutes * MINUTE_US) for r in batch]
            log.produce("flights", records, key=hr.String(), value=hr.Json())


def _begin_lake(job: StoredJob, folder: Path, url: str) -> None:
    """A job on Spark: its input grows from 2 to 4 partitions while it runs, and that settles; then it fails within a round
    that is handed over."""
    with hr.open_system(url) as log:
        log.create_stream("flights", 2)
    _flown(url, job.batches[:2])
    running = job.app(folder, url).start()
    _wait_until((folder / "lake" / "0.json").exists)
    with hr.open_system(url) as log:
        log.expand_stream("flights", 4)
    time.sleep(5)  # the job looks each second, and lets it settle after one
    _flown(url, job.batches[2:3])
    _wait_until((folder / "lake" / "1.json").exists)
    time.sleep(5)  # until that round is committed, and its status published
    _stops["lake"] = True
    try:
        _flown(url, job.batches[3:4])
        with suppress(hr.HeadraceError):
            running.wait(100)
    finally:
        _stops.clear()


def _finish_lake(job: StoredJob, folder: Path, url: str) -> None:
    _flown(url, job.batches[job.stop_at :])
    running = job.app(folder, url).start(until="caught-up")
    running.wait(100)


def _wait_until(is_so: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < until_s, "waited for 90 s"
        time.sleep(0.1)


# --- ledger -------------------------------------------------------------------------------------------------------------------


def _build_ledger(app: hr.App) -> None:
    rows = app.stream("ledger-in", key=hr.String(), value=hr.Long())
    rows.group_by_key().count(store="counts").to_stream().to("ledger-counts")
    hours = rows.group_by_key().windowed_by(hr.Tumbling("1 hour"))
    sums = hours.aggregate(initial=0, function=_added, value=hr.Long(), store="hours")
    sums.to_stream().to("ledger-hours")
    groups = rows.select_key(_group, key=hr.String()).repartition(hr.Repartitioned(name="by-group", number_of_partitions=3))
    total = groups.group_by_key().aggregate(initial=0, function=_added, value=hr.Long(), store="groups")
    total.to_stream().to("ledger-groups")


def _caught_up(job: StoredJob, folder: Path, url: str) -> None:
    """In this process, without Spark: what is stored does not depend on it."""
    running = job.app(folder, url).start(until="caught-up", engine=InlineEngine(run_container))
    running.wait(60)


def _paid_in(system: Any, batches: Sequence[Batch]) -> None:
    for batch in batches:
        records = [hr.Record(r.key, r.value, START_US + r.minutes * MINUTE_US) for r in batch]
        system.produce("ledger-in", records, key=hr.String(), value=hr.Long())


def _begin_ledger(job: StoredJob, folder: Path, url: str) -> None:
    """On a broker: an input that grew and grows again, a replay with state, startpoints that were superseded and that wait."""
    with hr.open_system(url) as system:
        points = _points(system, job)

        def written(partition: int, offset: int) -> None:
            where = hr.Startpoint(hr.PositionType.SPECIFIC_OFFSET, offset)
            points.write_startpoint(hr.SystemStreamPartition("kafka", "ledger-in", partition), where, "rewind")

        system.create_stream("ledger-in", 2)
        for name in ("ledger-counts", "ledger-hours", "ledger-groups"):
            system.create_stream(name, 2)
        for batch in job.batches[:2]:
            _paid_in(system, (batch,))
            _caught_up(job, folder, url)
        system.expand_stream("ledger-in", 4)
        _paid_in(system, job.batches[2:3])
        _caught_up(job, folder, url)
        written(0, 2)  # superseded
        written(0, 1)
        _caught_up(job, folder, url)
        _paid_in(system, job.batches[3 : job.stop_at])
        _caught_up(job, folder, url)
        written(1, 3)  # these wait for the next start
        written(2, 0)
        system.expand_stream("ledger-in", 8)
        _paid_in(system, job.batches[job.stop_at : job.stop_at + 1])


def _finish_ledger(job: StoredJob, folder: Path, url: str) -> None:
    _caught_up(job, folder, url)
    with hr.open_system(url) as system:
        _paid_in(system, job.batches[job.stop_at + 1 :])
    _caught_up(job, folder, url)


JOBS: Mapping[str, StoredJob] = {
    job.name: job
    for job in (
        StoredJob(
            "sums",
            _build_sums,
            stop_at=5,
            kept=frozenset({"ends", "per-item"}),
            settings={"dead_letter_stream": "sums-dead", "ssp_grouper": "system_stream_partition"},
        ),
        StoredJob("hours", _build_hours, stop_at=4, kept=frozenset({"per-hour", "half-hours"})),
        StoredJob("matches", _build_matches, stop_at=4, kept=frozenset({"both"}), any_order=frozenset({"paid", "either"})),
        StoredJob("watch", build_watch, stop_at=4, finish=_finish_watch, with_stores=True),
        StoredJob("growing", _build_growing, stop_at=5, kept=frozenset({"event-groups"}), begin=_begin_growing),
        StoredJob(
            "rewound",
            _build_rewound,
            stop_at=6,
            kept=frozenset({"sides", "parities"}),
            settings={"state_version_interval_s": 0, "keep_state_versions": 8, "keep_state_versions_s": 0},
            begin=_begin_rewound,
        ),
        StoredJob(
            "undone",
            _build_rewound,
            stop_at=5,
            kept=frozenset({"sides", "parities"}),
            settings={"state_version_interval_s": 0, "keep_state_versions": 8, "keep_state_versions_s": 0},
            begin=_begin_undone,
            finish=_finish_undone,
        ),
        StoredJob("starts", _build_starts, stop_at=3, partitions=1, settings={"ssp_grouper": "partition"}),
        StoredJob("halves", _build_halves, stop_at=3, partitions=4, settings={"ssp_grouper": "stored.jobs:Halves"}),
        StoredJob(
            "everywhere",
            _build_everywhere,
            stop_at=3,
            any_order=frozenset({"seen"}),
            settings={"ssp_grouper": "all_ssps_to_every_task", "containers": 2},
        ),
        StoredJob("folds", _build_folds, stop_at=20, partitions=1),
        StoredJob("renamed", _build_renamed, stop_at=4, settings=EDITS, begin=_begin_renamed, finish=_finish_renamed),
        StoredJob(
            "lake",
            _build_lake,
            stop_at=4,
            kept=frozenset({"late-counts"}),
            any_order=frozenset({"late"}),
            settings={"partition_check_interval_s": 1, "settle_time_s": 1, "trigger_interval_ms": 20},
            begin=_begin_lake,
            finish=_finish_lake,
        ),
        StoredJob(
            "ledger",
            _build_ledger,
            stop_at=4,
            kept=frozenset({"ledger-counts", "ledger-hours", "ledger-groups"}),
            settings={"state_version_interval_s": 0, "keep_state_versions_s": 0, "trigger_interval_ms": 20},
            begin=_begin_ledger,
            finish=_finish_ledger,
            on_kafka=True,
        ),
    )
}
