"""The dead letters that the pages of `headrace ui` show: the newest open ones, and how many there are."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli.dead_letters import document, filter_of, opened_letters
from headrace.cli.targets import Target
from headrace.client.kept_system import KeptSystem
from headrace.client.letter_index import FoundLetters, LetterIndex
from headrace.client.letters import DeadLetter
from headrace.core.file_paths import document_without_paths, without_paths
from headrace.errors import ConfigError, HeadraceError

if TYPE_CHECKING:
    from headrace.client.dead_letters import DeadLetters

FILTERS = ("reason", "operator", "stream", "since", "until")
_OF_THE_RECORD = ("key", "value", "headers")  # they are the user's, and shown as they are


class OperatorLetters:
    """Those of one application. Any thread may ask."""

    def __init__(self, target: Target, system: KeptSystem) -> None:
        self._target, self._system = target, system
        self._index = LetterIndex()
        self._lock = threading.Lock()
        self.streams: frozenset[str] = frozenset()  # where the records of letters came from that were looked at

    def shown(self, given: Mapping[str, str], most: int) -> dict[str, Any]:
        """The newest that `given` chooses (by `FILTERS`), at most so many; and how many are open. `ConfigError` for a filter
        that is none."""
        chosen = filter_of(*(given.get(name) for name in FILTERS))
        with self._lock, self._system.opened() as system, opened_letters(self._target, system) as letters:
            self._index.look(letters)
            found = self._index.found(chosen, most)
            self._come_from(found.letters)
            return _document(found, [shown_letter(letters, one) for one in found.letters])

    def shown_or_why_not(self, most: int) -> dict[str, Any]:
        """The newest; with a problem where they cannot be read: what else is shown does not depend on it."""
        if self._target.config.dead_letter_stream is None:
            return _document(FoundLetters((), 0, 0), [], _unknown(self._target))
        try:
            return self.shown({}, most)
        except HeadraceError as error:
            return _document(FoundLetters((), 0, 0), [], error.message)

    def chosen(self, ids: list[str], action: str) -> list[DeadLetter]:
        """Letters that are to be put back or discarded; `ConfigError` for one that is not there, or cannot be put back."""
        with self._system.opened() as system, opened_letters(self._target, system) as letters:
            found = [letters.get(id_) for id_ in dict.fromkeys(ids)]
        refused = [one for one in found if one.why_not_retried] if action == "retry" else []
        if refused:
            why = refused[0].why_not_retried
            raise ConfigError(f"dead letter {refused[0].id} cannot be put back: {why}", "leave it out, or correct it")
        self._come_from(found)
        return found

    def _come_from(self, letters: Iterable[DeadLetter]) -> None:
        self.streams |= {one.stream for one in letters}


def shown_letter(letters: DeadLetters, letter: DeadLetter) -> dict[str, Any]:
    """With its key, value and headers as they are; what is said of it without the paths of files."""
    found = document(letters, letter, values=True)
    own = {name: found.pop(name) for name in _OF_THE_RECORD}
    said: dict[str, Any] = document_without_paths(found, [letter.stream])
    return said | {"reason": f"{letter.error_class}: {without_paths(letter.message)}"} | own


def _document(found: FoundLetters, letters: list[dict[str, Any]], problem: str | None = None) -> dict[str, Any]:
    return {
        "open": found.open,
        "matching": found.matching,
        "why_not_whole": found.why_not_whole or None,
        "problem": problem,
        "letters": letters,
    }


def _unknown(target: Target) -> str:
    if target.app is not None:
        return "the application has no dead-letter stream: a record that fails ends the job"
    return "it is not known here which stream they are in: name the application's file, or --set dead_letter_stream=STREAM"
