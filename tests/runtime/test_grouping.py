"""Which grouper `ssp_grouper` means, and what is none."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.groupers import AllSspsToEveryTask, GroupBySystemStreamPartitionFixedTaskNum
from headrace.runtime.grouping import grouper_of
from headrace.testing import Driver

SSPS = [hr.SystemStreamPartition("k", "a", partition) for partition in range(2)]
ONE = hr.TaskName.parse("Partition_0")
EXPECTED = r"group\(previous_assignment, ssps\), as hr\.SystemStreamPartitionGrouper has"


class Derived(hr.SystemStreamPartitionGrouper):
    def group(self, previous_assignment: Any, ssps: Iterable[hr.SystemStreamPartition]) -> Any:
        return {ONE: frozenset(ssps)}


class Alike:
    def group(self, previous_assignment: Any, ssps: Any) -> Any:
        return {ONE: frozenset(ssps)}

    class Within(Derived):
        pass


class Lazy:
    def group(self, previous_assignment: Any, ssps: Any) -> Any:
        return {ONE: (ssp for ssp in ssps)}


class Older:
    def group(self, ssps: Any) -> Any:
        return {ONE: frozenset(ssps)}


class OlderOfOurs(hr.SystemStreamPartitionGrouper):
    def group(self, ssps: Any) -> Any:  # type: ignore[override]
        return {ONE: frozenset(ssps)}


class Unfinished(hr.SystemStreamPartitionGrouper):
    pass


class Demanding(Derived):
    def __init__(self, size: int) -> None:
        self.size = size


class OfThree:
    def group(self, one: Any, two: Any, three: Any) -> Any:
        raise AssertionError("it is never called")


def a_function(ssps: Any) -> Any:
    raise AssertionError("it is never called")


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterable[Callable[[str], None]]:
    """Makes the module `grouping_of_mine`, which can be imported until the test is over."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(text: str) -> None:
        (tmp_path / "grouping_of_mine.py").write_text(text, encoding="utf-8")

    yield make
    sys.modules.pop("grouping_of_mine", None)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, hr.GroupByPartition),
        ("partition", hr.GroupByPartition),
        ("GroupByPartition", hr.GroupByPartition),
        ("GroupByPartitionFixedTaskNum", hr.GroupByPartitionFixedTaskNum),
        ("system_stream_partition", hr.GroupBySystemStreamPartition),
        ("GroupBySystemStreamPartition", hr.GroupBySystemStreamPartition),
        ("GroupBySystemStreamPartitionFixedTaskNum", GroupBySystemStreamPartitionFixedTaskNum),
        (hr.GroupByPartition, hr.GroupByPartition),
        (Derived, Derived),
        (Derived(), Derived),
        (Demanding(3), Demanding),
    ],
)
def test_a_name_a_class_or_an_object(value: object, kind: type) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert type(grouper_of(value, 3)) is kind


@pytest.mark.parametrize("name", ["all_ssps_to_every_task", "AllSspsToEveryTask"])
def test_all_to_every_task_makes_as_many_as_are_asked_for(name: str) -> None:
    grouper = grouper_of(name, 3)
    assert isinstance(grouper, AllSspsToEveryTask) and grouper.tasks == 3


def test_a_class_that_is_not_derived_from_ours_is_taken_for_what_it_does() -> None:
    grouper = grouper_of(Alike, 1)
    assert grouper.group({}, SSPS) == {ONE: frozenset(SSPS)}
    assert str(grouper) == "Alike", "errors name the user's own class"


@pytest.mark.parametrize("older", [Older, Older(), OlderOfOurs])
def test_one_that_takes_the_partitions_only_is_taken_and_told_what_to_take(older: object) -> None:
    words = r"ssp_grouper: Older\w*\.group\(ssps\) is deprecated.*group\(previous_assignment, ssps\)"
    with pytest.warns(DeprecationWarning, match=words):
        grouper = grouper_of(older, 1)
    assert grouper.group({SSPS[0]: ONE}, SSPS) == {ONE: frozenset(SSPS)}


