"""What the pages give: keys, values and headers as users have written them; of our own texts those that name no file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

import headrace as hr
from headrace import wiring
from headrace.adapters.http.guard import Guard
from headrace.adapters.http.job_pages import job_pages
from headrace.adapters.http.operator_pages import operator_pages
from headrace.cli.operator_view import OperatorView
from headrace.cli.targets import Target
from headrace.core.file_paths import NOT_SHOWN, without_paths
from headrace.errors import HeadraceError, StorageError
from headrace.wiring.job_endpoint import LOOPBACK
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from operations.raw_requests import sent, served

KEYS = ["/products/shoes", "/kids/shoes", "file:///a b/c", "C:\\x\\y", "../../etc/passwd", "<b>/i</b>", "a/b?c=d#e%2f"]
FOLDERS = ["somewhere", "out yonder", "hid'den", 'quo"ted', "über", "semi;colon, and: more"]
PATHS = [
    "/{0}", "/{0}/", "/{0}/x", "/var/{0}/log", "//{0}//y", "file:///{0}", "file:/{0}/z", "log:/{0}", "log:{0}/log", "a {0}/b",
    "./{0}/x", "../{0}/x", "../../{0}", "~/{0}", "C:\\{0}\\x", "C:/{0}", "\\\\host\\{0}", "s3a://bucket/{0}", "{0}/0",
    "~root/{0}", "hdfs://host:9000/{0}", "/{0}/in/0", "%2F{0}%2Fx", "/etc/{0}", "/tmp/{0}.arrow",
]  # fmt: skip
MESSAGES = [
    "{0}", "there is no log in {0}", "cannot read '{0}': moved", 'cannot read "{0}"', "in/0 of {0}, in/1", "({0})",
    "[Errno 2] No such file or directory: {1}", "under {0}: moved, don't look", "it's at {0}; isn't it",
    "first\n{0}\nlast", "{0}:12: SyntaxError", "x={0}", "kafka://host:9092 and {0}", "`{0}`",
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES)
@pytest.mark.parametrize("path", PATHS)
def test_no_form_of_a_path_is_in_a_text_that_is_shown(path: str, message: str) -> None:
    for folder in FOLDERS:
        place = path.format(folder)
        shown = without_paths(message.format(place, repr(place)), ["in", "log"])
        assert not any(part in shown for part in (folder, folder.split()[-1], "yonder", "bucket")), shown


def test_what_names_no_file_is_shown() -> None:
    for text in ("in/0 is behind", "kafka://host:9092,other:9092 does not answer", "12 records/s", "factor 3: expected 2", ""):
        assert without_paths(text, ["in"]) == text
    assert without_paths("cannot write '/srv/a b/c': the disk is full") == "cannot write '…': the disk is full"
    assert without_paths("data/0 is behind", ["in"]) == NOT_SHOWN


class Shop:
    """An application whose state is in folders with a space, and what its pages give."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "my lair box"
        self.system = f"log:{self.folder / 'log'}"
        places = {"system": self.system, "local_store_dir": str(self.folder / "stores"), "dead_letter_stream": "bad"}
        self.app = hr.App("shop", config={**places, "state_uri": (self.folder / "state").as_uri()})
        given = self.app.stream("in", key=hr.String(), value=hr.String()).filter(self.opens)
        given.group_by_key().count(store="counts")
        with hr.open_system(self.system) as log:
            log.create_stream("in", 1)
            log.create_stream("bad", 1)
            headers = [("path", b"/headers/x")]
            log.produce("in", [hr.Record(key, "ok") for key in KEYS], key=hr.String(), value=hr.String())
            bad = [hr.Record("/bad/key", "/products/cups/blue", headers=headers)]
            log.produce("in", bad, key=hr.String(), value=hr.String())
        wiring.start(self.app, until="caught-up", engine=InlineEngine(run_container)).wait(30)
        self.view = OperatorView(Target("shop", wiring.config_of(self.app), self.app), allow_changes=True)
        self.client = TestClient(Guard(operator_pages(self.view)[0], LOOPBACK), "http://localhost")

    def opens(self, record: Any) -> bool:
        if record.value != "ok":
            raise FileNotFoundError(2, "no such file", str(self.folder / "model.bin"))
        return True

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.client.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_keys_that_look_like_paths_are_found_as_they_are_shown(shop: Shop) -> None:
    shown = [row["key"] for row in shop.get("/state/counts?limit=100")["rows"]]
    assert sorted(shown) == sorted(KEYS)
    with served(shop.view) as port:
        for key in shown:
            head = f"GET /state/counts/{quote(key, safe='')} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            answer = sent(port, head.encode())
            assert answer is not None
            found = json.loads(answer.body)
            assert (found["key"], [one["value"] for one in found["entries"]]) == (key, [1])
    one = shop.get(f"/state/counts?from={quote('/products', safe='')}&to={quote('/products0', safe='')}")
    assert [row["key"] for row in one["rows"]] == ["/products/shoes"]


