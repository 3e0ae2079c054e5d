"""The worker's side of the signals of a round; the driver's is `headrace.ports.RoundControl`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class RoundSignals(Protocol):
    """What the driver has signalled to one attempt of a container or of a reader. Each call is cheap, and none waits."""

    def is_stopped(self) -> bool:
        """Whether to throw the work away."""

    def is_cut(self) -> bool:
        """Whether to end here, and to commit what was reached."""

    def troubles(self) -> Sequence[str]:
        """Why signals may not have come, for people."""

    def close(self) -> None: ...


class NoSignals:
    """Of work that nothing stops or cuts short."""

    def is_stopped(self) -> bool:
        return False

    def is_cut(self) -> bool:
        return False

    def troubles(self) -> Sequence[str]:
        return ()

    def close(self) -> None: ...
