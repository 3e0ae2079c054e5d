"""Where a process is, as the configuration says."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import headrace as hr
from headrace.wiring.worker.location import location_of

PROVIDERS = """
import headrace as hr

class Rack(hr.LocationIdProvider):
    def get_location_id(self):
        return hr.LocationId("rack-7/node-2")

class Nowhere:
    def get_location_id(self):
        return None
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "racks_of_a_test.py").write_text(PROVIDERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("NODE_OF_A_TEST", "node-3")
    location_of.cache_clear()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, socket.gethostname()),
        ("here", "here"),
        ("env:NODE_OF_A_TEST", "node-3"),
        ("racks_of_a_test:Rack", "rack-7/node-2"),
    ],
)
def test_a_location(given: str | None, expected: str) -> None:
    assert location_of(given) == expected == hr.LocationId(expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("env:NOT_SET_HERE", "location_id 'env:NOT_SET_HERE' gives nothing on host"),
        ("two words", "location_id 'two words' gives 'two words' on host"),
        ("racks_of_a_test:Nowhere", "gives nothing on host"),
        ("racks_of_a_test:Missing", "has no 'Missing'"),
        ("no_such_module_of_a_test:Rack", "there is no module 'no_such_module_of_a_test'"),
    ],
)
def test_what_is_no_location(given: str, message: str) -> None:
    with pytest.raises(hr.ConfigError, match=message):
        location_of(given)
