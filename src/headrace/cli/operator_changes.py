"""What the pages of `headrace ui` do to an application, each after a look at what it would do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headrace.cli.dead_letters import opened_letters
from headrace.cli.elasticity import opened_elasticity, scale_document
from headrace.cli.expand import carried_out, checked_readers, expansion_document, running_of
from headrace.cli.operator_letters import OperatorLetters
from headrace.cli.previews import described
from headrace.cli.startpoints import opened_startpoints
from headrace.cli.targets import Target
from headrace.client.kept_system import KeptSystem
from headrace.client.letters import described as described_letter
from headrace.client.startpoint_previews import startpoint_of
from headrace.client.stopping import Stopping
from headrace.errors import ConfigError
from headrace.model.durations import time_ago_us, time_text
from headrace.model.whole_numbers import whole_number_of

LOG = logging.getLogger("headrace.http")


class OperatorChanges:
    """Those of one application. Any thread may ask. `stop`: ends the job where it runs in this process."""

    def __init__(
        self, target: Target, system: KeptSystem, letters: OperatorLetters, stop: Callable[[], None] | None
    ) -> None:
        self._target, self._system, self._letters, self._stop = target, system, letters, stop

    def change(self, what: str, given: Mapping[str, Any], *, is_wanted: bool) -> dict[str, Any]:
        """Look at a change, or make it where that `is_wanted`: `startpoint`, `elasticity`, `expansion`, `dead-letters`
        or `stop`. For what cannot be done the error that says why."""
        changes = {
            "startpoint": self._startpoint,
            "elasticity": self._elasticity,
            "expansion": self._expansion,
            "stop": self._stopped,
        }
        if self._target.config.dead_letter_stream is not None:
            changes["dead-letters"] = self._dead_letters
        if what not in changes:
            raise ConfigError(f"there is no change {what!r}", f"there are: {', '.join(changes)}")
        return changes[what](given, is_wanted)

    def _startpoint(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        now_us = time.time_ns() // 1000
        position, partition = given.get("position", ""), _number(given, "partition")
        if isinstance(position, str) and position.endswith(" ago"):
            position = time_text(time_ago_us(position.removesuffix(" ago"), now_us))
        if isinstance(position, str) and (offset := whole_number_of(position)) is not None:
            position = offset
        with self._system.opened() as system, opened_startpoints(self._target, system) as points:
            preview = points.preview(
                _text(given, "stream"),
                startpoint_of(position, now_us),
                partition=partition,
                state=_text(given, "state", "keep"),
            )
            return described(preview, points.write(preview) if is_wanted else ())

    def _elasticity(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        factor, containers = (_number(given, name) for name in ("factor", "containers"))
        sub_topology = _text(given, "sub_topology", "") or None
        with opened_elasticity(self._target) as scales:
            preview = scales.preview(factor, containers=containers, sub_topology=sub_topology, reason="headrace ui")
            if preview.refusal is not None:
                raise ConfigError(preview.refusal)
            return scale_document(preview, scales.write(preview) if is_wanted else None)

    def _expansion(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        partitions = _number(given, "partitions")
        if partitions is None:
            raise ConfigError("partitions: expected a whole number")
        with self._system.opened() as system:
            stream = system.describe_stream(_text(given, "stream"))
            readers = checked_readers(system, stream, partitions)
            running = running_of(system, readers)
            if is_wanted:
                carried_out(system, stream, partitions, readers, LOG.warning)
            return expansion_document(stream, replace(stream, partitions=partitions), readers, running)

    def _dead_letters(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        """`ids`: with spaces between them; `action`: put them back (`retry`), or `discard`."""
        ids, action = _text(given, "ids").split(), _text(given, "action", "retry")
        if action not in ("retry", "discard") or not ids:
            raise ConfigError("expected ids, and retry or discard")
        chosen = self._letters.chosen(ids, action)
        if is_wanted:
            with self._system.opened() as system, opened_letters(self._target, system) as letters:
                letters.retry(chosen) if action == "retry" else letters.discard(chosen)
        return {"action": action, "letters": [described_letter(one) for one in chosen]}

    def _stopped(self, given: Mapping[str, Any], is_wanted: bool) -> dict[str, Any]:
        """The job of this process at once; that of another by a request."""
        found = {"application": self._target.application, "stopped": is_wanted}
        if self._stop is not None:
            if is_wanted:
                threading.Thread(target=self._stop, name="headrace-stop", daemon=True).start()
            return found
        with Stopping(self._target.application, self._target.config) as stopping:
            preview = stopping.preview()
            if is_wanted:
                stopping.request(preview)
        return found | {"host": preview.host, "pid": preview.pid}


def _text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = given.get(name, default)
    if not isinstance(found, str) or len(found) > 1_000:
        raise ConfigError(f"{name}: expected a text")
    return found


def _number(given: Mapping[str, Any], name: str) -> int | None:
    found = given.get(name)
    if found is not None and (isinstance(found, bool) or not isinstance(found, int)):
        raise ConfigError(f"{name}: expected a whole number")
    return found
