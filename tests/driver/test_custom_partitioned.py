"""A stream that does not go by its keys grows to any number of partitions, under state too, and nothing is kept in order."""

from __future__ import annotations

from collections import Counter

import pytest

import headrace as hr
from headrace.testing import Driver

KEYS = [f"k{number}" for number in range(6)]


def app(partitioning: str) -> hr.App:
    made = hr.App("shop")
    views = made.stream("views", key=hr.String(), value=hr.Long(), partitioning=partitioning)
    views.group_by_key().count(store="n")
    views.map_values(lambda r: r.partition, value=hr.Long()).to("places")
    return made


@pytest.mark.parametrize("counts", [(2, 3, 5, 6), (4, 6)])
def test_any_growth_is_taken_and_state_stays_right(counts: tuple[int, ...]) -> None:
    sent: Counter[str] = Counter()
    with Driver(app("other"), partitions=counts[0]) as d:
        for count in counts:
            if count > counts[0]:
                d.expand("views", count)
            for partition in range(count):
                for key in KEYS:
                    d.send("views", key, 1, partition=partition)
                    sent[key] += 1
            d.run()
            assert d.store("n").all() == sent
            assert Counter(r.value for r in d.read("places")) == dict.fromkeys(range(count), len(KEYS))
        assert d._opened.plan.model.partition_counts["views"] == counts[-1]
        assert d._opened.plan.model.partitioned_otherwise == ("views",)
        assert d._opened.plan.records.expansions == {}  # no order to keep, so no barrier


def test_of_one_that_goes_by_its_keys_the_same_growth_is_refused() -> None:
    with Driver(app("hash"), partitions=4) as d:
        d.send("views", "k", 1)
        d.run()
        with pytest.raises(hr.HeadraceError, match=r"'views'.* 4 .*6|'views'.*6.* 4 "):
            d.expand("views", 6)
