"""A processor of bench/group_pauses.py: NAME ENGINE BEGUN TERMS, as headrace_processor.py.

It counts keys, and behind a repartition stream their last digits: so a version of the first count is kept as a whole, while all
rest. What it writes is as there, of the first count.
"""

from __future__ import annotations

from headrace_processor import main, signed_counts

import headrace as hr


def counting(name: str, app: hr.App, who: str) -> None:
    words = app.stream(f"{name}-in", key=hr.Bytes(), value=hr.Bytes())
    signed_counts(words, who).to(f"{name}-out")
    by_digit = words.select_key(lambda record: record.key[-1:], key=hr.Bytes())
    by_digit.repartition(hr.Repartitioned(name="by-digit")).group_by_key().count(store="digits")


if __name__ == "__main__":
    main(counting)
