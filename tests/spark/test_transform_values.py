"""A transformer of a table's values in Python workers of Spark: called for every update, over rounds and restarts."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

import headrace as hr

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Before(hr.ValueTransformer[str, Any, list[Any]]):
    """The value that the key had before, and how many updates there were."""

    stores: ClassVar = [hr.KeyValueStore("seen", value=hr.Json())]

    def transform(self, record: Any) -> list[Any]:
        number, before = self.context.store("seen").get([0, None])
        self.context.store("seen").put([number + 1, record.value])
        return [number + 1, before, record.value]


def test_every_update_is_transformed_once(world: Any) -> None:
    def run() -> hr.App:
        app = world.app(max_records_per_round=7)
        table = app.table("in", key=hr.String(), value=hr.Json(), store="t")
        rows = table.transform_values(Before, store="kept", value=hr.Json())
        rows.to_stream(emit="each").to("each")
        rows.filter(lambda r: r.value[0] > 1).group_by(lambda r: str(r.value[2] % 2), key=hr.String()).count(store="groups")
        world.run(app)
        return app  # type: ignore[no-any-return]

    values = list(range(40))
    world.produce(values[:25])
    run()
    world.produce(values[25:])
    state = hr.state(run())
    found = world.read("each")
    for number in range(5):
        mine = values[number::5]
        expected = [[at + 1, mine[at - 1] if at else None, value] for at, value in enumerate(mine)]
        assert [record.value for record in found if record.key == f"k{number}"] == expected
    last = {f"k{number}": values[number::5][-1] for number in range(5)}
    assert {key: state["kept"].get(key) for key in last} == {key: [8, value - 5, value] for key, value in last.items()}
    odd = sum(value % 2 for value in last.values())
    assert (state["groups"].get("1"), state["groups"].get("0")) == (odd, 5 - odd)
