"""Running a user's `ValueTransformer`: a `Processor` of a table, that gives each update another value and forwards nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

from headrace.errors import TopologyError
from headrace.model.table_operators import TransformValues
from headrace.worker.operators.base import FAILED, values_field
from headrace.worker.operators.processing.process import ProcessOperator, ProcessorContext
from headrace.worker.rows import Rows


class TransformerContext(ProcessorContext):
    def forward(self, *given: Any, **options: Any) -> NoReturn:
        raise TopologyError(
            f"{self.operator.text}: forward in a transformer, which gives the value of its key alone",
            'return the value; to send other records, write table.to_stream(emit="each").process(...)',
        )


class TransformValuesOperator(ProcessOperator):
    node: TransformValues

    def new_context(self) -> ProcessorContext:
        return TransformerContext(self)

    def push(self, rows: Rows) -> None:
        rows = self.without(self.decoded(rows), rows.key.bytes()[1])
        if not len(rows):
            return
        results = self.worked(self.ready().transform, rows)
        if failed := [at for at, result in enumerate(results) if result is FAILED]:
            rows, results = rows.without(failed), [result for result in results if result is not FAILED]
        self._release()  # what it has counted
        self.forward(replace(rows, value=values_field(self.node.value, results)))
