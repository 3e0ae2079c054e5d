"""`GlobalTable`: a table that every task has whole, for streams to be joined with by any key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dsl.stream_cursor import StreamCursor

if TYPE_CHECKING:
    from headrace.dsl.app_declaration import AppDeclaration


class GlobalTable:
    """A table read from a stream by every task, all partitions of it: `stream.join(table, joiner, key=...)`.

    A stream is joined with it where it is, however either is partitioned. At equal times the table's records come first,
    and within a round both are taken in the order of time; the table is not read ahead of the stream.
    """

    def __init__(self, app: AppDeclaration, flow: StreamCursor) -> None:
        self.app = app
        self.flow = flow

    if not TYPE_CHECKING:  # a type checker would take it to mean that any name is there

        def __getattr__(self, name: str) -> object:
            raise AttributeError(
                f"a global table has no {name!r}: every task has all of it, and would give its updates once each; join a "
                "stream with it, or read the stream by app.table()",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        return f"<GlobalTable {self.flow.node!r} of {self.app.name!r}>"
