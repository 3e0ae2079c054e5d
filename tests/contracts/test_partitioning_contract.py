"""Streams whose producers choose partitions by something else than the key, on every system: keyed state is right all the
same, and what keeps no state reads them as they are."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest

import headrace as hr
from support.world import World, source_of

KEYS = [f"k{number}" for number in range(7)]
T = 1_700_000_000_000_000  # µs, whole ms: Kafka keeps no more
PARTITIONS = 3


class Numbered(hr.Processor[str, int, str, str]):
    """Numbers the records of each key, in its store."""

    stores = (hr.KeyValueStore("last", value=hr.Long()),)

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: hr.Record) -> None:
        number = self.context.store("last").get(default=0) + 1
        self.context.store("last").put(number)
        self.context.forward(value=f"{record.value} is {number}")


class Placed(World):
    """A stream and a table's stream whose records are in the partitions by turns, and a job on both."""

    STREAMS: ClassVar = {"views": PARTITIONS, "users": PARTITIONS}
    KEYS: ClassVar = {"max_records_per_round": 20}
    sent = 0

    def app(self, partitioning: str = "other", **keys: Any) -> hr.App:
        app = super().app(**keys)
        text, number = hr.String(), hr.Long()
        views = app.stream(f"{self.name}-views", key=text, value=number, partitioning=partitioning)
        users = app.table(f"{self.name}-users", key=text, value=number, store="users", partitioning=partitioning)
        views.group_by_key().count(store="n").to_stream().to(f"{self.name}-counts")
        views.drop_duplicates(within="1 hour", store="first").to(f"{self.name}-first")
        views.repartition(name="again").process(Numbered, name="number", value=text).to(f"{self.name}-numbered")
        views.left_join(users, lambda view, user: f"{view}&{user}", name="known", value=text).to(f"{self.name}-known")
        views.filter(lambda r: r.value % 2 == 0).map_values(
            lambda r: r.value * 10 + r.partition, value=number, name="where"
        ).to(f"{self.name}-even")
        return app

    def view(self, *values: int) -> None:
        """A view with each value: its key is by the value, its partition by how many there were before it."""
        for value in values:
            self.send("views", KEYS[value % len(KEYS)], value, self.sent % PARTITIONS)
            self.sent += 1

    def send(self, stream: str, key: str, value: int, partition: int) -> None:
        record = hr.Record(key, value, T + value * 1000, partition=partition)
        self.produce_to(stream, [record])

    def run(self, app: hr.App | None = None) -> dict[str, Any]:
        """Run until caught up; the status of the source sub-topology."""
        return source_of(super().run(app or self.app()))


WORLD = Placed


def test_keyed_state_is_right_wherever_a_producer_writes_its_keys(world: Placed) -> None:
    for first in (0, 100):  # of each user once more, in another partition
        for number, key in enumerate(KEYS):
            world.send("users", key, first + number, (first + number) % PARTITIONS)
        world.run()
    world.view(*range(200, 230))
    world.run()
    world.view(*range(230, 260))
    world.run()
    sent = [(KEYS[value % len(KEYS)], value) for value in range(200, 260)]
    counts = Counter(key for key, _ in sent)
    assert {r.key: r.value for r in world.read("counts", hr.Long())} == counts
    state = world.app().state("n")
    assert {key: [entry.value for entry in state.entries(key)] for key in KEYS} == {key: [n] for key, n in counts.items()}
    assert sorted(r.key for r in world.read("first", hr.Long())) == sorted(KEYS)
    numbered = [(r.key, int(r.value.split()[-1])) for r in world.read("numbered", hr.String())]
    assert sorted(numbered) == sorted((key, number) for key, n in counts.items() for number in range(1, n + 1))
    known = [(r.key, r.value) for r in world.read("known", hr.String())]
    assert sorted(known) == sorted((key, f"{value}&{100 + KEYS.index(key)}") for key, value in sent)
    even = {(r.key, r.value) for r in world.read("even", hr.Long())}  # what keeps no state read it as it is
    expected = {(key, value * 10 + number % PARTITIONS) for number, (key, value) in enumerate(sent) if value % 2 == 0}
    assert even == expected
    model = world.system.job_store(world.name).job_model()
    assert model.partitioned_otherwise == (f"{world.name}-users", f"{world.name}-views")


def test_taken_for_one_that_goes_by_its_keys_it_gives_a_key_several_states(world: Placed) -> None:
    """Without the declaration no job knows: this is what it is for, and what `headrace stream check` finds."""
    world.produce_to("views", [(key, 1) for key in KEYS * 5])
    world.run(world.app("hash"))
    world.view(*range(21))  # each key in each partition
    world.run(world.app("hash"))
    assert all(len(list(world.app("hash").state("n").entries(key))) == PARTITIONS for key in KEYS)
    assert world.system.job_store(world.name).job_model().partitioned_otherwise == ()


def test_the_declaration_is_not_changed_under_stored_state(world: Placed) -> None:
    world.view(*range(30))
    world.run()
    before = world.system.job_store(world.name).checkpoints()
    with pytest.raises(hr.IncompatibleChangeError) as error:
        world.run(world.app("hash"))
    text = str(error.value)
    assert "store 'n' was in sub-topology 'n' and is now in 'source'" in text
    assert "store 'users' was in sub-topology 'known-left' and is now in 'source'" in text
    assert world.system.job_store(world.name).checkpoints() == before
    world.view(*range(30, 60))
    world.run()
    assert {r.key: r.value for r in world.read("counts", hr.Long())} == Counter(KEYS[value % len(KEYS)] for value in range(60))
