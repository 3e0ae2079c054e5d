"""The model of startpoints (protocol.md 1, 25; start 6 to 9): requested, applied, spent, deleted, under every schedule.

One task reads partitions A and B of one stream; startpoints are for A. A user asks for `back` (the position goes to 0) and
`on` (it goes to the end as it is then), and for the deletion of either, whenever it likes; records come to A meanwhile.

| protocol | step of the model |
|---|---|
| start 3 | a driver acquires an epoch: at any time, as it starts or because it has seen a request |
| start 6, 7 | it reads requests, records and positions, and resolves what is new, all in one step |
| start 9 | one transaction: the position, and the records of the applied ones |
| after that | the requests that it has read are removed; or not, where they are in another store that cannot be reached |
| a round | planned from the position that the driver knows; its commit moves A, or B, and names what it has spent |
| 25 | the driver stores that a startpoint is applied whose id a commit has named, at any time after that |

A process that is never scheduled again has crashed, one that is scheduled late was stopped. That a round's base is what is
committed is another model's (`log_model`, `kafka_model`), and so is that epochs are taken before anything is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

Steps = Iterator[tuple[str, "StartpointState"]]
ASKED, SET, SPENT, GONE = "asked", "set", "spent", "deleted early"
PENDING, APPLIED, SUPERSEDED, DELETED = "pending", "applied", "superseded", "deleted"


@dataclass(frozen=True, slots=True)
class StartpointSafeguards:
    """What keeps a schedule harmless; False takes it out of the model."""

    epoch_check: bool = True  # a driver commits under its own epoch only; out: every driver commits
    one_transaction: bool = True  # position and record; out: the position first, the record in a step of its own
    taken_up_once: bool = True  # what is on record is not applied again; out: every request that is there is
    removed_after: bool = True  # a request goes after that transaction; out: before it
    removed_by_id: bool = True  # only requests that were read go; out: all that are there
    resolved_once: bool = True  # the stored offset counts; out: a pending startpoint is resolved at each planning
    per_partition: bool = True  # spent by a commit that moves its partition; out: by any commit of the task
    spent_seen_at_planning: bool = True  # what a commit has spent is applied; out: only what the driver itself has stored
    taken_back_unmoved: bool = True  # a deletion takes a position back that has not moved; out: of any pending one

    def without(self, *names: str) -> StartpointSafeguards:
        return replace(self, **dict.fromkeys(names, False))

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]


@dataclass(frozen=True, slots=True)
class StartpointBounds:
    """How large the world is. `read_before`: of A's records, those that were read before anything is requested."""

    records: int = 2
    read_before: int = 1
    asked: tuple[str, ...] = ("back",)
    deletions: tuple[str, ...] = ()
    drivers: int = 2
    epochs: int = 3


class Record(NamedTuple):
    """What is stored of a startpoint that was applied: where A's position went, and where it was before."""

    id: str
    status: str
    offset: int
    before: int


class Planner(NamedTuple):
    """A driver. `read`: the requests that it has read; `a`, `b`: the positions that its rounds build on. `taken_up`,
    `taken_back`: the startpoints that its plan applies, and those that it takes back."""

    at: str = "off"
    epoch: int = 0
    read: tuple[str, ...] = ()
    a: int = 0
    b: int = 0
    taken_up: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()
    records: tuple[Record, ...] = ()
    spent: str = ""  # a commit of its own has named it
    target: tuple[int, int] = (0, 0)


class StartpointState(NamedTuple):
    """The whole world at one moment. `requests`: `+id` or `-id`, oldest first. `facts`: what in truth became of each id, with
    the offset that it set; `wrong`: what a step did that must not be."""

    epoch: int
    a: int
    b: int
    named: str  # by the checkpoint: the startpoint that its round has spent
    end: int
    requests: tuple[str, ...]
    records: tuple[Record, ...]
    facts: tuple[tuple[str, str, int], ...]
    unasked: tuple[str, ...]
    undeleted: tuple[str, ...]
    drivers: tuple[Planner, ...]
    wrong: str = ""

    def fact(self, id_: str) -> tuple[str, int]:
        return next((status, offset) for known, status, offset in self.facts if known == id_)

    def with_fact(self, id_: str, status: str, offset: int = 0) -> StartpointState:
        others = [fact for fact in self.facts if fact[0] != id_]
        return self._replace(facts=tuple(sorted([*others, (id_, status, offset)])))

    def with_driver(self, index: int, driver: Planner) -> StartpointState:
        return self._replace(drivers=(*self.drivers[:index], driver, *self.drivers[index + 1 :]))


