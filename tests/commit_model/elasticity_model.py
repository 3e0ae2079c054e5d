"""The model of a change of the elasticity factor (protocol.md 7, 8, 12, 15, 20, 26): 1 to 2, 2 to 1, and back.

One SSP with two keys; its task, or its two virtual tasks. Users ask for a factor, whenever they like. On the embedded log the
driver commits a round for all; on Kafka each virtual task has a container and a lane of its own, and half a round may be
committed. A container that has all of a round's range takes no part in it. `elasticity_driver` has the steps of drivers,
`elasticity_work` those of containers, `elasticity_values` how a past is re-cut.

How the labels of steps map to the numbered steps of protocol.md, "Steps":

| protocol | step of the model |
|---|---|
| start 2 to 7 | a driver takes an epoch, fences all lanes, reads all that is stored, requests too: one step |
| start 8, 9, scale 4 | what is stored is re-cut to the factor of the newest request, in one transaction; or it waits |
| start 11, scale 5 | requests are removed, one by one in any order; or they are not, where they cannot be reached |
| start 12, log 1 | a round is planned from the lowest position of the siblings |
| scale 1 | a running driver sees a request: it ends its generation, sets a target, or answers it where nothing changes |
| scale 2, 3 | closing rounds, which end where the furthest sibling is; siblings are together, and the generation ends |
| kafka 1 to 7 | an attempt inits its lane, looks, processes up to a cut, writes its state file: one step |
| kafka 8 to 11 | it commits and answers, one step: an answer that is lost is a driver that gives up before |
| log 2 to 8, log 9 to 12 | all containers process, each task cut at any row; the driver checks and commits: two steps |

Local stores are left out: they are caches, which have to fit a head (`log_model`). A fold is a round that writes a snapshot.

**What must hold.** Of each key the outputs are those of its records below the position of its task: each once, in order, with
the right count. Nobody commits for a task of another job model than the one in force. State that a checkpoint or a kept version
names is there, and has the count of each key. A request is answered before it is removed, and the factor is that of the newest
request that was answered, so none is applied again. Job model and checkpoints are of one factor at any time. From every state
there is a schedule in which all requests are answered and all records are processed (`dead_end`): for that closing rounds
have to follow a sibling that is past the target, as an attempt that was believed dead may have committed (`target_follows`).

**State.** A file holds absolute counts; a head names files, each with the range of keys that counts of it. A split and a merge
write nothing. What a driver deletes: after a commit what only its base before has named, kept versions excepted; at its start
what nothing names. It may be stopped just before, and wake at any time.

**Pauses and crashes need no steps**, as in the other models: a process that is never scheduled again is a crashed one. A driver
may be replaced at any time (`takeovers`), also by itself. **Steps that are one here** may be so, as nothing new can come in
between: what commits between the write of an epoch, the fence and the read might as well have committed before; `kafka_model`
has these steps one by one, and shows that their order matters.

**What is dropped** (`elasticity_driver.settled`). An attempt that would find another epoch, job model or base: all that it can
still do is to fence the lane's new owner, whose round then fails, and rounds fail anyway. A driver that was replaced in between
two rounds: what it would plan it might have planned before. One that was replaced and can only find out.

**Redundant at this size.** `aligned_first`: what is judged after the fence keeps the records right, and closing rounds are made
then; but for a second epoch. Without both, records are processed twice. `version_stamp` and `round_stamp`: a job model comes
with an epoch, and the epoch is checked, as in `kafka_model`. On the embedded log `judged_after_fence` is redundant as well, as
only the holder of the epoch commits; `fence_before_read` and `all_lanes_fenced` are of Kafka.

**What was searched** (`test_elasticity.py`; states, depth). The embedded log, two drivers: split 6,738, 19; merge 6,010, 20;
1, 2, 1: 19,175, 23; 2, 1, 2: 21,155, 23. Kafka: split 4,594, 21; merge, retried 7,114, 20; 1, 2, 1: 24,487, 25; 2, 1, 2:
40,491, 28; merge, two drivers, a round given up 52,762, 31. With state, a fold and a kept version: log, split 24,350, 21;
log, 1, 2, 1 with one driver 9,052, 24; Kafka, split 12,634, 21; Kafka, merge 48,182, 27.
"""

from __future__ import annotations

from collections.abc import Iterator

from commit_model.elasticity_driver import driver_steps, requests_of, settled
from commit_model.elasticity_values import (
    KEYS,
    Checkpoint,
    Checkpoints,
    Driver,
    ElasticityBounds,
    ElasticitySafeguards,
    ElasticityState,
    Head,
    Stored,
    Values,
    counts_of,
    files_of,
    keys_of,
    note_of,
    outputs_below,
)
from commit_model.elasticity_work import attempt_steps