def test_a_module_and_the_name_of_a_class_or_an_object_in_it(module: Callable[[str], None]) -> None:
    module("import headrace as hr\nclass Mine(hr.GroupByPartition):\n    pass\nclass Outer:\n    one = Mine()\n")
    for name in ("Mine", "Outer.one"):
        grouper = grouper_of(f"grouping_of_mine:{name}", 1)
        assert type(grouper).__name__ == "Mine"
        assert grouper.group({}, SSPS) == hr.GroupByPartition().group({}, SSPS)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (sorted, rf"ssp_grouper: sorted is no grouper(.|\n)*{EXPECTED}"),
        (a_function, rf"ssp_grouper: a_function is no grouper(.|\n)*{EXPECTED}"),
        (dict, rf"ssp_grouper: dict is no grouper(.|\n)*{EXPECTED}"),
        (Unfinished, rf"ssp_grouper: Unfinished is no grouper(.|\n)*{EXPECTED}"),
        (OfThree, rf"ssp_grouper: .*OfThree.* is no grouper(.|\n)*{EXPECTED}"),
        (Demanding, r"class Demanding is not made without arguments(.|\n)*give the object"),
        ("partitions", r"'partitions' is not known(.|\n)*did you mean 'partition'(.|\n)*MODULE:NAME"),
        ("GroupByKey", r"'GroupByKey' is not known(.|\n)*GroupByPartitionFixedTaskNum"),
        ("no_such_module.at_all:Mine", r"there is no module 'no_such_module'"),
        ("collections:Mine", r"module 'collections' has no 'Mine'"),
        ("collections:abc.Mine", r"module 'collections' has no 'abc\.Mine'"),
        ("collections:OrderedDict", rf"ssp_grouper 'collections:OrderedDict': OrderedDict is no grouper(.|\n)*{EXPECTED}"),
        ("mine.py:Mine", r"there is no module 'mine'"),
        ("mine/of.py:Mine", r"'mine/of\.py:Mine' is not known(.|\n)*MODULE:NAME"),
    ],
)
def test_what_is_no_grouper_is_refused_and_says_what_is_expected(value: object, words: str) -> None:
    with pytest.raises(hr.ConfigError, match=words):
        grouper_of(value, 1)


def test_what_a_users_module_lacks_is_the_users_own_error(module: Callable[[str], None]) -> None:
    module("import not_there_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        grouper_of("grouping_of_mine:Mine", 1)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1 / 0", r"making a Mine raised ZeroDivisionError: division by zero\n  hint: mend it at grouping_of_mine\.py:3; "),
        ("import sys; sys.exit(3)", r"making a Mine raised SystemExit: 3\n"),
    ],
)
def test_a_class_that_cannot_be_made_says_what_it_raised(module: Callable[[str], None], line: str, words: str) -> None:
    module(f"class Mine:\n    def __init__(self):\n        {line}\n    def group(self, before, ssps):\n        pass\n")
    with pytest.raises(hr.ConfigError, match=rf"^ssp_grouper 'grouping_of_mine:Mine': {words}") as raised:
        grouper_of("grouping_of_mine:Mine", 1)
    assert raised.value.__cause__ is not None


def test_an_interrupt_goes_through_the_making_of_a_grouper() -> None:
    class Interrupted(Derived):
        def __init__(self) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grouper_of(Interrupted, 1)


def test_a_module_that_ends_the_process_when_it_is_imported_does_not(module: Callable[[str], None]) -> None:
    module("import sys\nsys.exit()\n")
    with pytest.raises(hr.ConfigError, match=r"importing module 'grouping_of_mine' raised SystemExit\n"):
        grouper_of("grouping_of_mine:Mine", 1)


# --- in a job -------------------------------------------------------------------------------------------------------------


def counted(**config: Any) -> hr.App:
    app = hr.App("grouped", **config)
    app.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="c")
    return app


@pytest.mark.parametrize("grouper", [Derived, Derived(), Alike, Older, Lazy])
@pytest.mark.filterwarnings("ignore:.*Older.group:DeprecationWarning")
def test_a_grouper_of_ones_own_runs(grouper: object) -> None:
    with Driver(counted(ssp_grouper=grouper), partitions=2) as d:
        for number in range(8):
            d.send("in", f"k{number}", number)
        d.run()
        assert d.store("c").all() == {f"k{number}": 1 for number in range(8)}


def test_a_plain_function_is_refused_at_the_start() -> None:
    with pytest.raises(hr.ConfigError, match=r"a_function is no grouper"):
        Driver(counted(ssp_grouper=a_function)).open()
