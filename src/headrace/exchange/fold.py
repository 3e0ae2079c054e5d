"""What a worker and the process that folds large state files for it tell each other, in JSON: `FoldToMake` in a line to the
process, and `FoldRecord` in a file of the task's local folder, for every worker process of this machine."""

from __future__ import annotations

import msgspec

from headrace.model.checkpoint import Slots, StateFile


class FoldRecord(msgspec.Struct, frozen=True):
    """A fold of the files `folded`, under the plan (run and epoch) `plan`: `made`, or why it could not be; neither while it is
    being made."""

    plan: str
    folded: tuple[StateFile, ...]
    made: StateFile | None = None
    error: str = ""


class FoldToMake(msgspec.Struct, frozen=True):
    """See `state.folds.fold_of`. `place`: the absolute path of the record, which has the files;
    `epoch`: that of the rounds that have it made."""

    state_uri: str
    task_folder: str
    epoch: int
    reaches: str
    covers: Slots | None
    is_snapshot: bool
    place: str


encoded_fold = msgspec.json.Encoder().encode
decoded_fold_to_make = msgspec.json.Decoder(FoldToMake).decode
decoded_fold_record = msgspec.json.Decoder(FoldRecord).decode
