"""Which state files were never committed, and never will be: rounds have left them that were killed (protocol.md 20)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from headrace.model.checkpoint import epoch_of_file


def orphans(found: Iterable[str], named: Collection[str], in_force: Collection[int] = ()) -> tuple[str, ...]:
    """Those of the files `found` that no commit of now names and none to come: `named` are all that checkpoints and kept
    versions name, `in_force` the numbers of the grants under which a commit may still come; empty where no round runs. Of a
    file whose grant is not known any of these may be it.

    >>> files = ["a/1-7-00.arrow", "a/2-7-01.arrow", "a/2-8-02.arrow", "a/2-03.arrow"]
    >>> orphans(files, {"a/1-7-00.arrow"}, {8})
    ('a/2-7-01.arrow',)
    >>> orphans(files, {"a/1-7-00.arrow"})
    ('a/2-7-01.arrow', 'a/2-8-02.arrow', 'a/2-03.arrow')
    """
    unnamed = (name for name in found if name not in named)
    return tuple(name for name in unnamed if not in_force or epoch_of_file(name) not in {None, *in_force})
