"""The names that an application has on a broker: topics, groups, transactional ids; and the keys in its metadata topic.

Every prefix ends in a separator, so that rights on those of `flight` do not cover `flight-delays`.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote

from headrace.codec.job_records import NAMESPACES
from headrace.errors import StorageError

# Namespaces of an application's metadata, on Kafka alone.
JOB, MODELS, LANES, STATUS, PROCESSORS = "job", "job-models", "lanes", "status", "processors"
INTERNAL = "internal-topics"  # the repartition topics that it made, to their `internal_value`
RESET = "reset"  # whether the application is half forgotten
_OWN = NAMESPACES | {JOB, MODELS, LANES, STATUS, PROCESSORS, INTERNAL, RESET}
OF_REQUESTS = "/requests"  # after a namespace
_OF_PIECES = ("/pieces", "/other-pieces")  # after a namespace: of which of two sets of pieces


def metadata_topic(application: str) -> str:
    return f"{application}-metadata"


def checkpoint_key(task: str, job_model: int, exactly_once: bool) -> bytes:
    """The key of a task's checkpoint record. Where no transaction fences an attempt that sleeps past its successor, the version
    of the job model is in it: such a record must not take the place of one that counts (protocol.md 12)."""
    return (task if exactly_once else f"{task}@{job_model}").encode()


def checkpoint_topic(application: str) -> str:
    return f"{application}-checkpoints"


def coordinator_id(application: str) -> str:
    """The coordinator's transactional id."""
    return f"{application}/coordinator"


def coordinator_group(application: str) -> str:
    """The group whose one position is the epoch: a worker reads it in milliseconds."""
    return f"{application}.coordinator"


def dead_letters_id(application: str) -> str:
    """The transactional id of who puts dead letters back: only the last that has taken it can."""
    return f"{application}/dead-letters"


def lane_id(application: str, sub_topology: str, lane: int) -> str:
    """The transactional id of a lane."""
    return f"{application}/{sub_topology}/{lane}"


def group_of(application: str, sub_topology: str, lane: int | None = None) -> str:
    """The group of a sub-topology's positions; with `lane` that of the SSPs which other containers read as well. The last dot
    ends the application's name, which may have some itself: those in a sub-topology's are quoted.

    >>> group_of("flight", "by-carrier"), group_of("flight", "by-carrier", 2)
    ('flight.by-carrier', 'flight.by-carrier/2')
    >>> group_of("flight", "delays.by-carrier"), group_of("flight.delays", "by-carrier")
    ('flight.delays%2Eby-carrier', 'flight.delays.by-carrier')
    """
    group = f"{application}.{sub_topology.replace('.', '%2E')}"
    return group if lane is None else f"{group}/{lane}"


def entry_key(namespace: str, name: str) -> bytes:
    """The key of a named value's record in the metadata topic: `<namespace>/<name>`, both quoted.

    >>> entry_key("startpoints", "a/b")
    b'startpoints/a%2Fb'
    """
    return f"{quote(namespace, safe='')}/{quote(name, safe='')}".encode()


def name_of(key: bytes) -> tuple[str, str]:
    """The namespace and the name in a key of the metadata topic.

    >>> name_of(entry_key("startpoints/requests", "a/b"))
    ('startpoints/requests', 'a/b')
    """
    namespace, _, name = key.decode("utf-8", "replace").partition("/")
    return unquote(namespace), unquote(name)


def internal_value(partitions: int, topic_id: str = "") -> bytes:
    """What is on record of a repartition topic: how many partitions it is made with, and its id, once it is there. Older
    versions wrote no id, and read neither.

    >>> internal_value(4), internal_value(4, "tH3x")
    (b'4', b'4@tH3x')
    """
    return f"{partitions}@{topic_id}".rstrip("@").encode()


