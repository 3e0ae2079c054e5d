"""How long a processor may work without a word from ZooKeeper: shorter than its session lives, so that it has ceased to work
before any other can see it missing."""

from __future__ import annotations

from dataclasses import dataclass, replace

WORK_SHARE = 2 / 3  # of the session timeout, after the last answered request was sent
LOOK_SHARE = 1 / 6


@dataclass(frozen=True, slots=True)
class Lease:
    """`timeout_s`: of the session. `confirmed_s`: when the last request was sent that was answered with the own registration;
    None without one. Times are of a clock that also counts while the machine is suspended.

    >>> lease = Lease(9.0).confirmed(100.0, 9.0)
    >>> lease.holds(105.9), lease.holds(106.0), lease.next_look_s
    (True, False, 101.5)
    """

    timeout_s: float
    confirmed_s: float | None = None

    def confirmed(self, sent_s: float, timeout_s: float) -> Lease:
        """After an answer to a request that was sent then, under a session with this timeout. Answers may come out of order."""
        if self.confirmed_s is not None and sent_s <= self.confirmed_s:
            return replace(self, timeout_s=min(timeout_s, self.timeout_s))
        return Lease(timeout_s, sent_s)

    def ended(self) -> Lease:
        """After an answer that there is no such registration."""
        return Lease(self.timeout_s)

    @property
    def ends_s(self) -> float | None:
        return None if self.confirmed_s is None else self.confirmed_s + self.timeout_s * WORK_SHARE

    def holds(self, now_s: float) -> bool:
        """Whether work may begin, or continue, at `now_s`."""
        return self.ends_s is not None and now_s < self.ends_s

    def session_holds(self, now_s: float) -> bool:
        """Whether the registration may still be there for others, as far as this process knows."""
        return self.confirmed_s is not None and now_s < self.confirmed_s + self.timeout_s

    @property
    def look_interval_s(self) -> float:
        return self.timeout_s * LOOK_SHARE

    @property
    def next_look_s(self) -> float | None:
        """When the next request is to be sent; None for at once."""
        return None if self.confirmed_s is None else self.confirmed_s + self.look_interval_s
