"""Signals to the containers of a round: one suite for files and for sockets, then what each has of its own."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.adapters.round_control import driver_socket, worker_socket
from headrace.adapters.round_control.driver_socket import SocketControl
from headrace.adapters.round_control.files import FileControl, FileSignals
from headrace.adapters.round_control.worker_socket import SocketSignals
from headrace.errors import SetupError
from headrace.exchange.engine import DriverAddress
from headrace.model.checkpoint import RoundId

LOOPBACK = DriverAddress("127.0.0.1", "127.0.0.1")
ROUND, OTHER = RoundId(7, "by-carrier", 3), RoundId(7, None, 3)
SOON_S = 30.0  # of a busy machine


def files(folder: Path) -> tuple[Any, Callable[[Any], Any]]:
    return FileControl(folder / "signals"), lambda terms: FileSignals(terms["files"])


def sockets(folder: Path) -> tuple[Any, Callable[[Any], Any]]:
    return SocketControl(LOOPBACK), SocketSignals


@pytest.fixture(params=[files, sockets])
def both(request: Any, tmp_path: Path) -> Iterator[tuple[Any, Callable[[RoundId], Any]]]:
    """The driver's side, and what makes the worker's side of a round, from terms as they travel."""
    control, signals = request.param(tmp_path)
    yield control, lambda round_id: signals(json.loads(json.dumps(control.terms_of(round_id))))
    control.close()


def is_soon(look: Callable[[], Any]) -> bool:
    until_s = time.monotonic() + SOON_S
    while not look():
        if time.monotonic() > until_s:
            return False
        time.sleep(0.01)
    return True


def test_a_signal_reaches_the_workers_of_its_round_and_no_others(both: Any) -> None:
    control, signals = both
    first, second, other = signals(ROUND), signals(ROUND), signals(OTHER)
    assert not any(one.is_stopped() or one.is_cut() for one in (first, second, other))
    control.cut(ROUND)
    assert is_soon(first.is_cut)
    assert is_soon(second.is_cut)
    assert not first.is_stopped()
    control.stop(ROUND)
    assert is_soon(first.is_stopped)
    assert first.is_cut()
    time.sleep(2 * worker_socket.FIRST_S)
    assert not other.is_stopped()
    assert not other.is_cut()
    assert not any(one.troubles() for one in (first, second, other))
    for one in (first, second, other):
        one.close()


def test_a_worker_that_begins_late_gets_what_was_signalled_before(both: Any) -> None:
    control, signals = both
    control.stop(ROUND)
    late = signals(ROUND)
    assert is_soon(late.is_stopped)
    late.close()


def test_a_round_may_end_while_it_is_signalled(both: Any) -> None:
    control, signals = both
    done = threading.Event()

    def end_rounds() -> None:
        while not done.is_set():
            control.ended(ROUND)

    ending = threading.Thread(target=end_rounds)
    ending.start()
    try:
        for _ in range(1_500):
            control.stop(ROUND)
            control.cut(ROUND)
    finally:
        done.set()
        ending.join()
    control.stop(ROUND)
    running = signals(ROUND)
    assert is_soon(running.is_stopped), "a round that still runs gets its signal"
    running.close()


def test_files_of_earlier_epochs_are_removed_and_of_later_ones_not(tmp_path: Path) -> None:
    control = FileControl(tmp_path)
    (tmp_path / "6-source-1").mkdir()
    for round_id in (RoundId(6, None, 2), RoundId(7, None, 1), RoundId(8, None, 1)):
        control.stop(round_id)
    control.begin(7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["7-source-1.stop", "8-source-1.stop"]


def test_a_round_leaves_no_file_behind(tmp_path: Path) -> None:
    control = FileControl(tmp_path / "signals")
    control.terms_of(ROUND)
    control.ended(ROUND)
    assert not (tmp_path / "signals").exists(), "without a signal nothing is written"
    control.cut(ROUND)
    control.ended(ROUND)
    assert list((tmp_path / "signals").iterdir()) == []


# --- sockets


@pytest.fixture
def control() -> Iterator[SocketControl]:
    made = SocketControl(LOOPBACK)
    yield made
    made.close()


class FakeDriver:
    """Listens, and answers each connection as the next of `answers` says: bytes to send, or None to close."""

    def __init__(self, answers: list[bytes | None]) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port, self.names, self._answers = self._server.getsockname()[1], [], answers
        self._held: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    names: list[bytes]

    def _serve(self) -> None:
        for answer in self._answers:
            connection, _ = self._server.accept()
            self.names.append(connection.recv(100))
            if answer is None:
                connection.close()
            else:
                connection.sendall(answer)
                self._held.append(connection)

    def signals(self, words: dict[str, bytes]) -> SocketSignals:
        digests = {kind: hashlib.sha256(word).hexdigest() for kind, word in words.items()}
        return SocketSignals({"host": "127.0.0.1", "port": self.port, "round": "7:x:3", **digests})


WORDS = {"stop": b"s" * 32, "cut": b"c" * 32}


def test_what_is_no_word_of_the_round_is_not_obeyed() -> None:
    driver = FakeDriver([b"stop" * 8 + hashlib.sha256(WORDS["stop"]).digest() + WORDS["cut"]])
    signals = driver.signals(WORDS)
    assert is_soon(signals.is_cut), "the word behind the others"
    assert not signals.is_stopped()


def test_a_lost_connection_is_made_again() -> None:
    driver = FakeDriver([None, WORDS["stop"]])
    signals = driver.signals(WORDS)
    assert is_soon(signals.is_stopped)
    assert driver.names == [b"7:x:3\n"] * 2


def test_without_a_driver_nothing_waits_and_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    digests = dict.fromkeys(WORDS, "00" * 32)
    signals = SocketSignals({"host": "127.0.0.1", "port": port, "round": "7:x:3", **digests})
    assert signals.troubles() == ()
    assert is_soon(lambda: signals.is_stopped() or signals.troubles())
    assert "cannot reach the driver" in signals.troubles()[0]
    assert f"127.0.0.1:{port}" in signals.troubles()[0]
    silent = socket.socket()  # a port that is taken and never answers: a connection stays on its way
    silent.bind(("127.0.0.1", 0))
    silent.listen(0)
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(silent.getsockname())
    monkeypatch.setattr(worker_socket, "CONNECT_S_MAX", 0.5)
    waiting = SocketSignals({"host": "127.0.0.1", "port": silent.getsockname()[1], "round": "7:x:3", **digests})
    assert is_soon(lambda: waiting.is_stopped() or waiting.troubles())
    assert "no answer within" in waiting.troubles()[0]
    waiting.close()
    for one in (*fillers, silent):
        one.close()


def test_a_short_round_never_connects(control: SocketControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_socket, "FIRST_S", 3_600.0)
    signals = SocketSignals(control.terms_of(ROUND))
    control.stop(ROUND)
    assert not signals.is_stopped()
    assert signals._socket is None


def test_a_plan_holds_no_word_that_could_signal(control: SocketControl) -> None:
    terms = control.terms_of(ROUND)
    words = {control._word(kind, str(ROUND)) for kind in ("stop", "cut")}
    assert {bytes.fromhex(terms[kind]) for kind in ("stop", "cut")} == {hashlib.sha256(word).digest() for word in words}
    assert not any(word.hex() in json.dumps(terms) for word in words)
    assert control._secret.hex() not in json.dumps(terms)
    with closing(SocketControl(LOOPBACK)) as other:
        assert other.terms_of(ROUND)["stop"] != terms["stop"], "another job's words are others"


def _connected(control: SocketControl, said: bytes) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", control.terms_of(ROUND)["port"]), timeout=SOON_S)
    if said:
        made.sendall(said)
    return made


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_are_bounded(control: SocketControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_socket, "CONNECTIONS_MAX", 2)
    held = [_connected(control, b"7:x:3\n") for _ in range(2)]
    assert is_soon(lambda: len(control._names) == 2)
    assert _is_closed(_connected(control, b"")), "the third"
    held.pop().close()
    assert is_soon(lambda: len(control._names) == 1)
    late = _connected(control, f"{ROUND}\n".encode())
    control.stop(ROUND)
    assert late.recv(32) == control._word("stop", str(ROUND)), "there is room again"


def test_what_names_no_round_is_closed(control: SocketControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_socket, "NAME_S_MAX", 0.1)
    assert _is_closed(_connected(control, b"x" * 2_000))
    assert _is_closed(_connected(control, b"")), "it says nothing"
    named = _connected(control, b"7:x:3\n")
    time.sleep(1.5)
    named.sendall(b"more")
    assert _is_closed(named)
    assert is_soon(lambda: not control._names and not control._listeners)


def test_signals_that_are_remembered_are_bounded(control: SocketControl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_socket, "ROUNDS_MAX", 3)
    for number in range(10):
        control.stop(RoundId(7, None, number))
    assert list(control._given) == [str(RoundId(7, None, number)) for number in (7, 8, 9)]


def test_an_address_that_is_not_ours_is_refused() -> None:
    with pytest.raises(SetupError, match=r"signals to workers: no port can be opened at 192\.0\.2\.1: .*") as raised:
        SocketControl(DriverAddress("192.0.2.1", "192.0.2.1"))
    assert "spark.driver.bindAddress" in (raised.value.hint or "")
