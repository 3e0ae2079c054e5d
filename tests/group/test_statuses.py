"""What several processors have published of one job, as one status."""

from __future__ import annotations

from headrace.core.group.statuses import FRESH_US, counted_by, counted_on, joined_statuses, processors_at_work, published_name

A = {
    "records": 10,
    "lag": 5,
    "counters": {"dead_letters": 1},
    "waiting_for": "",
    "updated_us": 100,
    "notes": ["n"],
    "metrics": {"m": 1},
}
B = {
    "records": 7,
    "lag": 4,
    "counters": {"late_records": 2},
    "waiting_for": "x",
    "updated_us": 200,
    "notes": [],
    "metrics": {"m": 2},
}


def test_what_is_counted_is_added_and_the_rest_is_of_the_newest() -> None:
    (found,) = joined_statuses({published_name("source", "a"): A, published_name("source", "b"): B}).values()
    assert (found["records"], found["lag"], found["counters"]) == (17, 4, {"dead_letters": 1, "late_records": 2})
    assert found["notes"] == ["n"] and found["metrics"] == {"m": 2}
    b = {"updated_us": 200, "records": 7, "waiting_for": "x", "ended_by": None}
    assert found["processors"]["b"] == b


def test_what_is_restored_anywhere_is_shown() -> None:
    shares = {"s@a": {**A, "restoring": [{"task": "t1"}]}, "s@b": {**B, "restoring": [{"task": "t2"}]}}
    assert joined_statuses(shares)["s"]["restoring"] == [{"task": "t1"}, {"task": "t2"}]


def test_who_has_published_nothing_for_a_while_is_not_there_any_more() -> None:
    late = {**B, "updated_us": 100 + FRESH_US + 1}
    (found,) = joined_statuses({"source@a": A, "source@b": late}).values()
    assert found["records"] == 7 and list(found["processors"]) == ["b"]


def test_a_driver_alone_and_a_group_follow_each_other() -> None:
    assert joined_statuses({"source": A}) == {"source": A}
    assert joined_statuses({"source": {**A, "updated_us": 300}, "source@b": B})["source"]["records"] == 10
    assert joined_statuses({"source": A, "source@b": B})["source"]["records"] == 7


def test_of_each_task_the_one_that_runs_it_has_measured_something() -> None:
    one, other = {"columns": ["n"], "rows": {"t1": [3], "t2": [0]}}, {"columns": ["n"], "rows": {"t1": [0], "t2": [4]}}
    joined = joined_statuses({"s@a": {**A, "task_metrics": one}, "s@b": {**B, "task_metrics": other}})
    assert joined["s"]["task_metrics"] == {"columns": ["n"], "rows": {"t1": [3], "t2": [4]}}


RUN = {"run": "r1", "round": 3, "records_written": 1, "counters_of_all_runs": {}}


def test_the_counts_of_a_run_never_fall_as_processors_come_and_go() -> None:
    """Those of one that is lost stay, those of an earlier run do not count, and the round is the highest."""
    before = {"s@a": {**A, **RUN, "round": 131}, "s@b": {**B, **RUN, "round": 58}}
    before["s@c"] = {**A, **RUN, "run": "r0", "round": 999}
    lost = {**before, "s@b": {**before["s@b"], "updated_us": 200 + 2 * FRESH_US, "round": 59}}
    shown = [joined_statuses(one)["s"] for one in (before, lost)]
    assert [(one["records"], one["round"], one["records_written"]) for one in shown] == [(17, 131, 2), (17, 131, 2)]
    assert shown[1]["counters"] == {"dead_letters": 1, "late_records": 2} and list(shown[1]["processors"]) == ["b"]


def test_one_that_is_back_counts_on_from_what_it_had_in_the_same_run() -> None:
    joined = joined_statuses({"s@a": {**A, **RUN}, "s@b": {**B, **RUN}})
    assert counted_by(joined, "a", "r2") == counted_by(joined, "z", "r1") == {}
    again = counted_on({**A, "records": 1, "round": 1}, counted_by(joined, "a", "r1")["s"])
    assert (again["records"], again["round"], again["counters"], again["lag"]) == (11, 4, {"dead_letters": 2}, 5)


def test_the_rate_is_of_what_all_have_read_in_the_time_that_was_counted() -> None:
    """One that has just come, and has read what waited for it, does not give a rate that the group never had."""
    here = {"records": 6000, "seconds": 60.0}
    shares = {"s@a": {**A, "last_minute": here}, "s@b": {**B, "last_minute": {"records": 900, "seconds": 1.0}}}
    shown = joined_statuses({**shares, "s@c": B})["s"]
    assert shown["metrics"] == {"m": 2, "records-per-s-60s": 115.0}
    assert joined_statuses({"s@a": {**A, "last_minute": {"records": 0, "seconds": 0.0}}})["s"]["metrics"] == {"m": 1}


def test_who_works_has_said_lately_that_it_is_there() -> None:
    """Whoever leads: by that a group is known to run while it has no leader."""
    published = {"d": {"updated_us": 80}, "a": {"updated_us": 100}, "c": {"updated_us": 100 - FRESH_US}}
    assert processors_at_work(published, 101) == ["a", "d"]
    assert processors_at_work(published, 101 + FRESH_US) == []
