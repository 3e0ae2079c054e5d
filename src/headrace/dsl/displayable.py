"""How a stream or a table shows itself while the topology is written: as text, as a picture, by some of its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.topology.description import text_of
from headrace.core.topology.picture import picture_of
from headrace.core.topology.sub_topologies import ancestors_of
from headrace.dsl.schema_text import schema_text

if TYPE_CHECKING:
    from headrace.dsl.app import AppDeclaration
    from headrace.dsl.preview import Preview
    from headrace.dsl.stream_cursor import Flow
    from headrace.model.topology import Topology


class Looks:
    """What streams and tables have in common: where they are in their application, and how that is looked at."""

    def __init__(self, app: AppDeclaration, flow: Flow) -> None:
        self.app = app
        self.flow = flow

    def preview(self, n: int = 20) -> Preview:
        """The result of the first `n` records of each input (of tables: all), as a table; nothing is committed."""
        return self.app.preview_of(self, n)

    def print_schema(self) -> None:
        """Print what is known of key and value, as `DataFrame.printSchema` would."""
        print(schema_text(self.flow.key, self.flow.value))

    def describe(self) -> str:
        """How this stream or table is computed, as text."""
        return text_of(self._way_here())

    def _way_here(self) -> Topology:
        return ancestors_of(self.app.builder.topology(), self.flow.node)

    def _repr_html_(self) -> str:
        return picture_of(self._way_here())

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.flow.node!r} of {self.app.name!r}>"
