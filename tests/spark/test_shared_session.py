"""A user's own session that already runs: a job takes part in it and leaves it as it was; a second driver is refused."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import JobHeldError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def counting(world: Any, name: str) -> hr.App:
    app: hr.App = world.app(name)
    stream = app.stream("in", key=hr.String(), value=hr.Json("id int"))
    stream.filter("value.id % 2 = 0").group_by_key().count(store="counts").to_stream().to(f"{name}-out")
    return app


def test_two_jobs_and_the_user_share_a_session_and_a_second_driver_is_refused(world: Any, spark: Any) -> None:
    world.produce([{"id": number} for number in range(40)])
    before = {key: spark.conf.get(key) for key in ("spark.sql.ansi.enabled", "spark.sql.adaptive.enabled")}
    spark.range(5).createOrReplaceTempView("users_view")
    first = counting(world, "first").start()
    try:
        with pytest.raises(JobHeldError, match=r"application 'first' is run by process \d+"):
            counting(world, "first").start()
        world.run(counting(world, "second"))
        assert spark.sql("select count(*) from users_view").first()[0] == 5
        while first.status()["sub_topologies"]["source"]["records"] < 40:
            with pytest.raises(TimeoutError):
                first.wait(0.2)
    finally:
        first.stop()
    assert {key: spark.conf.get(key) for key in before} == before
    assert spark.range(3).count() == 3, "the session was stopped with the job"
    for name in ("first", "second"):
        last = {record.key: record.value for record in world.read(f"{name}-out", value=hr.Long())}
        assert last == {f"k{number}": 4 for number in range(5)}
    world.run(counting(world, "first"))  # what the first one held is free again
