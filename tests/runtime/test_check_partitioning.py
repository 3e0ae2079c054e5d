"""`check_partitioning=sample`: a key in two partitions where no hash puts it is told, in the log, the notes and a count."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace as hr
from headrace.core.keys.hashing import partition_of
from headrace.testing import Driver

SAMPLE = ["check_partitioning=sample"]
KEYS = [f"k{number}" for number in range(40)]


def counting(partitioning: str = "hash") -> hr.App:
    app = hr.App("shop")
    views = app.stream("views", key=hr.String(), value=hr.Long(), partitioning=partitioning)
    views.group_by_key().count(store="n")
    app.table("users", key=hr.String(), value=hr.Long(), partitioning=partitioning)
    return app


def told(d: Driver, caplog: pytest.LogCaptureFixture) -> tuple[list[str], int]:
    """What was said, which the notes hold too, and the counter."""
    said = [record.getMessage() for record in caplog.records if record.name == "headrace.job"]
    notes = [note for rounds in d._opened.runners for note in rounds.progress.notes]
    assert notes == said
    return said, d.counters.get("keys_in_two_partitions", 0)


def test_a_key_in_two_partitions_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    with Driver(counting(), partitions=4, overrides=SAMPLE) as d:
        for key in KEYS:
            d.send("views", key, 1)
            d.send("users", key, 1)
        d.run()
        assert told(d, caplog) == ([], 0)
        there = partition_of(b"k3", 4)
        elsewhere = (there + 1) % 4
        for _ in range(2):
            d.send("views", "k3", 1, partition=elsewhere)
            d.run()
        said, count = told(d, caplog)
        assert count == 1
        assert len(said) == 1
        low, high = sorted((there, elsewhere))
        assert said[0].startswith(f"stream 'views': key 'k3' is in partitions {low} and {high}; a producer")
        assert 'partitioning="other"' in said[0]
        d.send("users", "k3", 1, partition=elsewhere)
        d.run()
        said, count = told(d, caplog)
        assert (count, [text.split(":")[0] for text in said]) == (2, ["stream 'views'", "stream 'users'"])


def test_within_one_round_too(caplog: pytest.LogCaptureFixture) -> None:
    with Driver(counting(), partitions=3, overrides=SAMPLE) as d:
        for partition in range(3):
            d.send("views", "k", 1, partition=partition)
        d.run()
        said, count = told(d, caplog)
        assert (len(said), count) == (1, 1)  # of each key a container reports two partitions that do not go together


@pytest.mark.parametrize("partitioning", ["hash", "other"])
def test_what_is_not_asked_for_or_declared_is_not_looked_at(caplog: pytest.LogCaptureFixture, partitioning: str) -> None:
    """Off is the default."""
    overrides = SAMPLE if partitioning == "other" else []
    with Driver(counting(partitioning), partitions=3, overrides=overrides) as d:
        assert not any(rounds.program.sampled for rounds in d._opened.runners)
        for partition in range(3):
            d.send("views", "k", 1, partition=partition)
            d.send("users", "k", 1, partition=partition)
        d.run()
        assert told(d, caplog) == ([], 0)


def test_records_without_a_key_may_be_anywhere(caplog: pytest.LogCaptureFixture) -> None:
    with Driver(counting(), partitions=3, overrides=SAMPLE) as d:
        for partition in range(3):
            d.send("views", None, 1, partition=partition)
        d.run()
        assert told(d, caplog) == ([], 0)


def test_repartition_streams_and_global_tables_are_not_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    app = hr.App("shop")
    views = app.stream("views", key=hr.String(), value=hr.Long())
    rates = app.global_table("rates", key=hr.String(), value=hr.Long())
    options = hr.Repartitioned(name="again", number_of_partitions=3, partitioner=lambda record, n: record.value % n)
    views.repartition(options).join(rates, lambda left, right: left + right, value=hr.Long()).to("out")
    with Driver(app, partitions={"views": 1, "rates": 3}, overrides=SAMPLE) as d:
        for number in range(3):
            d.send("views", "k", number)
            d.send("rates", "k", number, partition=number)
        d.run()
        assert told(d, caplog) == ([], 0)


def test_keys_that_moved_with_an_expansion_are_where_they_may_be(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """What counts is the smallest number of partitions on record, in a later run of the job too."""
    with Driver(counting(), partitions=2, directory=tmp_path, overrides=SAMPLE) as d:
        for key in KEYS:
            d.send("views", key, 1)
        d.run()
    with hr.open_system(f"log:{tmp_path / 'log'}") as system:
        system.expand_stream("views", 4)
    for again in range(2):
        with Driver(counting(), partitions=2, directory=tmp_path, overrides=SAMPLE) as d:
            for partitions in (2, 4):  # of a producer that has not learned of it, and of one that has
                for key in KEYS:
                    d.send("views", key, 1, partition=partition_of(key.encode(), partitions))
            d.run()
            assert told(d, caplog) == ([], 0)
            if again:
                d.send("views", "k3", 1, partition=(partition_of(b"k3", 2) + 1) % 2)
                d.run()
                said, count = told(d, caplog)
                assert (len(said), count) == (1, 1)
                assert "number of partitions (2, or a multiple of it)" in said[0]


def test_what_it_may_be_is_checked() -> None:
    with pytest.raises(hr.ConfigError, match=r"check_partitioning .*: expected 'off' or 'sample', found 'all'"):
        Driver(counting(), overrides=["check_partitioning=all"]).open()


def test_what_was_seen_and_told_outlasts_an_expansion_of_the_running_job(caplog: pytest.LogCaptureFixture) -> None:
    with Driver(counting(), partitions=2, overrides=SAMPLE) as d:
        for key in KEYS:
            d.send("views", key, 1)
        d.run()
        d.expand("views", 4)
        for key in KEYS[4:]:
            d.send("views", key, 1, partition=partition_of(key.encode(), 4))
        d.run()
        assert told(d, caplog) == ([], 0)
        d.send("views", "k3", 1, partition=3 - partition_of(b"k3", 4))  # of the other parent
        d.run()
        said, count = told(d, caplog)
        assert (len(said), count) == (1, 1)
        assert said[0].startswith("stream 'views': key 'k3' is in partitions ")
        assert "number of partitions (2, or a multiple of it)" in said[0]
        d.expand("views", 8)
        d.send("views", "k3", 1)
        d.send("views", "k3", 1, partition=3 - partition_of(b"k3", 4))
        d.run()
        assert told(d, caplog) == (said, 1)
