"""Since when what cannot be read yet is held back: what a producer commits a moment later is not worth a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.model.streams import SSP

NAMED_AFTER_S = 5.0


@dataclass(frozen=True, slots=True)
class HeldBack:
    """By SSP up to where it could be read, as records behind that could not, and since when it has been that offset. Times are
    of a clock that only goes forward."""

    since: Mapping[SSP, tuple[int, float]] = field(default_factory=dict)

    def seen(self, ends: Mapping[SSP, int], now_s: float) -> HeldBack:
        """With a look at `now_s`. `ends`: up to where those can be read that are held back now. Where one has come on, what
        held it back is over, and what does now is another transaction.

        >>> here = SSP("kafka", "clicks", 0)
        >>> first = HeldBack().seen({here: 10}, 0.0)
        >>> first.seen({here: 12}, 4.0).named(6.0), first.seen({here: 10}, 4.0).named(6.0) == {here}
        (frozenset(), True)
        """
        return HeldBack({ssp: (end, self._since_s(ssp, end, now_s)) for ssp, end in ends.items()})

    def named(self, now_s: float) -> frozenset[SSP]:
        """Those that have been held back by one thing for so long that it is worth a word."""
        return frozenset(ssp for ssp, (_, since_s) in self.since.items() if now_s - since_s >= NAMED_AFTER_S)

    def _since_s(self, ssp: SSP, end: int, now_s: float) -> float:
        before = self.since.get(ssp)
        return before[1] if before is not None and before[0] == end else now_s
