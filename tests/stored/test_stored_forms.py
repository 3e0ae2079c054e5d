"""The tests of stored folders would notice a changed form: each change planted here works on a folder of its own, and fails on
the stored one. And what the archives hold: every kind of stored record, and nothing of a machine or of a module."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
import xxhash

import headrace as hr
from headrace.adapters.log import metadata
from headrace.codec import checkpoint_form, documents
from headrace.codec.job_model_form import StoredJobModel, StoredTask
from headrace.core.keys import key_layout
from headrace.core.rewind.consistent_cuts import ConsistentCut, SubTopologyEdges
from headrace.core.rewind.rewinds import Rewind
from headrace.core.topology.operator_changes import RunOperator
from headrace.model.expansion import Expansion, PartitionRecord, SetSSPTaskMapping
from headrace.model.startpoint import StartpointRecord, StartpointRequest
from headrace.serdes import scalars
from headrace.state_files import files as state_files
from headrace.worker import batch_keys
from stored.archives import archive_of, expected_in, files_in, unpacked, versions
from stored.jobs import JOBS
from stored.results import result_of
from stored.test_stored_folders import ALL, NEWEST, SIZE_MAX, check_continued

Patch = pytest.MonkeyPatch
NOTICED = (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, hr.HeadraceError)


# --- planted changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Planted:
    """A change of one stored form, and the job whose folder shows it."""

    job: str
    apply: Callable[[Patch], None]


def _renamed(kind: type, old: str, new: str) -> Callable[[Patch], None]:
    """A field of a stored document has another name."""

    def apply(patch: Patch) -> None:
        patch.setitem(documents._NAMES, kind, documents._NAMES.get(kind, {}) | {old: new})

    return apply


def _renamed_of_checkpoints(old: str, new: str) -> Callable[[Patch], None]:
    stored = checkpoint_form.StoredCheckpoint
    columns = [(one.name, one.type, one.default) for one in msgspec.structs.fields(stored)]
    columns = [column[:2] if column[2] is msgspec.NODEFAULT else column for column in columns]  # type: ignore[misc]
    renamed = msgspec.defstruct(stored.__name__, columns, rename={old: new}, frozen=True, forbid_unknown_fields=True)
    return lambda patch: patch.setattr(checkpoint_form, "StoredCheckpoint", renamed)


def _set(module: Any, name: str, value: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(module, name, value)


def _number_raised(patch: Patch) -> None:
    patch.setattr(documents, "WIRE", 2)


def _times_changed(patch: Patch) -> None:
    patch.setattr(batch_keys, "_TIME_BIAS", np.uint64(1 << 62))
    patch.setattr(key_layout, "_TIME_BIAS", 1 << 62)


def _checksum_changed(patch: Patch) -> None:
    patch.setattr(state_files, "xxhash", types.SimpleNamespace(xxh3_64=xxhash.xxh64))


def _hash_not_reversed(key: bytes) -> bytes:
    return key_layout.key_hash(key).to_bytes(8, "big")


PLANTED: Mapping[str, Planted] = {
    "number of the forms": Planted("sums", _number_raised),
    "checkpoint: positions": Planted("sums", _renamed_of_checkpoints("positions", "offsets")),
    "checkpoint: head": Planted("folds", _renamed_of_checkpoints("head", "state")),
    "job model: stores": Planted("matches", _renamed(StoredJobModel, "stores", "forms")),
    "job model: left": Planted("renamed", _renamed(StoredJobModel, "left", "left_positions")),
    "job model: databases": Planted("renamed", _renamed(StoredJobModel, "databases", "names")),
    "task of a model": Planted("halves", _renamed(StoredTask, "ssps", "partitions")),
    "assignment": Planted("halves", _renamed(SetSSPTaskMapping, "tasks", "readers")),
    "partition counts": Planted("growing", _renamed(PartitionRecord, "expansions", "grown")),
    "expansion": Planted("growing", _renamed(Expansion, "settled", "barrier")),
    "startpoint request": Planted("rewound", _renamed(StartpointRequest, "entries", "asked")),
    "startpoint entry": Planted("rewound", _renamed(documents._Entry, "position_type", "type")),
    "startpoint record": Planted("starts", _renamed(StartpointRecord, "status", "status")),
    "rewind: gaps": Planted("rewound", _renamed(Rewind, "skipped_ranges", "skipped")),
    "cut": Planted("rewound", _renamed(ConsistentCut, "written", "ends")),
    "flows": Planted("growing", _renamed(SubTopologyEdges, "has_state", "stateful")),
    "version of the state": Planted("rewound", _renamed(documents._Version, "left_for", "abandoned_for")),
    "operators": Planted("watch", _renamed(RunOperator, "about", "stream")),
    "times in keys": Planted("hours", _times_changed),
    "layout of keys": Planted("watch", _set(key_layout, "reversed_hash", _hash_not_reversed)),
    "names of namespaces": Planted("rewound", _set(metadata, "_place", lambda application, name: f"{application}:{name}")),
    "checksum of state files": Planted("sums", _checksum_changed),
    "form of a serde": Planted("growing", _set(scalars.Long, "form", "bigint")),
}


@pytest.fixture(autouse=True)
def forms() -> Iterator[None]:
    """A planted name counts also for forms that were worked out before, and no form with one is left."""
    _forget_forms()
    yield
    _forget_forms()


def _forget_forms() -> None:
    documents._document_of.cache_clear()
    documents._form_of.cache_clear()
    for decoded in (documents.decode_checkpoint, documents.decode_version, documents.decode_job_model):
        decoded.cache_clear()


@pytest.mark.parametrize("name", PLANTED)
def test_a_change_of_a_stored_form_is_noticed(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    planted = PLANTED[name]
    job = JOBS[planted.job]
    planted.apply(monkeypatch)
    with pytest.raises(NOTICED):
        check_continued(job, NEWEST, tmp_path / "stored")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_none_to_a_folder_of_its_own(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """So it is the stored form that the test above notices, and not a change that breaks everything."""
    planted = PLANTED[name]
    job, expected = JOBS[planted.job], expected_in(NEWEST, planted.job)
    planted.apply(monkeypatch)
    with job.system(tmp_path) as url:
        job.begin(job, tmp_path, url)
        job.finish(job, tmp_path, url)
        assert json.loads(json.dumps(result_of(job, tmp_path, url, expected))) == expected


# --- what the archives hold ---------------------------------------------------------------------------------------------------

NAMESPACES = frozenset(
    {
        "flows",
        "for_each_round",
        "operators",
        "partition-counts",
        "rewinds",
        "ssp-assignment",
        "startpoints",
        "startpoints/requests",
        "state-cuts",
        "state-versions",
    }
)


def _catalogs(version: str, folder: Path) -> Iterator[tuple[str, sqlite3.Connection]]:
    for name, job in JOBS.items():
        if not job.on_kafka:
            where = unpacked(archive_of(version, name), folder / name)
            with closing(sqlite3.connect(where / "log" / "catalog.sqlite")) as catalog:
                yield name, catalog


def test_the_newest_archives_hold_every_kind_of_record(tmp_path: Path) -> None:
    found: dict[str, set[str]] = defaultdict(set)
    values: dict[str, list[Any]] = defaultdict(list)
    for name, catalog in _catalogs(NEWEST, tmp_path):
        for table in ("streams", "partitions", "chunks", "jobs", "job_models", "checkpoints", "metadata", "log"):
            assert catalog.execute(f"SELECT count(*) FROM {table}").fetchone()[0], f"{name}: {table}"
        for namespace, value in catalog.execute("SELECT namespace, value FROM metadata"):
            found[namespace.partition("/")[2]].add(name)
            values[namespace.partition("/")[2]].append(json.loads(value))
        values["status"] += [json.loads(row[0]) for row in catalog.execute("SELECT status FROM status")]
        values["holder"] += [row[0] for row in catalog.execute("SELECT holder FROM jobs") if row[0]]
        values["model"] += [json.loads(row[0]) for row in catalog.execute("SELECT model FROM job_models")]
        values["checkpoint"] += [json.loads(row[0]) for row in catalog.execute("SELECT checkpoint FROM checkpoints")]
    assert set(found) == NAMESPACES
    assert {one["became"] for one in values["startpoints"]} == {"pending", "applied", "superseded", "deleted"}
    assert any(one["replay"] is not None for one in values["startpoints"])
    assert {one["entry"]["position_type"] for one in values["startpoints"]} == {"SPECIFIC_OFFSET", "BOOTSTRAP"}
    assert {one["set"][0]["state"] for one in values["startpoints/requests"]} == {"rewind"}
    assert any(one["gaps"] for one in values["rewinds"])
    assert any(one["left_for"] for one in values["state-versions"])
    expansions = [one for record in values["partition-counts"] for one in record["expansions"]]
    assert {one["settled"] is None for one in expansions} == {True, False}
    assert [one["is_done"] for one in values["for_each_round"]] == [False]
    assert values["status"]
    assert values["holder"]
    assert any(model.get("left") for model in values["model"])
    assert any(model.get("databases") for model in values["model"])
    dropped = [form for model in values["model"] for form in model["stores"].values() if ":" in form.partition("|")[0]]
    assert dropped
    tasks = {one["task"] for one in values["checkpoint"]}
    assert tasks >= {
        "Partition_0",
        "by-item/SystemStreamPartition_[log,sums-by-item-repartition,0]",
        "even",
        "odd",
        "AllSsps_1",
    }
    assert any(one["event_timer_us"] for one in values["checkpoint"])
    assert any(one["wall_timer_us"] for one in values["checkpoint"])
    assert any(one["spent_startpoints"] for one in values["checkpoint"])
    kinds = {file["kind"] for one in values["checkpoint"] if one["head"] for file in one["head"]["files"]}
    assert kinds == {"snapshot", "delta"}
    assert any(file["reaches"] for one in values["checkpoint"] if one["head"] for file in one["head"]["files"])


# Modules may be moved and renamed: no stored form may name one. The texts of headers begin with `headrace.` too.
_MODULE = re.compile(
    rb"headrace[./](adapters|cli|client|codec|config|core|dsl|driver|exchange|model|runtime|serdes|state|testing|wiring|worker)[./:]"
)
_OF_A_MACHINE = re.compile(
    rb"[\"' =:](/(tmp|home|root|work|usr|var|srv|opt|Users|private)/)|site-packages|\.py\b|stored[./]jobs"
)
_PICKLE = re.compile(rb"\x80[\x04\x05]\x95")


@pytest.mark.parametrize(("version", "name"), [*ALL, *((version, "ledger") for version in versions())])
def test_an_archive_names_no_folder_and_no_module(version: str, name: str) -> None:
    for file, data in files_in(archive_of(version, name)).items():
        for piece in (data, *_decompressed(file, data)):
            for wrong in (_MODULE, _OF_A_MACHINE, _PICKLE):
                assert not (found := wrong.search(piece)), f"{file}: {piece[max(0, found.start() - 60) : found.end() + 60]!r}"


def _decompressed(file: str, data: bytes) -> Iterator[bytes]:
    if not file.startswith("state/"):
        return
    with pa.ipc.open_file(io.BytesIO(data)) as reader:
        for index in range(reader.num_record_batches):
            for row in reader.get_batch(index).to_pylist():
                yield row["db"].encode() + b" " + row["key"] + b" " + (row["value"] or b"")


def test_the_archives_are_small() -> None:
    for version in versions():
        assert sum(path.stat().st_size for path in archive_of(version, "").parent.iterdir()) < SIZE_MAX
