"""Job models on the tree: in chunks, as a node takes less than they may have; whether they are whole is seen when they are
read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.codec.documents import decode, encode
from headrace.coordination import NODE_BYTES_MAX, Create, Tree, TreeNode
from headrace.core.group.state import ModelOrigin
from headrace.errors import StorageError
from headrace.group.layout import GroupPaths

_HINT = "the leader makes another when a processor joins or leaves; the job model that counts is in Kafka"


@dataclass(frozen=True, slots=True)
class ModelMeta:
    """What is stored beside the chunks of a job model: their number, and length and checksum (BLAKE2b, 16 bytes in hexadecimal)
    of it as a whole and of each chunk."""

    count: int
    length: int
    checksum: str
    chunk_checksums: tuple[str, ...]
    code: str
    run_id: str
    changed: tuple[str, ...] = ()


def meta_of(model: bytes, origin: ModelOrigin) -> ModelMeta:
    sums = tuple(map(_checksum, _chunks(model)))
    return ModelMeta(len(sums), len(model), _checksum(model), sums, origin.code, origin.run_id, origin.changed)


def chunk_nodes(paths: GroupPaths, version: int, model: bytes) -> Iterator[Create]:
    """The nodes of its chunks; each is for a commit of its own."""
    for number, chunk in enumerate(_chunks(model)):
        yield Create(paths.chunk(version, number), chunk)


def meta_node(paths: GroupPaths, version: int, model: bytes, origin: ModelOrigin) -> Create:
    """The node that is created last: without it a job model is torn."""
    return Create(paths.meta(version), encode(meta_of(model, origin)))


def read_meta(node: TreeNode | None, path: str) -> ModelMeta:
    """`StorageError` if it is missing or cannot be read."""
    if node is None:
        raise StorageError(f"{path} is missing: the job model was not written to its end, or was deleted", _HINT)
    return decode(ModelMeta, node.data, path)


def read_job_model(tree: Tree, paths: GroupPaths, version: int) -> bytes:
    """The job model of this version. `StorageError` naming the chunk that is missing, torn or altered."""
    meta = read_meta(tree.read(paths.meta(version)), paths.meta(version))
    names = [paths.chunk(version, number) for number in range(meta.count)]
    chunks: list[bytes] = []
    for path, node, checksum in zip(names, tree.read_all(names), meta.chunk_checksums, strict=True):
        if node is None:
            raise StorageError(f"{path} is missing: chunk {len(chunks)} of {meta.count} of a job model", _HINT)
        if _checksum(node.data) != checksum:
            raise StorageError(
                f"{path} was altered: {len(node.data):,} bytes with checksum {_checksum(node.data)}, expected {checksum}", _HINT
            )
        chunks.append(node.data)
    model = b"".join(chunks)
    if len(model) != meta.length or _checksum(model) != meta.checksum:
        raise StorageError(
            f"{paths.meta(version)} was altered: the chunks have {len(model):,} bytes with checksum {_checksum(model)}, "
            f"expected {meta.length:,} with {meta.checksum}",
            _HINT,
        )
    return model


def _chunks(model: bytes) -> Iterable[bytes]:
    return [model[start : start + NODE_BYTES_MAX] for start in range(0, len(model), NODE_BYTES_MAX)]


def _checksum(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
