"""When a sub-topology waits for those that read what it writes, so that its repartition streams do not grow for ever."""

from __future__ import annotations

from collections.abc import Mapping


def held_back_by(unread: Mapping[str, int], max_lag: int | None) -> str | None:
    """The repartition stream for whose reader a sub-topology waits before its next round; None: it continues.

    `unread`: of each stream that it writes how many offsets its reader has still before it. A round is begun while fewer
    than `max_lag` are unread and then writes all that it makes, so that a stream may come to hold that much more.

    >>> held_back_by({"by-day": 10, "by-carrier": 500}, max_lag=500), held_back_by({"by-carrier": 499}, max_lag=500)
    ('by-carrier', None)
    """
    if max_lag is None:
        return None
    return min((stream for stream, count in unread.items() if count >= max_lag), default=None)