def test_a_dead_letter_is_shown_as_it_was_read_and_its_reason_names_no_file(shop: Shop) -> None:
    (letter,) = shop.get("/api/overview")["dead_letters"]["letters"]
    assert (letter["key"], letter["value"]) == ("/bad/key", "/products/cups/blue")
    assert letter["headers"] == [["path", "/headers/x"]] and letter["source"] == "in/0"
    assert letter["reason"].startswith("FileNotFoundError: ") and "model.bin" not in letter["reason"]
    done = shop.client.post("/api/preview/dead-letters", json={"ids": letter["id"]}).json()
    assert done["letters"][0]["source"] == "in/0" and "lair box" not in json.dumps(done)


def test_an_error_names_no_file_and_the_log_has_all_of_it(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shutil.move(shop.folder / "state", shop.folder / "moved")
    found = shop.get("/state/counts/x", 400)
    assert found["error"] and not any(part in json.dumps(found) for part in ("lair", "box", str(shop.folder)))
    assert any("lair" in record.getMessage() for record in caplog.records)
    shutil.move(shop.folder / "log", shop.folder / "moved-log")
    answers = [shop.client.get(path) for path in ("/state/counts/x", "/api/overview", "/api/dead-letters")]
    answers += [shop.client.post("/api/preview/startpoint", json={"stream": "in", "position": "earliest"})]
    for answer in answers:
        assert answer.status_code in (400, 503) and not any(part in answer.text for part in ("lair", "box")), answer.text


def test_what_has_stopped_a_job_names_no_file(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever text of a document: what a job has reported, and the history."""

    def status(job: Any, url: str) -> Mapping[str, Any]:
        at = str(shop.folder)
        sub = {"stopped_by": f"StateError: {at} is missing", "notes": [f"in/0 is behind, see {at}"], "waiting_for": at}
        return {"sub_topologies": {"source": sub | {"reads": ["in/0"]}}, "rejected_executors": {"host": f"no room in {at}"}}

    monkeypatch.setattr("headrace.cli.operator_view.status_document", status)
    found = shop.get("/api/overview")["status"]
    assert "lair box" not in json.dumps(found) and found["sub_topologies"]["source"]["reads"] == ["in/0"]
    assert found["sub_topologies"]["source"]["stopped_by"] == found["rejected_executors"]["host"] == NOT_SHOWN


def test_what_a_job_waits_for_names_no_file() -> None:
    pages = job_pages(list, str, lambda: "room in /srv/my data")
    answer = TestClient(pages).get("/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "why": NOT_SHOWN})


def test_a_refusal_that_comes_every_second_is_logged_once(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    error: HeadraceError = StorageError("/srv/a is missing", "look in /srv")
    for _ in range(3):
        assert shop.view.refused(error) == {"error": NOT_SHOWN, "hint": None}
    assert [record.getMessage() for record in caplog.records].count(str(error)) == 1
