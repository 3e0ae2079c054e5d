"""Kills the driver of a job at random steps for long: `make soak`, or `python scripts/soak.py [MINUTES] [SEED]`.

Each run has a seed of its own, printed before it starts; a failure ends the soak, and its seed gives the same run again
(as far as the order of threads allows). A run kills at every numbered step of the log's commit and of a start, lets the
job finish, and compares all that it wrote with models and with an undisturbed run.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from chaos.killing import LOG_STEPS, START_STEPS, kill_run  # noqa: E402  (found on the path set above)

KILLS_PER_STEP = 4


def main(minutes: float, seed: int | None) -> int:
    ends_s = time.monotonic() + minutes * 60
    landed: Counter[str] = Counter()
    runs = checks = 0
    while runs == 0 or time.monotonic() < ends_s:
        drawn = random.randrange(2**32) if seed is None else seed + runs
        print(f"run {runs + 1}, seed {drawn}", flush=True)
        with tempfile.TemporaryDirectory(prefix="headrace-soak-") as folder:
            report = kill_run(Path(folder), drawn, KILLS_PER_STEP, (*LOG_STEPS, *START_STEPS))
        report.verify()
        runs += 1
        checks += report.checks.total()
        landed.update({step: count for (step, _), count in report.landed.items()})
        print(f"  {report.landed.total()} kills, {report.checks.total():,} checks", flush=True)
    print(report)
    rarest = min(landed.values())
    print(f"{runs} runs, {landed.total()} kills (at each step {rarest} or more), {checks:,} checks: all as it must be")
    return 0


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(float(given[0]) if given else 30.0, int(given[1]) if len(given) > 1 else None))
