"""What is stored of dead letters that are dealt with: one is never dealt with twice."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.errors import FencedError


def refuse_marked(marks: Mapping[str, bytes | None], stored: Collection[str], application: str) -> None:
    """`FencedError` where one of the letters that are to be marked has a mark."""
    done = sorted(id_ for id_, mark in marks.items() if mark is not None and id_ in stored)
    if done:
        raise FencedError(
            f"application {application!r}: dead letter {done[0]} was dealt with meanwhile by somebody else",
            "list them again: each is put back, or discarded, once",
        )
