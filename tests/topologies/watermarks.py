"""Whether tasks that read inputs judged lateness by the right watermarks: the lowest of what they had read before a round.

An input that is idle holds nothing back; when one is, only the driver's clock says. Where it stood still, none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from topologies.recording import Growth, Round
from topologies.spec import Spec


def check_watermarks(
    spec: Spec, rounds: Mapping[Any, Iterable[Round]], is_never_idle: bool, growths: Iterable[Growth] = ()
) -> None:
    inputs = {spec.input_name(stream) for stream in spec.inputs}
    every = [each for mine in rounds.values() for each in mine]
    highest: dict[tuple[str, int], int] = {}  # of any task: those that read the same partition judge alike
    left = list(growths)
    of_inputs = [each for each in every if {stream for stream, _ in each.streams} <= inputs]
    for _, together in groupby(sorted(of_inputs, key=_turn), key=_turn):
        at_work = list(together)
        while left and left[0].at <= at_work[0].at:
            _inherit(left.pop(0), highest)
        for each in at_work:
            known = [highest.get(ssp) for ssp in each.ssps]
            expected = None if None in known else min(mark for mark in known if mark is not None)
            said = f"round {each.id}, {each.task}: the watermark is {each.watermark_us}"
            if is_never_idle:
                assert each.watermark_us == expected, f"{said}, expected {expected}"
            else:
                assert each.watermark_us in known or each.watermark_us is None, f"{said}, expected one of {known}"
                assert expected is None or (each.watermark_us or 0) >= expected, f"{said}, expected at least {expected}"
        for read in (read for each in at_work for read in each.read):
            at = read.stream, read.partition
            highest[at] = max(read.time_us, highest.get(at, read.time_us))
    for each in every:
        assert each.watermark_us is None or each.watermark_us <= max(highest.values()), f"round {each.id}: ahead of all inputs"


def _inherit(growth: Growth, highest: dict[tuple[str, int], int]) -> None:
    """A new partition has come to where the one is whose keys it takes."""
    for partition in range(growth.before):
        if (growth.stream, partition) in highest:
            highest[growth.stream, partition + growth.before] = highest[growth.stream, partition]


def _turn(each: Round) -> tuple[int, int]:
    epoch, _, number = each.id.split(":")
    return int(epoch), int(number)
