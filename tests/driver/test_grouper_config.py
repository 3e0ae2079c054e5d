"""Which grouper `ssp_grouper` means, and what is none."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.core.job_plan.groupers import AllSspsToEveryTask, GroupBySystemStreamPartitionFixedTaskNum
from headrace.driver.planning.grouper_config import grouper_of, task_name_grouper_of
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


@pytest.mark.parametrize(
    ("value", "tasks"),
    [
        (hr.AllSspsToEveryTask, 3),
        (hr.AllSspsToEveryTask(), 3),
        (hr.AllSspsToEveryTask(5), 5),
        ("headrace:AllSspsToEveryTask", 3),
    ],
)
def test_all_to_every_task_may_be_given_as_a_class_or_an_object(value: object, tasks: int) -> None:
    assert len(grouper_of(value, 3).group({}, SSPS)) == tasks


@pytest.mark.parametrize("tasks", [0, -1, 1.5, True, "2"])
def test_all_to_every_task_takes_a_number_of_tasks(tasks: Any) -> None:
    with pytest.raises(hr.ConfigError, match="expected a whole number, 1 to 10,000"):
        hr.AllSspsToEveryTask(tasks)


class Shown:
    """Not derived from ours, and demands to be shown the broadcast partitions."""

    def group(self, previous_assignment: Any, ssps: Any, broadcast: Any) -> Any:
        return {hr.TaskName.parse(f"task-{len(list(broadcast))}"): list(ssps)}


class OlderShown:
    def group(self, ssps: Any, *, broadcast: Any = None) -> Any:
        return {hr.TaskName.parse(f"task-{len(list(broadcast))}"): list(ssps)}


@pytest.mark.parametrize("value", [Shown, Shown(), OlderShown])
@pytest.mark.filterwarnings("ignore:ssp_grouper. OlderShown:DeprecationWarning")
def test_a_grouper_with_the_parameter_is_shown_broadcast_inputs(value: object) -> None:
    app = hr.App("shown", ssp_grouper=value)
    stream = app.stream("clicks", key=hr.String(), value=hr.String())
    names = app.global_table("names", key=hr.String(), value=hr.String())
    named = stream.join(names, lambda click, name: f"{click}:{name}", key=lambda record: record.value, value=hr.String())
    named.to("named")
    with Driver(app, partitions={"clicks": 2, "names": 3}) as driver:
        driver.send("names", "a", "Anna")
        driver.run()
        driver.send("clicks", "x", "a")
        driver.run()
        assert [record.value for record in driver.read("named")] == ["a:Anna"]
        assert [str(task.name) for task in driver._opened.plan.model.tasks] == ["task-3"]


class Regions(hr.SystemStreamPartitionGrouper):
    """Tasks by names of their own, of partitions p mod 2."""

    def group(self, previous_assignment: Any, ssps: Iterable[hr.SystemStreamPartition]) -> Any:
        tasks: dict[hr.TaskName, set[hr.SystemStreamPartition]] = {}
        for ssp in ssps:
            tasks.setdefault(hr.TaskName.parse(("europe", "far-east.2")[ssp.partition % 2]), set()).add(ssp)
        return tasks


def test_tasks_with_names_of_their_own_keep_state_through_restarts_rewinds_and_growth(tmp_path: Path) -> None:
    def app() -> hr.App:
        made = hr.App("regions", ssp_grouper=Regions, settle_time_s=0)
        made.stream("in", key=hr.String(), value=hr.Long()).group_by_key().count(store="n")
        return made

    keys = [f"k{number}" for number in range(9)]
    for nth in (1, 2):
        with Driver(app(), partitions=2, directory=tmp_path) as driver:
            for key in keys:
                driver.send("in", key, nth)
            driver.run()
            assert driver.store("n").all() == dict.fromkeys(keys, nth)
    with Driver(app(), directory=tmp_path) as driver:
        driver.startpoint("in", "earliest", task="far-east.2", partition=1)
        driver.expand("in", 4)
        for key in keys:
            driver.send("in", key, 3)
        driver.run()
        found = driver.store("n").all()
        assert set(found.values()) == {3, 5} and found.keys() == set(keys)


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
        (Demanding, r"class Demanding cannot be instantiated without arguments(.|\n)*give the object"),
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
        ("1 / 0", r"making a Mine raised ZeroDivisionError: division by zero\n  hint: fix it at grouping_of_mine\.py:3; "),
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


# --- of tasks into containers -----------------------------------------------------------------------------------------


class Placing(hr.TaskNameGrouper):
    def group(self, tasks: Any, processor_ids: Any = None, previous_containers: Any = None) -> Any:
        return [hr.ContainerModel(0, tuple(tasks), processor_ids[0])]


class PlacingByShape:
    def group(self, tasks: Any, processor_ids: Any, previous_containers: Any) -> Any:
        return ()


@pytest.mark.parametrize("value", [Placing, Placing(), PlacingByShape, hr.GroupByProcessor, "headrace:GroupByProcessor"])
def test_a_grouper_of_tasks_is_a_class_an_object_or_named(value: Any) -> None:
    found = task_name_grouper_of(value)
    assert found is not None and not isinstance(found, (type, str)) and callable(found.group)
    assert task_name_grouper_of(None) is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (hr.TaskNameGrouper, r"task_name_grouper: TaskNameGrouper is no grouper"),
        (Alike, r"task_name_grouper: .*Alike.* is no grouper"),
        (object(), r"task_name_grouper: <object"),
        ("GroupByProcessor", r"task_name_grouper 'GroupByProcessor' is not known"),
        ("headrace:Nothing", r"task_name_grouper 'headrace:Nothing'"),
    ],
)
def test_what_is_no_grouper_of_tasks_is_refused(value: Any, message: str) -> None:
    with pytest.raises(hr.ConfigError, match=message):
        task_name_grouper_of(value)
