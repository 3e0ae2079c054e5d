"""What becomes of the files of a head before a round appends another one: which are folded now, and which in the background."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.core.keys.compaction import due_folds, fold_start, is_large
from headrace.model.checkpoint import Head


class FoldsInBackground(Protocol):
    """Large folds of one task's files, made in the background. Losing one costs time only."""

    def taken(self, head: Head, held: int) -> Head:
        """`head` with a fold that was made in place of its files; as it is if there is none. The first `held` files stay."""

    def under_way(self, head: Head) -> int:
        """How many files of `head`, the first ones, are not to be folded, as a fold under way is made of some of them."""

    def begin(self, head: Head, start: int) -> None:
        """Begin to fold `head.files[start:]`, if none is under way, and if this process makes none for another task."""


def folded(
    head: Head, held: int, *, all_: bool, background: FoldsInBackground | None, fold: Callable[[Head, int], Head]
) -> Head:
    """`head` with those folds that are due now. `held`: so many files, the first ones, stay as they are; `all_`: a snapshot is
    due anyway. `fold` folds files from an index on. `background`: takes over what is large; None: the round folds all."""
    if background is None or not is_large(head):
        start = 0 if all_ else fold_start(head, held)
        return head if start is None else fold(head, start)
    head = background.taken(head, held)
    under_way = background.under_way(head)
    due = due_folds(head, max(held, under_way), all_=all_ and not under_way)
    if due.background is not None:
        background.begin(head, due.background)
    return head if due.now is None else fold(head, due.now)
