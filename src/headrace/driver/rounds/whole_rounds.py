"""When a sub-topology that reads what another writes begins: behind a round of that other, not in its midst.

On Kafka each container commits by itself, so that a round's records come container by container. A round costs nearly the
same for few records as for many: two of them for one that was written are a waste. Time is an argument.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

WAIT_S = 2.0  # what one container has written waits at most so long for the others of its round


class WholeRounds:
    """Says which sub-topologies wait. `upstream`: each one's name to those that write what it reads."""

    def __init__(self, upstream: Mapping[str | None, Collection[str | None]]) -> None:
        self._upstream = upstream
        self._ended = dict.fromkeys(upstream, 0)  # rounds
        self._seen = dict.fromkeys(upstream, 0)  # of those above, rounds that had ended when it last did not wait
        self._since_s: dict[str | None, float] = {}

    def ended(self, name: str | None) -> None:
        """A round of `name` has ended, however it did."""
        self._ended[name] += 1

    def waits_s(self, name: str | None, running: Collection[str | None], now_s: float) -> float:
        """For how long `name` still waits for those above it that are among `running`; 0: it continues now."""
        above = self._upstream[name]
        ended = sum(self._ended[writer] for writer in above)
        left_s = self._since_s.setdefault(name, now_s) + WAIT_S - now_s
        if left_s > 0 and ended == self._seen[name] and any(writer in running for writer in above):
            return left_s
        del self._since_s[name]
        self._seen[name] = ended
        return 0.0