class StartpointModel:
    """Startpoints with `safeguards`, in a world of `bounds`; a `Model` for `explore`."""

    def __init__(self, bounds: StartpointBounds, safeguards: StartpointSafeguards | None = None) -> None:
        self.bounds = bounds
        self.safeguards = safeguards or StartpointSafeguards()

    def initial(self) -> list[StartpointState]:
        bounds = self.bounds
        drivers = (Planner(),) * bounds.drivers
        before = bounds.read_before
        return [StartpointState(0, before, 0, "", before, (), (), (), bounds.asked, bounds.deletions, drivers)]

    def steps(self, state: StartpointState) -> Steps:
        if state.end < self.bounds.records:
            yield "a record comes", state._replace(end=state.end + 1)
        if state.unasked:
            id_ = state.unasked[0]
            asked = state.with_fact(id_, ASKED)
            yield f"a user asks for {id_}", asked._replace(unasked=state.unasked[1:], requests=(*state.requests, f"+{id_}"))
        for id_ in state.undeleted:
            if id_ not in state.unasked:
                left = tuple(other for other in state.undeleted if other != id_)
                deleted = state._replace(undeleted=left, requests=(*state.requests, f"-{id_}"))
                yield f"a user asks for the deletion of {id_}", deleted
        for index, driver in enumerate(state.drivers):
            yield from self._driver_steps(state, index, driver, f"driver {index + 1}")

    def broken(self, state: StartpointState) -> str | None:
        if state.wrong:
            return state.wrong
        records = {record.id: record for record in state.records}
        for id_, fact, offset in state.facts:
            status = records[id_].status if id_ in records else ""
            if fact == ASKED and f"+{id_}" not in state.requests:
                return f"{id_} is lost: it has set nothing, and no driver will apply it"
            if fact == SET and state.a != offset:
                return f"{id_} is lost: it set the position to {offset}, it is {state.a}, and no commit has spent it"
            if status == APPLIED and fact != SPENT:
                return f"{id_} is on record as applied, and has moved nothing"
            if status in (SUPERSEDED, DELETED) and fact == SPENT:
                return f"{id_} is on record as {status}, and has been applied"
        return None

    def finished(self, state: StartpointState) -> bool:
        asked_for = not state.unasked and not state.undeleted and not state.requests
        return asked_for and state.a == state.end == self.bounds.records and state.b == 1

    # --- a driver ---------------------------------------------------------------------------------------------------

    def _driver_steps(self, state: StartpointState, index: int, driver: Planner, who: str) -> Steps:
        sees = driver.at == "running" and any(one not in driver.read for one in state.requests)
        if (driver.at == "off" or sees) and state.epoch < self.bounds.epochs:
            epoch = state.epoch + 1
            after = state._replace(epoch=epoch).with_driver(index, Planner("acquired", epoch))
            yield f"[start 3] {who} acquires epoch {epoch}", after
        match driver.at:
            case "acquired":
                yield f"[start 6, 7] {who} reads and resolves", self._planned(state, index, driver)
            case "planned":
                if self.safeguards.removed_after:
                    yield self._committed_plan(state, index, driver, who)
                else:
                    ready = driver._replace(at="removed before")
                    yield f"{who} removes the requests FIRST", self._removed(state, index, driver).with_driver(index, ready)
            case "removed before":
                yield self._committed_plan(state, index, driver, who)
            case "recording":
                yield self._recorded(state, index, driver, who)
            case "removing":
                if self._is_fenced(state, driver):
                    yield f"{who} is fenced", state.with_driver(index, Planner("dead"))
                else:
                    ready = driver._replace(at="running")
                    yield f"{who} removes the requests", self._removed(state, index, driver).with_driver(index, ready)
                    yield f"{who} cannot remove the requests, and continues", state.with_driver(index, ready)
            case "running":
                yield from self._rounds_planned(state, index, driver, who)
                if driver.spent:
                    yield self._settled(state, index, driver, who)
            case "working":
                yield self._round_committed(state, index, driver, who)

    def _is_fenced(self, state: StartpointState, driver: Planner) -> bool:
        return self.safeguards.epoch_check and driver.epoch != state.epoch

    def _planned(self, state: StartpointState, index: int, driver: Planner) -> StartpointState:
        """What `core.job_plan.apply_startpoints` makes of requests and records, by the same rules."""
        position, records = state.a, {record.id: record for record in state.records}
        taken_up, taken_back = [], []
        if self.safeguards.spent_seen_at_planning:
            for record in state.records:
                if record.status == PENDING and (state.named == record.id or position != record.offset):
                    records[record.id] = record._replace(status=APPLIED)
        for id_ in [request[1:] for request in state.requests if request[0] == "-"]:
            found = records.get(id_)
            if found is None:
                records[id_] = Record(id_, DELETED, position, position)
            elif found.status == PENDING:
                if position == found.offset or not self.safeguards.taken_back_unmoved:
                    position = found.before
                    taken_back.append(id_)
                records[id_] = found._replace(status=DELETED)
        if not self.safeguards.resolved_once:
            for id_, record in records.items():
                if record.status == PENDING:
                    position = _offset_of(id_, state.end)
                    records[id_] = record._replace(offset=position)
                    taken_up.append(id_)
        deleted = {request[1:] for request in state.requests if request[0] == "-"}
        for id_ in [request[1:] for request in state.requests if request[0] == "+"]:
            if (id_ in records and self.safeguards.taken_up_once) or id_ in deleted:
                continue
            before = position
            for other in records.values():
                if other.status == PENDING and other.id != id_:
                    before = other.before
                    records[other.id] = other._replace(status=SUPERSEDED)
            position = _offset_of(id_, state.end)
            records[id_] = Record(id_, PENDING, position, before)
            taken_up.append(id_)
        planned = Planner("planned", driver.epoch, state.requests, position, state.b, tuple(taken_up), tuple(taken_back))
        return state.with_driver(index, planned._replace(records=tuple(sorted(records.values()))))

    def _committed_plan(self, state: StartpointState, index: int, driver: Planner, who: str) -> tuple[str, StartpointState]:
        if self._is_fenced(state, driver):
            return f"[start 9] {who} is fenced", state.with_driver(index, Planner("dead"))
        after = self._with_truth(state, driver)._replace(a=driver.a, b=driver.b, named="")
        if not self.safeguards.one_transaction:
            alone = after.with_driver(index, driver._replace(at="recording"))
            return f"[start 9] {who} commits position {driver.a} ALONE", alone
        _, recorded = self._recorded(after, index, driver, who)
        return f"[start 9] {who} commits position {driver.a} and {_text(driver.records)}", recorded

    def _recorded(self, state: StartpointState, index: int, driver: Planner, who: str) -> tuple[str, StartpointState]:
        if self._is_fenced(state, driver):
            return f"[start 9] {who} is fenced", state.with_driver(index, Planner("dead"))
        after = state._replace(records=driver.records)
        at = "removing" if self.safeguards.removed_after else "running"
        return f"{who} commits {_text(driver.records)}", after.with_driver(index, driver._replace(at=at))

    def _with_truth(self, state: StartpointState, driver: Planner) -> StartpointState:
        """The facts after a plan's transaction, and what it did that must not be."""
        after = state
        for id_ in driver.taken_back:
            if after.fact(id_)[0] == SPENT:
                return after._replace(wrong=f"the deletion of {id_} takes back what a commit has spent")
        for record in driver.records:
            fact, offset = after.fact(record.id)
            if record.id in driver.taken_up:
                if fact == SPENT:
                    return after._replace(wrong=f"{record.id} is applied again, after a commit has spent it")
                if fact == SET and offset != record.offset:
                    return after._replace(wrong=f"{record.id} set the position to {offset}, and now to {record.offset}")
                if record.status == PENDING:
                    after = after.with_fact(record.id, SET, record.offset)
            if record.status in (DELETED, SUPERSEDED) and fact in (ASKED, SET):
                after = after.with_fact(record.id, GONE)
        return after

    def _removed(self, state: StartpointState, index: int, driver: Planner) -> StartpointState:
        left = tuple(one for one in state.requests if one not in driver.read)
        return state._replace(requests=left if self.safeguards.removed_by_id else ())

    def _rounds_planned(self, state: StartpointState, index: int, driver: Planner, who: str) -> Steps:
        if driver.a < state.end:
            target = driver.a + 1, driver.b
            yield f"{who} plans a round of A, to {target[0]}", state.with_driver(index, _at_work(driver, target))
        if driver.b < 1:
            yield f"{who} plans a round of B", state.with_driver(index, _at_work(driver, (driver.a, 1)))

    def _round_committed(self, state: StartpointState, index: int, driver: Planner, who: str) -> tuple[str, StartpointState]:
        if self._is_fenced(state, driver):
            return f"{who} is fenced", state.with_driver(index, Planner("dead"))
        a, b = driver.target
        pending = next((record for record in driver.records if record.status == PENDING), None)
        spends = pending is not None and (a != pending.offset or not self.safeguards.per_partition)
        named = pending.id if pending is not None and spends else ""
        after = state._replace(a=a, b=b, named=named)
        if driver.a == state.a != a:  # it read on from where the position is in truth
            for id_, fact, offset in state.facts:
                if fact == SET:
                    after = after.with_fact(id_, SPENT, offset)
        running = driver._replace(at="running", a=a, b=b, spent=named or driver.spent)
        return f"{who} commits A {a}, B {b}{f', naming {named}' if named else ''}", after.with_driver(index, running)

    def _settled(self, state: StartpointState, index: int, driver: Planner, who: str) -> tuple[str, StartpointState]:
        if self._is_fenced(state, driver):
            return f"{who} is fenced", state.with_driver(index, Planner("dead"))
        mine = tuple(
            record._replace(status=APPLIED) if record.id == driver.spent else record for record in driver.records
        )
        changed = {record.id: record for record in mine if record.id == driver.spent}
        stored = tuple(changed.get(record.id, record) for record in state.records)
        after = state._replace(records=stored).with_driver(index, driver._replace(records=mine, spent=""))
        return f"{who} stores that {driver.spent} is applied", after


def _at_work(driver: Planner, target: tuple[int, int]) -> Planner:
    return driver._replace(at="working", target=target)


def _offset_of(id_: str, end: int) -> int:
    return 0 if id_ == "back" else end


def _text(records: tuple[Record, ...]) -> str:
    return ", ".join(f"{record.id} {record.status}" for record in records) or "no records"
