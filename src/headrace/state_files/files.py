"""The files that make a task's state: how they are named, written, checked and read back on `state_uri`.

A file is an Arrow IPC file (lz4) of the batches that `state.batches` describes. Its name is unique for ever, so that two
attempts at one version never write to one place (protocol.md, "Terms"); it counts only once a commit names it. Which files are
alive is not known here: only the driver, or a group's leader, deletes (protocol.md 20)."""

from __future__ import annotations

import io
import os
import socket
import uuid
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock, local
from typing import IO, Any, NoReturn, cast
from urllib.parse import quote

import pyarrow as pa
import xxhash
from pyarrow import fs

from headrace.environment import DISK_FULL, write_refusal
from headrace.errors import StateError, UnavailableError
from headrace.model.checkpoint import Slots, StateFile, StateFileKind, state_file_name
from headrace.model.tasks import TaskName
from headrace.state_files.batches import SCHEMA, batches_within
from headrace.state_files.durable import make_durable_folder, sync_folder

_IN_MEMORY_BYTES_MAX = 32 * 1024 * 1024  # up to this size a file is read once, checked and parsed from memory
_REMEMBERED_BYTES_MAX = 64 * 1024 * 1024
_KEPT_BYTES_MAX = 256 * 1024  # so large files that were read are kept in memory, where reads are
_CHUNK_BYTES = 4 * 1024 * 1024
_BUFFER_BYTES = 64 * 1024
_THREADS = 8
_PENDING_MAX = 32  # files that are held open until they are durable
_MAKE_ROOM = "make room there, or move the folder to a larger disk and set `state_uri` to it"
_LET_WRITE = "let the user who runs Headrace write there, on each host"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def task_folder_of(application: str, task: TaskName | str) -> str:
    """The folder of a task's files: `<application>/<task, with everything special escaped>`.

    >>> task_folder_of("carriers", "by-carrier/Partition_3-1-4")
    'carriers/by-carrier%2FPartition_3-1-4'
    """
    return f"{application}/{quote(str(task), safe='').replace('~', '%7E')}"


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where new files of a task go. `folder`: the task's; `epoch`: that of the rounds that write there, in a group their grant.
    The names have it: who deletes what no commit names goes by it."""

    folder: str
    epoch: int


class _HashingWriter(io.RawIOBase):
    """A file to write to that counts and hashes what passes; closing it leaves `sink` open."""

    def __init__(self, sink: IO[bytes]) -> None:
        super().__init__()
        self._sink = sink
        self._hash = xxhash.xxh3_64()
        self.bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._hash.update(view)
        self._sink.write(view)
        self.bytes += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def writable(self) -> bool:
        return True

    @property
    def checksum(self) -> str:
        return self._hash.hexdigest()


class StateFiles:
    """The state files under one URI: a plain path, `file:` or anything that pyarrow has a file system for. It remembers the
    batches of what it wrote last (up to 64 MB), so that a delta written in one round is applied to the local store in the next
    without being read back. `keeps_what_is_read`: and those of small files that it has read."""

    def __init__(self, uri: str, in_memory_bytes_max: int | None = None, keeps_what_is_read: bool = False) -> None:
        self.uri = uri
        self._kept_bytes_max = _KEPT_BYTES_MAX if keeps_what_is_read else -1  # of a file
        self._in_memory_bytes_max = _IN_MEMORY_BYTES_MAX if in_memory_bytes_max is None else in_memory_bytes_max
        location = uri if ":" in uri.partition("/")[0] else str(Path(uri).absolute())
        try:
            self._fs, self._root = fs.FileSystem.from_uri(location)
        except (OSError, ImportError, ValueError, pa.ArrowException) as error:
            raise StateError(
                f"state_uri {uri!r} cannot be opened: {error}", "give a folder, or a URI that pyarrow.fs opens: s3://, gs://, hdfs://"
            ) from None
        self._local = isinstance(self._fs, fs.LocalFileSystem)
        self._remembered: OrderedDict[str, tuple[list[pa.RecordBatch], int]] = OrderedDict()  # with their bytes
        self._remembered_bytes = 0
        self._lock = Lock()
        self._here = local()  # of each thread: `syncing`, within `together`

    def write_batches(
        self,
        place: FilePlace,
        kind: StateFileKind,
        version: int,
        batches: Iterable[pa.RecordBatch],
        reaches: str = "",
        covers: Slots | None = None,
    ) -> StateFile:
        """Write a stream of batches as one new file, durable when this returns (but see `together`); see `StateFile` for
        the rest. `UnavailableError` where it cannot be written: the disk is full, say."""
        name = state_file_name(place.folder, version, place.epoch, uuid.uuid4().hex[:12])
        try:
            with self._writing():
                return self._write(StateFile(name, kind, 0, 0, "", version, reaches, covers), batches)
        except BaseException:
            with suppress(OSError):
                self.delete(name)
            raise

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Around what writes state files: an `OSError` is an `UnavailableError` that names the place, and what to do."""
        try:
            yield
        except OSError as error:
            place, found = self._root, write_refusal(error, Path(self._root)) if self._local else str(error)
            if isinstance(error, PermissionError) and error.filename:  # of a task, say, whose folder another user has made
                place = str(Path(error.filename).parent)
            raise UnavailableError(
                f"state_uri {self.uri}: on host {socket.gethostname()} no file can be written in {place}: {found}",
                f"{_MAKE_ROOM if error.errno in DISK_FULL else _LET_WRITE}; nothing of the round was committed, and a restart "
                "resumes from the last commit",
            ) from error

    def _write(self, file: StateFile, batches: Iterable[pa.RecordBatch]) -> StateFile:
        """Write `batches` under the name of `file`; it is given back with its size, entries and checksum."""
        name, entries, size, kept = file.name, 0, 0, []
        with self._create(name) as sink:
            writer = _HashingWriter(sink)
            # Arrow writes in many small pieces: gathered, they are hashed and handed on by one call.
            with (
                pa.BufferedOutputStream(pa.PythonFile(writer, mode="w"), _BUFFER_BYTES) as gathered,
                pa.ipc.new_file(gathered, SCHEMA, options=_OPTIONS) as arrow,
            ):
                for batch in batches:
                    arrow.write_batch(batch)
                    entries += batch.num_rows
                    size += batch.nbytes
                    if size <= _REMEMBERED_BYTES_MAX:
                        kept.append(batch)
            sink.flush()
            if self._local:
                self._sync(sink.fileno(), self._path(name).rpartition("/")[0])
        if size <= _REMEMBERED_BYTES_MAX:
            self._remember(name, kept, size)
        return replace(file, bytes=writer.bytes, entries=entries, checksum=writer.checksum)

    @contextmanager
    def together(self) -> Iterator[None]:
        """What this thread writes within is durable when the context is left without an error, not before: one wait instead of
        many. `UnavailableError` where it does not get there."""
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_THREADS, "headrace-sync") as pool:  # of this context: threads do not survive a fork
            self._here.syncing = pool, pending
            try:
                yield
            finally:
                self._here.syncing = None
        with self._writing():
            for one in pending:
                one.result()

    def _sync(self, descriptor: int, folder: str) -> None:
        """Make the file of `descriptor` durable, and its name in `folder`; within `together` the descriptor may be closed at
        once."""
        syncing: tuple[ThreadPoolExecutor, deque[Future[None]]] | None = getattr(self._here, "syncing", None)
        if syncing is None:
            os.fsync(descriptor)
            sync_folder(folder)
            return
        pool, pending = syncing
        while len(pending) >= _PENDING_MAX:
            pending.popleft().result()
        pending.append(pool.submit(_sync, os.dup(descriptor), folder))

    def _create(self, name: str) -> IO[bytes]:
        path = self._path(name)
        if not self._local:
            return cast(IO[bytes], self._opened(path))
        with suppress(FileNotFoundError):
            return open(path, "xb")
        make_durable_folder(Path(path).parent)
        return open(path, "xb")

    def _remember(self, name: str, batches: list[pa.RecordBatch], size: int) -> None:
        with self._lock:
            _, replaced = self._remembered.pop(name, (None, 0))
            self._remembered[name] = batches, size
            self._remembered_bytes += size - replaced  # not summed up: there may be thousands
            while self._remembered_bytes > _REMEMBERED_BYTES_MAX:
                _, (_, dropped) = self._remembered.popitem(last=False)
                self._remembered_bytes -= dropped

    def batches(self, file: StateFile) -> Iterator[pa.RecordBatch]:
        """The batches of `file`, in order, of its `slots` only; size and checksum are checked before the first one is given. A
        large file is read twice, once for its checksum, and never held in memory. `StateError` naming it if it is missing or
        damaged, `UnavailableError` if the file system refuses to read it, for now."""
        return (batch for _, _, batch in self.numbered_batches(file))

    def numbered_batches(self, file: StateFile, start: int = 0) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """The same from batch `start` on: the number of each in the file, how many the file has, and the batch. Of a large file
        the checksum is checked where all of it is read: a later start is of a reader that has done so before."""
        for number, count, batch in self._all_batches(file, start):
            if file.slots is None:
                yield number, count, batch
            else:
                yield from ((number, count, part) for part in batches_within([batch], file.slots, file.whole))

    def remembers(self, file: StateFile) -> bool:
        """Whether the batches of `file` are in memory, and nothing has to be read."""
        with self._lock:
            return file.name in self._remembered

    def _all_batches(self, file: StateFile, start: int) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        with self._lock:
            remembered = self._remembered.get(file.name)
        if remembered is not None:
            batches = remembered[0]
            yield from ((number, len(batches), batches[number]) for number in range(start, len(batches)))
            return
        kept: list[pa.RecordBatch] = []
        try:
            source = self._checked_source(file, is_checked=start > 0)
            with source, pa.ipc.open_file(source) as reader:
                count = reader.num_record_batches
                for index in range(start, count):
                    batch = reader.get_batch(index)
                    if file.bytes <= self._kept_bytes_max:
                        kept.append(batch)
                    if batch.num_rows:
                        yield index, count, batch
            if kept and len(kept) == count:
                self._remember(file.name, kept, sum(each.nbytes for each in kept))
        except FileNotFoundError:
            self._refuse(file, f"expected {file.bytes} bytes, found no such file")
        except pa.ArrowInvalid as error:
            self._refuse(file, f"it cannot be read: {error}")
        except OSError as error:
            raise UnavailableError(
                f"state_uri {self.uri}: on host {socket.gethostname()} state file {file.name} cannot be read: {error}",
                "see whether that host reaches it, and let the user who runs Headrace read there; no state is lost",
            ) from error

    def _checked_source(self, file: StateFile, *, is_checked: bool) -> pa.NativeFile:
        checksum, size = xxhash.xxh3_64(), 0
        if is_checked and file.bytes > self._in_memory_bytes_max:
            return self._fs.open_input_file(self._path(file.name))
        chunks = []
        with self._fs.open_input_stream(self._path(file.name)) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                checksum.update(chunk)
                size += len(chunk)
                if file.bytes <= self._in_memory_bytes_max and size <= file.bytes:
                    chunks.append(chunk)
        if size != file.bytes:
            self._refuse(file, f"expected {file.bytes} bytes, found {size}")
        if checksum.hexdigest() != file.checksum:
            self._refuse(file, f"expected checksum {file.checksum}, found {checksum.hexdigest()}")
        if file.bytes <= self._in_memory_bytes_max:
            return pa.BufferReader(b"".join(chunks))
        return self._fs.open_input_file(self._path(file.name))

    def _refuse(self, file: StateFile, found: str) -> NoReturn:
        raise StateError(
            f"state file {file.name} ({file.kind} of version {file.version}) under {self.uri}: {found}",
            "set state_uri back if it was changed, else restore the file from a copy: the state cannot be rebuilt without it, "
            "and is never treated as empty",
        )

    def delete(self, name: str) -> None:
        """Delete the file; no error if it is missing."""
        with self._lock:
            _, size = self._remembered.pop(name, (None, 0))
            self._remembered_bytes -= size
        with suppress(FileNotFoundError):
            self._fs.delete_file(self._path(name))

    def list(self, application: str) -> list[str]:
        selector = fs.FileSelector(self._path(application), recursive=True, allow_not_found=True)
        prefix = len(self._root.rstrip("/")) + 1
        infos = self._fs.get_file_info(selector)
        return sorted(info.path[prefix:] for info in infos if info.type == fs.FileType.File)

    def write_note(self, name: str, text: str) -> None:
        """Write a small file that no state rests on, in place of the one that is there. `OSError` where that cannot be."""
        with self._opened(self._path(name)) as sink:
            sink.write(text.encode())

    def mark(self, name: str, text: str) -> None:
        """Write a small file that counts by its being there, durable when this returns; one that is there stays. `OSError`."""
        with suppress(FileExistsError), self._create(name) as sink:
            sink.write(text.encode())
            sink.flush()
            if self._local:
                self._sync(sink.fileno(), self._path(name).rpartition("/")[0])

    def note(self, name: str) -> str:
        """What a small file says; empty where there is none. `OSError` where it cannot be read."""
        try:
            with self._fs.open_input_stream(self._path(name)) as source:
                return bytes(source.read()).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def _opened(self, path: str) -> Any:
        """A file to write, in a folder that is made where it is missing: not every file system does that."""
        try:
            return self._fs.open_output_stream(path)
        except OSError:
            self._fs.create_dir(path.rpartition("/")[0], recursive=True)
            return self._fs.open_output_stream(path)

    def local_path(self, name: str) -> Path | None:
        """Where the file lies on this machine; None for a remote file system."""
        return Path(self._path(name)) if self._local else None

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _sync(descriptor: int, folder: str) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_folder(folder)
