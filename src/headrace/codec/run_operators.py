"""Where the operators of the last run are on record, and reading them."""

from __future__ import annotations

from headrace.codec.operators import decode_operators
from headrace.core.topology.operator_changes import RunOperator
from headrace.ports import MetadataStore

OPERATORS = "operators"  # namespace, and its only key: the job's operators; written with the job model


def stored_operators(metadata: MetadataStore) -> tuple[RunOperator, ...] | None:
    """The operators of the job as it last ran; None where none are on record."""
    data = metadata.get(OPERATORS, OPERATORS)
    return None if data is None else decode_operators(data)
