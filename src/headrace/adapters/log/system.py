"""`LogSystem`: the embedded log as one system, put together from its catalog, its data files and its jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.adapters.common.offset_resolver import StreamConsumer, check_range, checked_bounds
from headrace.adapters.log import stream_tables
from headrace.adapters.log.catalog import Catalog, open_catalog
from headrace.adapters.log.chunks import Chunk, terms_of
from headrace.adapters.log.job_store import LogJobStore
from headrace.adapters.log.metadata import LogMetadataStore
from headrace.core.rounds.offset_ranges import Extent, OffsetRange
from headrace.errors import ConfigError
from headrace.model.names import checked_name
from headrace.model.serde import of_stream
from headrace.model.streams import SSP, StreamDescription
from headrace.ports.processor_store import SystemPayload
from headrace.ports.system import System
from headrace.record import Record

_URL_SHOWN_MAX = 100

# Reading and writing records needs pyarrow, which takes longer to import than most commands to answer: such imports
# are inside the methods that need them.


def open_system(url: str, *, create: bool = True) -> LogSystem:
    """Open the embedded log that `url` names, such as `log:./data`; make it if there is none and `create`. `ConfigError` for
    another kind of URL, `SetupError` for a folder that cannot be written (or holds no log), `StorageError` for a catalog
    that is damaged, of a newer Headrace, missing beside data files, or older than these. Close it, or use it as a context
    manager."""
    return LogSystem(open_catalog(root_of(url), create=create))


def root_of(url: str) -> Path:
    """The folder that `url` names; `ConfigError` for another kind of URL, and for what can name none on this machine."""
    scheme, colon, folder = url.partition(":")
    if scheme != "log" or not colon or not folder:
        raise ConfigError(f"system {url!r}: expected log: and a folder", "such as log:./data")
    if folder.startswith("//"):
        raise ConfigError(f"system {url!r}: expected log: and a folder, found a URL", f"write log:{folder[2:] or './data'}")
    shown = repr(url) if len(url) <= _URL_SHOWN_MAX else f"{url[:_URL_SHOWN_MAX]!r}… ({len(url):,} characters)"
    try:
        root = Path(folder).expanduser().absolute()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # these have messages where it is opened
            root.stat()
        str(root).encode()  # SQLite's names of files are UTF-8
    except RuntimeError:  # so says Python of ~user
        user = folder.partition("/")[0]
        raise ConfigError(f"system {shown}: there is no user {user[1:]!r}", "write the folder's whole path") from None
    except (OSError, ValueError) as error:  # it is too long, goes round in a ring, or has a null in it
        is_no_text = isinstance(error, UnicodeEncodeError)
        reason = "its name is no UTF-8" if is_no_text else getattr(error, "strerror", None) or error
        raise ConfigError(f"system {shown}: this can be no folder: {reason}", "such as log:./data") from None
    return root


class LogSystem(System):
    """The embedded log; `headrace.ports.system.System` has the contracts. `root` is the log's folder."""

    name = "log"

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.root = catalog.root

    def close(self) -> None:
        self._catalog.close()

    def processor_store(self, application: str, exactly_once: bool = True) -> LogJobStore:
        return self.job_store(application, exactly_once)

    def job_store(self, application: str, exactly_once: bool = True) -> LogJobStore:
        """Less than exactly once would be no cheaper here."""
        return LogJobStore(self._catalog, checked_name("application", application))

    def consumer(self) -> StreamConsumer:
        return StreamConsumer(self)

    def metadata_store(self, application: str) -> LogMetadataStore:
        return LogMetadataStore(self._catalog, checked_name("application", application))

    def applications(self) -> list[str]:
        with self._catalog.read() as db:
            rows = db.execute("SELECT DISTINCT application FROM job_models ORDER BY application").fetchall()
        return [name for (name,) in rows]

    def has_run(self, application: str) -> bool:
        with self._catalog.read() as db:
            asked = "SELECT 1 FROM job_models WHERE application = ? LIMIT 1"
            return db.execute(asked, (checked_name("application", application),)).fetchone() is not None

    # --- streams ----------------------------------------------------------------------------------------------------

    def create_stream(self, name: str, partitions: int, *, internal_of: str | None = None) -> StreamDescription:
        with self._catalog.write() as db:
            return stream_tables.create_stream(db, name, partitions, internal_of)

    def expand_stream(self, name: str, partitions: int) -> StreamDescription:
        with self._catalog.write() as db:
            return stream_tables.expand_stream(db, name, partitions)

    def streams(self, of: str | None = None) -> list[StreamDescription]:
        with self._catalog.read() as db:
            return stream_tables.all_streams(db)

    def describe_stream(self, name: str) -> StreamDescription:
        with self._catalog.read() as db:
            return stream_tables.stream_row(db, name).description

    def delete_stream(self, name: str) -> None:
        with self._catalog.write() as db:
            stream_tables.delete_stream(db, name)

    # --- records ----------------------------------------------------------------------------------------------------

    def produce(self, stream: str, records: Iterable[Any], key: Any = None, value: Any = None) -> int:
        from headrace.adapters.log import records as log_records

        keys, values = of_stream(key, stream, "key"), of_stream(value, stream, "value")
        return log_records.produce(self._catalog, stream, records, keys, values)

    def put_back(
        self, application: str, records: Mapping[str, Sequence[Record]], marks: Mapping[str, bytes | None]
    ) -> None:
        from headrace.adapters.log import records as log_records

        log_records.put_back(self._catalog, checked_name("application", application), records, marks)

    def consume(
        self, stream: str, key: Any = None, value: Any = None, partitions: Sequence[int] | None = None, start: Any = None
    ) -> Iterator[Record]:
        from headrace.adapters.log import records as log_records

        return log_records.consume(self._catalog, stream, key, value, partitions, start)

    def beginning_offsets(self, stream: str) -> dict[int, int]:
        return {partition: first for partition, (first, _) in self._bounds(stream).items()}

    def end_offsets(self, stream: str) -> dict[int, int]:
        return {partition: end for partition, (_, end) in self._bounds(stream).items()}

    def partition_counts(self, streams: Collection[str]) -> dict[str, int]:
        with self._catalog.read() as db:
            found = {stream.name: stream.partitions for stream in stream_tables.all_streams(db)}
        return {name: found[name] for name in sorted(streams) if name in found}

    def offsets_for_time(self, stream: str, timestamp_us: int) -> dict[int, int]:
        from headrace.adapters.log import records as log_records

        return log_records.offsets_for_time(self._catalog, stream, timestamp_us)

    def chunks(self, stream: str, partition: int, start: int, end: int) -> list[Chunk]:
        """The committed chunks that hold start <= offset < end, whole, in order; to be read by `data_files.read_range`.
        `OffsetOutOfRangeError` if the stream does not hold all of them (any more)."""
        with self._catalog.read() as db:
            row = stream_tables.stream_row(db, stream)
            check_range(stream, partition, checked_bounds(stream, stream_tables.bounds_of(db, row), partition), start, end)
            return stream_tables.chunks_of(db, row, partition, start, end)

    def range_terms(self, piece: OffsetRange) -> SystemPayload:
        return terms_of(self.chunks(piece.ssp.stream, piece.ssp.partition, piece.start, piece.end))

    def extents(self, pieces: Sequence[OffsetRange]) -> dict[SSP, list[Extent]]:
        with self._catalog.read() as db:
            rows = {stream: stream_tables.stream_row(db, stream) for stream in sorted({p.ssp.stream for p in pieces})}
            return {
                piece.ssp: [
                    Extent(base, base + records, length)
                    for base, records, length in stream_tables.lengths_of(
                        db, rows[piece.ssp.stream], piece.ssp.partition, piece.start, piece.end
                    )
                ]
                for piece in pieces
            }

    # --- room -------------------------------------------------------------------------------------------------------

    def purge(self, stream: str, offsets: Mapping[int, int]) -> None:
        """Forget the records before `offsets` (partition to offset); `OffsetOutOfRangeError` for one beyond the end. Garbage
        collection deletes the files."""
        with self._catalog.write() as db:
            stream_tables.purge(db, stream_tables.stream_row(db, stream), offsets)

    def collect_garbage(self, now_us: int | None = None) -> tuple[str, ...]:
        from headrace.adapters.log.garbage import collect_garbage

        return collect_garbage(self._catalog, now_us)

    def _bounds(self, stream: str) -> dict[int, tuple[int, int]]:
        with self._catalog.read() as db:
            return stream_tables.bounds_of(db, stream_tables.stream_row(db, stream))
