"""A random topology at work in this process, and judged: for the tests, and for the soak."""

from __future__ import annotations

from unittest import mock

from headrace.errors import TopologyError
from headrace.testing import Driver
from headrace.wiring.worker.entry import run_container
from topologies.building import build
from topologies.drawing import Drawn
from topologies.judging import judge
from topologies.recording import Growth, Told, recording
from topologies.spec import Spec


def grow(driver: Driver, spec: Spec, which: int, at: int) -> list[Growth]:
    """Twice as many partitions for an input, where its readers can follow it."""
    name = spec.input_name(spec.inputs[which % len(spec.inputs)])
    (stream,) = (stream for stream in driver._system.streams() if stream.name == name)
    driver.expand(name, 2 * stream.partitions)
    return [Growth(at, name, stream.partitions)]


def driven(drawn: Drawn) -> int | None:
    """How many records were compared; None where the application cannot be started."""
    spec = drawn.spec("random")
    records, pauses = drawn.records(spec), dict(drawn.pauses)
    told, growths = list[Told](), list[Growth]()
    factors, grown = list(drawn.factors), list(drawn.grown)
    driver = Driver(build(spec), partitions={spec.input_name(stream): spec.partitions[stream] for stream in spec.inputs})
    run = recording(run_container, lambda: driver._system, told.append)
    with mock.patch("headrace.testing.driver.run_container", run):
        try:
            driver.open()
        except TopologyError:
            return None
    try:
        for number, (stream, key, value, time_us) in enumerate(records):
            driver.send(spec.input_name(stream), key, value, at=time_us)
            if number in pauses:
                driver.run()
                if factors:
                    driver.elasticity(factors.pop(0))
                    driver.run()
                if grown:
                    growths += grow(driver, spec, grown.pop(0), len(told))
                    driver.run()
                if pauses[number]:
                    driver.advance("1 hour")
                    driver.run()
        driver.run()
        return judge(spec, records, told, driver._system, is_never_idle=not any(pauses.values()), growths=growths)
    finally:
        driver.close()