def internal_id(value: bytes) -> str:
    """The id of the topic that is on record, empty where that is not known.

    >>> internal_id(b"4@tH3x"), internal_id(b"4")
    ('tH3x', '')
    """
    return value.partition(b"@")[2].decode(errors="replace")


def is_own_key(key: bytes | None) -> bool:
    """Whether a record with this key is of an application's metadata: of any namespace, so that no compaction and no number
    of records in one namespace hides whose a topic is.

    >>> is_own_key(b"job/epoch"), is_own_key(b"job-models%2Fpieces/current%2F0"), is_own_key(b"startpoints%2Frequests/1")
    (True, True, True)
    >>> is_own_key(b"jobs/epoch"), is_own_key(b"job"), is_own_key(b"job/2024/1"), is_own_key(None)
    (False, False, False, False)
    """
    if key is None or entry_key(*name_of(key)) != key:
        return False
    namespace = name_of(key)[0]
    for ending in _OF_PIECES:
        namespace = namespace.removesuffix(ending)
    return namespace in _OWN or namespace.endswith(OF_REQUESTS)


PIECE_BYTES = 500_000  # brokers take records of 1 MB unless they are set otherwise
_SETS = (b"\0", b"\1")  # before the number of pieces, which of two sets they are in; no document and no number begins so


def records_of(
    namespace: str, name: str, value: bytes | None, stored: Mapping[bytes, bytes]
) -> list[tuple[bytes, bytes | None]]:
    """The records (key, value) that make a named value `value`, None to delete it, in the order in which they are to be
    written: where they are not in a transaction, a reader that sees the first of them sees the former value.

    A value of more than `PIECE_BYTES` is in pieces, under keys of their own, and its record says how many there are, and in
    which of two sets: the former value's are in the other one until the record is there. `stored`: what the topic holds.
    """
    pieces: list[bytes] = []
    if value is not None and (len(value) > PIECE_BYTES or value.startswith(_SETS)):
        pieces = [value[start : start + PIECE_BYTES] for start in range(0, len(value), PIECE_BYTES)]
    key = entry_key(namespace, name)
    before = _piece_keys(namespace, name, stored.get(key, b""))
    marker = _SETS[stored.get(key, b"").startswith(_SETS[0])]
    own = marker + b"%d" % len(pieces) if pieces else value
    keys = _piece_keys(namespace, name, own or b"")
    return [*zip(keys, pieces, strict=True), (key, own), *((one, None) for one in before)]


def _piece_keys(namespace: str, name: str, value: bytes) -> list[bytes]:
    """Of the pieces of the value that has this record; none of one that is whole."""
    if not value.startswith(_SETS):
        return []
    space = _OF_PIECES[not value.startswith(_SETS[0])]
    return [entry_key(namespace + space, f"{name}/{number}") for number in range(int(value[1:]))]


def entries_of(stored: Mapping[bytes, bytes], namespace: str) -> dict[str, bytes]:
    """The values of a namespace, by name, in the order of the names; keys of other forms are somebody else's. `StorageError`
    for a value of which a piece is missing.

    >>> entries_of({b"a/1": b"x", b"b/2": b"y"}, "a")
    {'1': b'x'}
    """
    prefix = f"{quote(namespace, safe='')}/".encode()
    names = {key: unquote(key[len(prefix) :].decode("utf-8", "replace")) for key in stored if key.startswith(prefix)}
    return {name: _whole_value(stored, key, namespace, name) for key, name in sorted(names.items(), key=lambda item: item[1])}


def _whole_value(stored: Mapping[bytes, bytes], key: bytes, namespace: str, name: str) -> bytes:
    pieces = [stored.get(piece) for piece in _piece_keys(namespace, name, stored[key])]
    if None in pieces:
        at = f"piece {pieces.index(None)} of {len(pieces)}"
        raise StorageError(f"{namespace} {name!r}: {at} is missing", "restore that topic")
    return b"".join(piece for piece in pieces if piece is not None) if pieces else stored[key]
