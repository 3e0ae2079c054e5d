"""Joins on every system: each kind over several runs of a job, with what it keeps read from outside."""

from __future__ import annotations

from typing import Any, ClassVar

import headrace as hr
from support.world import World

KEYS = [f"k{number}" for number in range(8)]
T = 1_700_000_000_000_000  # µs, whole ms: Kafka keeps no more
SECOND = 1_000_000


def text(left: Any, right: Any) -> str:
    return f"{left}&{right}"


class Joining(World):
    """Four inputs, and a job with every kind of join."""

    STREAMS: ClassVar = {"orders": 2, "payments": 3, "users": 2, "rates": 3}
    KEYS: ClassVar = {"max_records_per_round": 7}

    def app(self) -> hr.App:
        app = super().app()
        orders, payments = (self._stream(app, name) for name in ("orders", "payments"))
        users = app.table(f"{self.name}-users", key=hr.String(), value=hr.Long(), store="users")
        rates = app.global_table(f"{self.name}-rates", key=hr.String(), value=hr.Long(), store="rates")
        to = {"value": hr.String()}
        orders.join(users, text, name="inner", **to).to(f"{self.name}-inner")
        orders.left_join(rates, text, name="rated", key=lambda r: str(r.value % 3), **to).to(f"{self.name}-rated")
        paid = payments.repartition(name="paid")
        paid.left_join(rates, text, name="again", key=lambda r: str(r.value % 3), **to).to(f"{self.name}-again")
        near = orders.left_join(payments.repartition(name="late"), text, within="5 s", name="near", grace="1 minute", **to)
        near.to(f"{self.name}-near")
        counts = orders.group_by_key().count(store="n")
        users.left_join(counts, text, name="both", **to).to(f"{self.name}-both")
        return app

    def _stream(self, app: hr.App, name: str) -> hr.KStream:
        return app.stream(f"{self.name}-{name}", key=hr.String(), value=hr.Long())

    def send(self, stream: str, records: list[tuple[str, int, int]]) -> None:
        found = [hr.Record(key, value, T + second * SECOND) for key, value, second in records]
        self.produce_to(stream, found)

    def run(self) -> None:
        super().run(self.app())

    def read(self, stream: str) -> list[tuple[str, str]]:
        return sorted((record.key, record.value) for record in super().read(stream, hr.String()))


WORLD = Joining


def test_every_kind_of_join_over_several_runs(world: Joining) -> None:
    world.send("users", [(key, number, 0) for number, key in enumerate(KEYS)])
    world.send("rates", [(str(number), number * 100, 0) for number in range(2)])
    world.run()
    world.send("orders", [(key, number, 10 + number) for number, key in enumerate(KEYS)])
    world.send("payments", [(key, number + 50, 12 + number) for number, key in enumerate(KEYS[:4])])
    world.run()
    world.send("users", [(KEYS[0], 70, 30)])
    world.send("orders", [("nobody", 9, 40), (KEYS[0], 10, 41)])
    world.run()
    orders = [(key, number) for number, key in enumerate(KEYS)] + [("nobody", 9), (KEYS[0], 10)]
    assert world.read("inner") == sorted([(key, text(n, n)) for n, key in enumerate(KEYS)] + [(KEYS[0], text(10, 70))])
    rates = {number: number * 100 for number in range(2)}
    assert world.read("rated") == sorted((key, text(n, rates.get(n % 3))) for key, n in orders)
    payments = [(key, number + 50) for number, key in enumerate(KEYS[:4])]
    assert world.read("again") == sorted((key, text(n, rates.get(n % 3))) for key, n in payments)
    matched = [(key, text(n - 50, n)) for key, n in payments]
    assert world.read("near") == sorted(matched)
    both = world.read("both")
    assert {(KEYS[0], text(70, 2)), *((key, text(n, 1)) for n, key in enumerate(KEYS))} <= set(both)
    app = world.app()
    assert app.state("near-right").get(KEYS[2]) == {T + 14 * SECOND: 52}
    assert app.state("near-left").to_arrow().num_rows == len(orders)
    for rates_store in ("rates", "again-right"):  # every task has all of it, and it is read once
        assert [entry.value for entry in app.state(rates_store).entries("1")] == [100]
        assert sorted(app.state(rates_store).to_arrow().column("key").to_pylist()) == ["0", "1"]
