"""How the records of a test are encoded, and decoded: as the application does."""

from __future__ import annotations

from typing import Any

from headrace.errors import HeadraceError, SerdeError
from headrace.model.serde import Serde
from headrace.model.topology import Repartition, Sink, Topology


def serdes_of(stream: str, topology: Topology, dead_letter_stream: str | None) -> tuple[Serde | None, Serde | None]:
    """Those of what writes the stream: a sink or a repartition, else its source, else a sink that chooses its stream."""
    writers = [n for n in topology.nodes if isinstance(n, (Sink, Repartition)) and n.stream == stream]
    if writers:
        return writers[0].key, writers[0].value
    for source in topology.sources:
        if source.stream == stream:
            return source.key, source.value
    if stream == dead_letter_stream:
        return None, None
    choosing = [n for n in topology.nodes if isinstance(n, Sink) and not isinstance(n.stream, str)]
    return (choosing[0].key, choosing[0].value) if choosing else (None, None)


def encoded(stream: str, part: str, serde: Serde | None, value: Any) -> bytes | None:
    if value is None:
        return None
    form = "bytes" if serde is None else serde.form
    try:
        data: bytes = value if serde is None else serde.encode(value)
        return data
    except Exception as error:  # a serde of the user's may raise anything
        message = error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
        raise SerdeError(
            f"send: the {part} of a record for stream {stream!r} does not encode as `{form}`: {message}",
            "give what the application reads there, or bytes with raw=True",
        ) from error
