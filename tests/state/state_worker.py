"""A process of the tests: works off rounds on request, one JSON line each, and answers with what it saw."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from state_place import FILES, Place, after, contents_of, head_from_json, head_to_json, make_changes

from headrace.adapters.lmdb import close_idle
from headrace.exchange import fault_injection as steps
from headrace.worker.state.task_state import TaskState


def decoded(changes: dict[str, dict[str, str | None]]) -> dict[str, dict[bytes, bytes | None]]:
    return {
        db: {key.encode(): None if value is None else value.encode() for key, value in values.items()}
        for db, values in changes.items()
    }


def encoded(contents: dict[str, dict[bytes, bytes]]) -> dict[str, dict[str, str]]:
    return {db: {key.decode(): value.decode() for key, value in found.items()} for db, found in contents.items()}


def work(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """One round: what was there before, the new head, the notes."""
    head = head_from_json(request["head"])
    with place.open(head, applying=lambda: steps.reached("log", 3)) as store:
        before = encoded(contents_of(store))
        state = TaskState(store, head)
        make_changes(state, decoded(request["changes"]))
        new = state.write(place.files, FILES)
        return {"before": before, "head": head_to_json(new), "notes": store.notes, "folder": store.folder.parent.name}


def flip(place: Place, request: dict[str, Any]) -> dict[str, Any]:
    """Restore the store from a copy, flip one bit, open it under a new run, work two more rounds on it."""
    seed, head = request["seed"], head_from_json(request["head"])
    close_idle()
    if not request["again"]:
        shutil.rmtree(place.local)
        shutil.copytree(request["copy"], place.local)
        data = place.data_file()
        bit = random.Random(seed).randrange(data.stat().st_size * 8)
        with open(data, "r+b") as file:
            file.seek(bit // 8)
            byte = file.read(1)[0]
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))
    place.run_id = f"flip-{seed}"
    seen, notes = place.read(head)
    answer = {"before": encoded(seen), "notes": notes}
    for number in range(2):  # the second one writes to pages that the first one freed
        changes = {db: dict.fromkeys(list(keys)[number::2], b"%d" % number) for db, keys in seen.items()}
        head = place.round(head, changes)
        expected = after(seen, changes)
        seen, more = place.read(head)
        assert seen == expected, seed
        assert not more, (seed, more)
    return answer


def main() -> None:
    place = Place(Path(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        answer = flip(place, request) if "seed" in request else work(place, request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