class ElasticityModel:
    """A change of factor with `safeguards`, in a world of `bounds`; a `Model` for `explore`."""

    def __init__(self, bounds: ElasticityBounds, safeguards: ElasticitySafeguards | None = None) -> None:
        self.bounds = bounds
        self.safeguards = safeguards or ElasticitySafeguards()
        self._verdicts: dict[object, str | None] = {}

    def initial(self) -> list[ElasticityState]:
        bounds = self.bounds
        factor = len(bounds.begins_at)
        files: list[tuple[str, Values]] = []
        outputs = [()] * len(KEYS)
        checkpoints: list[Checkpoint] = []
        for bucket, position in enumerate(bounds.begins_at):
            keys = keys_of(bucket, factor)
            for key in keys:
                outputs[key] = outputs_below(key, position, has_state=bounds.has_state)
            counts = tuple((key, len(outputs[key])) for key in keys if outputs[key])
            head: Head = ()
            if bounds.has_state and counts:
                head = ((f"0:0/{bucket}", keys),)
                files.append((f"0:0/{bucket}", counts))
            checkpoints.append(Checkpoint(position, head, (0, 0)))
        notes = tuple(note_of(checkpoints[lane], 1) if lane < factor else None for lane in range(len(KEYS)))
        stored = Stored(0, 1, factor, tuple(checkpoints), notes, (), (), (), tuple(files), tuple(outputs))
        return [
            ElasticityState(
                stored=stored,
                drivers=(Driver(),) * bounds.drivers,
                attempts=(),
                unasked=requests_of(bounds.asked),
                decided=(),
                takeovers=bounds.takeovers,
                rounds_given_up=bounds.rounds_given_up,
                folds=bounds.folds,
                keeps=bounds.keeps,
            )
        ]

    def steps(self, state: ElasticityState) -> Iterator[tuple[str, ElasticityState]]:
        for label, after in self._steps(state):
            yield label, settled(after, self.safeguards, self.bounds)

    def _steps(self, state: ElasticityState) -> Iterator[tuple[str, ElasticityState]]:
        if state.unasked:
            asked, *unasked = state.unasked
            after = state.with_stored(requests=(*state.stored.requests, asked))._replace(unasked=tuple(unasked))
            yield f"a user asks for factor {asked.factor}: request {asked.id}", after
        for index in range(len(state.drivers)):
            yield from driver_steps(state, self.safeguards, self.bounds, index)
        for number, attempt in enumerate(state.attempts):
            if attempt not in state.attempts[:number]:
                yield from attempt_steps(state, self.safeguards, self.bounds, attempt)

    def broken(self, state: ElasticityState) -> str | None:
        stored = state.stored
        shared = (stored, state.decided, state.unasked, state.wrong)
        if shared not in self._verdicts:
            self._verdicts[shared] = self._violation(state)
        return self._verdicts[shared]

    def _violation(self, state: ElasticityState) -> str | None:
        stored = state.stored
        if len(stored.checkpoints) != stored.factor:
            return f"the job model has factor {stored.factor}, the checkpoints are of factor {len(stored.checkpoints)}"
        return (
            self._wrong_outputs(stored)
            or self._wrong_state(stored, stored.checkpoints, "checkpoint")
            or self._wrong_state(stored, stored.kept, "kept version")
            or self._wrong_requests(state)
            or state.wrong
            or None
        )

    def finished(self, state: ElasticityState) -> bool:
        is_read = all(one.position == self.bounds.records for one in state.stored.checkpoints)
        return is_read and not state.unasked and len(state.decided) == len(self.bounds.asked)

    def _wrong_outputs(self, stored: Stored) -> str | None:
        for bucket, checkpoint in enumerate(stored.checkpoints):
            for key in keys_of(bucket, stored.factor):
                expected = outputs_below(key, checkpoint.position, has_state=self.bounds.has_state)
                found = stored.outputs[key]
                if found == expected:
                    continue
                records = [record for record, _ in found]
                what = "they differ"
                if missing := sorted({record for record, _ in expected}.difference(records)):
                    what = f"records {missing} are lost"
                elif ahead := [record for record in records if record >= checkpoint.position]:
                    what = f"records {ahead} will be processed again"
                if twice := sorted({record for record in records if records.count(record) > 1}):
                    what = f"records {twice} are there twice"
                where = f"the outputs of key {key} are not those of [0, {checkpoint.position})"
                return f"{where}: {what}; found {found}, expected {expected}"
        return None

    def _wrong_state(self, stored: Stored, checkpoints: Checkpoints, of: str) -> str | None:
        if not self.bounds.has_state:
            return None
        missing = sorted(name for name in files_of(checkpoints) if stored.values(name) is None)
        if missing:
            return f"files that a {of} names are missing: {', '.join(missing)}"
        for bucket, checkpoint in enumerate(checkpoints):
            keys = keys_of(bucket, len(checkpoints))
            rows = {key: outputs_below(key, checkpoint.position, has_state=True) for key in keys}
            expected = {key: len(mine) for key, mine in rows.items() if mine}
            found = counts_of(stored, checkpoint.head)
            mine = {key: count for key, count in (found or {}).items() if key in keys}
            if mine != expected:
                return f"the {of} at position {checkpoint.position} has counts {mine}, expected {expected}"
        return None

    def _wrong_requests(self, state: ElasticityState) -> str | None:
        stored = state.stored
        asked = requests_of(self.bounds.asked)[: len(self.bounds.asked) - len(state.unasked)]
        for request in asked:
            if request not in stored.requests and request not in state.decided:
                return f"request {request.id} is lost: it was removed, and no plan has answered it"
        wanted = state.decided[-1].factor if state.decided else len(self.bounds.begins_at)
        if stored.factor != wanted:
            return f"the factor is {stored.factor}, the newest request that was answered asked for {wanted}"
        return None
