"""The process that folds large state files, which does not come to an end before its worker does."""

import sys
import time
from collections.abc import Iterator
from typing import Any

from headrace.state_files import folds
from headrace.wiring.worker.fold_process import fold_what_is_read

merged = folds.merged


def slowly(streams: Any) -> Iterator[Any]:
    yield from merged(streams)
    while True:
        time.sleep(0.01)
        yield from merged(streams[:1])


if __name__ == "__main__":
    folds.merged = slowly
    fold_what_is_read(sys.stdin.buffer)
