"""Dead letters of a job that works in this process, on both systems: listed, counted, shown; put back once each, as they were
or corrected; discarded."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import headrace as hr
from headrace import wiring
from headrace.cli.commands import application
from headrace.client.letters import DeadLetter, LetterFilter, LetterStatus, letter_of
from headrace.codec.job_records import DEAD_LETTERS
from headrace.errors import ConfigError
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine

BAD, GOOD = 1_000, 200
APP = """
import headrace as hr

app = hr.App({name!r}, config={config!r})
numbers = app.stream({stream!r}, key=hr.String(), value=hr.Json())
numbers.map_values(lambda record: {{"n": 100 // record.value["n"]}}).to({out!r}, value=hr.Json())
"""


class World:
    """A job that divides by what it reads. `letters`: records with a 0, and some that are no JSON."""

    def __init__(self, folder: Path, url: str, name: str) -> None:
        self.folder, self.url, self.name = folder, url, name
        self.stream, self.out, self.dead = f"{name}-numbers", f"{name}-out", f"{name}-dead"
        places = {"system": url, "local_store_dir": f"{folder}/stores", "state_uri": f"{folder}/state"}
        self.config = {**places, "dead_letter_stream": self.dead, "trigger_interval_ms": 10}
        (folder / "job.py").write_text(APP.format(name=name, config=self.config, stream=self.stream, out=self.out))
        self.system = hr.open_system(url)
        for stream in (self.stream, self.out, self.dead):
            self.system.create_stream(stream, 3)

    def app(self, file: str = "job") -> hr.App:
        from headrace.cli.app_loading import load_app

        return load_app(str(self.folder / f"{file}.py"))

    def send(self, values: list[bytes]) -> None:
        records = [hr.Record(f"k{number}", value, headers=(("mine", b"%d" % number),)) for number, value in enumerate(values)]
        self.system.produce(self.stream, records, key=hr.String(), value=hr.Bytes())

    def work(self) -> None:
        wiring.start(self.app(), until="caught-up", engine=InlineEngine(run_container)).wait(60)

    def outputs(self) -> Counter[int]:
        return Counter(record.value["n"] for record in self.system.consume(self.out, value=hr.Json()))

    def command(self, *arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(application, ["dead-letters", *arguments])
        assert result.exit_code == code, result.output
        return result


@pytest.fixture(params=["log", "kafka"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    url = f"log:{tmp_path / 'log'}"
    if request.param == "kafka":
        url = f"kafka://{request.getfixturevalue('kafka_server').bootstrap}"
    made = World(tmp_path, url, f"letters-{abs(hash(tmp_path)) % 10**8}")
    yield made
    made.system.close()


def test_a_poisoned_stream_is_listed_corrected_and_put_back_each_record_once(world: World) -> None:
    app = str(world.folder / "job.py")
    world.send([b'{"n": 0}' if number % 2 else b"no json" for number in range(BAD)] + [b'{"n": 4}'] * GOOD)
    world.work()
    assert world.outputs() == {25: GOOD}
    counted = json.loads(world.command("count", app, "--json").stdout)
    assert counted["open"] == BAD and {one["error_class"]: one["letters"] for one in counted["by_reason"]} == {
        "ZeroDivisionError": BAD // 2,
        "SerdeError": BAD // 2,
    }

    # As they are, they fail again, and count their tries.
    chosen = world.command("list", app, "--json", "--limit", "2", "--reason", "ZeroDivisionError").stdout.splitlines()
    again = [json.loads(line)["id"] for line in chosen]
    world.command("retry", *again, "--app", app, "--yes")
    refused = world.command("retry", again[0], "--app", app, "--yes", code=1)
    assert "it was retried already" in refused.stderr
    world.work()
    with hr.dead_letters(world.app()) as letters:
        found = list(letters.list(open_only=True))
        assert len(found) == BAD and sorted(one.tries for one in found) == [0] * (BAD - 2) + [1, 1]
        assert all(dict(one.headers).keys() == {"mine"} for one in found), "its own headers, and no others"

    # Corrected, each is processed once.
    lines = world.command("list", app, "--json", "--values", "--limit", str(BAD)).stdout.splitlines()
    assert len(lines) == BAD
    corrected = [json.loads(line) | {"value": {"n": 2}} for line in lines]
    path = world.folder / "letters.jsonl"
    path.write_text("\n".join(map(json.dumps, corrected[:-1])) + "\n{}\n")
    assert f"line {BAD}" in world.command("retry", "--from", str(path), "--app", app, "--yes", code=1).stderr
    world.work()
    assert world.outputs() == {25: GOOD}, "nothing was put back"
    path.write_text("\n".join(map(json.dumps, corrected)))
    world.command("retry", "--from", str(path), "--app", app, "--yes")
    world.command("retry", "--from", str(path), "--app", app, "--yes", code=1)
    world.work()
    assert world.outputs() == {25: GOOD, 50: BAD}
    assert json.loads(world.command("count", app, "--json").stdout)["open"] == 0
    assert len(world.command("list", app, "--json", "--every", "--limit", "5000").stdout.splitlines()) == BAD + 2


def test_one_is_shown_as_it_was_read_and_those_that_are_discarded_are_listed_no_more(world: World) -> None:
    app = str(world.folder / "job.py")
    world.send([b'{"n": 0}', b"\xff\xfe", b'{"n": 5}'])
    world.work()
    (zero,) = world.command("list", app, "--json", "--reason", "division", "--values").stdout.splitlines()
    found = json.loads(world.command("show", json.loads(zero)["id"], app, "--json").stdout)
    assert (found["key"], found["value"], found["tries"], found["status"]) == ("k0", {"n": 0}, 0, "open")
    assert found["headers"] == [["mine", "0"]] and found["source"].startswith(f"{world.stream}/")
    (bytes_,) = world.command("list", app, "--json", "--reason", "SerdeError", "--values").stdout.splitlines()
    assert json.loads(bytes_)["value"] == {"base64": "//4="} and "value" in json.loads(bytes_)["does_not_decode"]
    world.command("discard", "--reason", "SerdeError", "--app", app, "--yes")
    assert world.command("list", app).stdout.count("ZeroDivisionError") == 1
    assert "no open dead letter" in world.command("discard", "--reason", "SerdeError", "--app", app, "--yes").stdout
    for wrong in (["show", "9:9", app], ["show", "x", app], ["retry", "0:999", "--app", app, "--yes"]):
        assert "has no dead letter" in world.command(*wrong, code=1).stderr
    assert "say which" in world.command("retry", "--app", app, "--yes", code=2).stderr


def test_what_was_done_with_letters_of_a_stream_that_is_deleted_says_nothing_of_those_of_the_next(world: World) -> None:
    app = str(world.folder / "job.py")

    def counted() -> int:
        return int(json.loads(world.command("count", app, "--json").stdout)["open"])

    world.send([b'{"n": 0}'] * 5)
    world.work()
    world.command("discard", "--all", "--app", app, "--yes")
    assert counted() == 0
    world.system.delete_stream(world.dead)  # to clear it: it is an output, and the job reads others
    world.system.create_stream(world.dead, 3)
    world.send([b'{"n": 0}'] * 4)
    world.work()
    assert counted() == 4
    world.command("retry", "--all", "--app", app, "--yes")
    assert counted() == 0
    assert len(world.system.metadata_store(world.name).all(DEAD_LETTERS)) == 4, "the marks of the deleted stream are deleted"


def test_of_several_applications_with_one_stream_for_letters_each_has_its_own(world: World) -> None:
    other = f"{world.name}-other"
    (world.folder / "job.py").rename(world.folder / "first.py")
    config = {**world.config, "dead_letter_stream": world.dead}
    for file, name, out in (("job", world.name, world.out), ("other", other, f"{world.out}-other")):
        (world.folder / f"{file}.py").write_text(APP.format(name=name, config=config, stream=world.stream, out=out))
    world.system.create_stream(f"{world.out}-other", 1)
    world.send([b'{"n": 0}'] * 3)
    world.work()
    wiring.start(world.app("other"), until="caught-up", engine=InlineEngine(run_container)).wait(60)
    found = {}
    for file in ("job", "other"):
        with hr.dead_letters(world.app(file)) as letters:
            found[file] = [one.id for one in letters.list()]
            assert letters.retry(letters.list()) == 3 and letters.count() == Counter()
            if file == "job":
                other_id = found[file][0]
            else:
                with pytest.raises(ConfigError, match="has no dead letter"):
                    letters.get(other_id)
    assert not set(found["job"]) & set(found["other"]) and len(found["other"]) == 3


def test_letters_that_were_dealt_with_stay_so_where_the_application_has_another_stream_for_a_while(world: World) -> None:
    """Marks of the form of older versions are among them; and the letters of both streams have the same ids."""
    streams = world.dead, f"{world.dead}-2"
    world.system.create_stream(streams[1], 3)
    ids = [world.system.describe_stream(stream).id for stream in streams]

    def there(stream: str) -> hr.App:
        config = {**world.config, "dead_letter_stream": stream}
        text = APP.format(name=world.name, config=config, stream=world.stream, out=world.out)
        (world.folder / "job.py").write_text(text)
        return world.app()

    world.send([b'{"n": 0}'] * 4)
    world.work()
    with hr.dead_letters(there(streams[0])) as letters:
        first = [one.id for one in letters.list()]
        assert letters.discard(letters.list()) == 4
    world.system.put_back(world.name, {}, {f"{ids[0]}/{first[0]}": None})
    world.system.put_back(world.name, {}, {first[0]: f"discarded@{ids[0]}".encode()})
    app = there(streams[1])
    world.send([b'{"n": 0}'] * 4)
    world.work()
    with hr.dead_letters(app) as letters:
        assert [one.id for one in letters.list()] == first
        assert letters.discard(list(letters.list())[:2]) == 2
        assert letters.discard(letters.list(open_only=True)) == 2
    for stream in streams:
        with hr.dead_letters(there(stream)) as letters:
            assert letters.count() == Counter() and letters.retry(letters.list(open_only=True)) == 0
    world.system.delete_stream(streams[0])
    with hr.dead_letters(there(streams[1])) as letters:
        world.send([b'{"n": 0}'])
        world.work()
        assert letters.discard(letters.list(open_only=True)) == 1
        assert all(key.startswith(f"{ids[1]}/") for key in world.system.metadata_store(world.name).all(DEAD_LETTERS))


def test_an_application_without_such_a_stream_says_what_to_set(tmp_path: Path) -> None:
    app = hr.App("none", config={"system": f"log:{tmp_path / 'log'}"})
    app.stream("in", key=hr.Bytes(), value=hr.Bytes()).to("out")
    with hr.open_system(f"log:{tmp_path / 'log'}") as log:
        log.create_stream("in", 1)
    with hr.dead_letters(app) as letters, pytest.raises(ConfigError, match="has no dead-letter stream"):
        letters.count()


def test_what_a_letter_says_of_its_record() -> None:
    facts: list[tuple[str, bytes | None]] = [
        (f"headrace.{name}", data)
        for name, data in [("stream", b"in"), ("partition", b"3"), ("offset", b"7"), ("operator", b"map"),
                           ("error-class", b"ValueError"), ("error-message", b"bad"), ("timestamp-us", b"5")]
    ]  # fmt: skip
    own: list[tuple[str, bytes | None]] = [("h", None), ("headrace.stream", b"of another job"), ("headrace.tries", b"2")]
    record = hr.Record(b"k", b"v", 9, (*own, *facts), 1, 4, "dead")
    letter = letter_of(record, {"1:4": b"retried"}, "flight")
    assert letter is not None
    assert (letter.id, letter.stream, letter.source_partition, letter.source_offset, letter.at_us) == ("1:4", "in", 3, 7, 5)
    assert (letter.tries, letter.status, letter.headers) == (2, LetterStatus.RETRIED, tuple(own[:2]))
    assert letter_of(hr.Record(b"k", b"v", 9, (), 1, 4, "dead"), {}, "flight") is None
    named = hr.Record(b"k", b"v", 9, (*own, *facts, ("headrace.application", b"flight")), 1, 4, "dead")
    assert letter_of(named, {"1:4": b"retried"}, "flight") == letter and letter_of(named, {}, "flight-delays") is None
    assert LetterFilter(reason="ValueError").takes(letter) and LetterFilter(reason="ad", until_us=6).takes(letter)
    others = LetterFilter(reason="x"), LetterFilter(since_us=6), LetterFilter(stream="out"), LetterFilter(operator="m")
    assert not any(one.takes(letter) for one in others)


def test_what_cannot_be_put_back_says_why() -> None:
    def letter(*facts: tuple[str, bytes]) -> DeadLetter:
        found = letter_of(hr.Record(b"k", b"v", 9, (("headrace.stream", b"in"), *facts), 0, 0, "dead"), {}, "flight")
        assert found is not None
        return found

    assert "timer" in letter(("headrace.offset", b"-1")).why_not_retried
    assert "too large: value: 3" in letter(("headrace.offset", b"1"), ("headrace.cut", b"value: 3")).why_not_retried
    assert letter(("headrace.offset", b"1")).why_not_retried == ""
