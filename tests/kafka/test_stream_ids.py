"""A topic that was deleted, and perhaps made anew, under a job's positions and state: an error, between runs and in one."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

import headrace as hr
from headrace.errors import IncompatibleChangeError
from support.fixtures import only_on
from support.world import Place, World, started


class Counted(World):
    """An application as each start makes it; its input has three records."""

    STREAMS: ClassVar = {"in": 1}
    KEYS: ClassVar = {}

    def __init__(self, folder: Path, place: Place) -> None:
        super().__init__(folder, place)
        self.system.produce(self.stream("in"), [(b"k", b"v")] * 3)

    def app(self) -> hr.App:
        app = super().app()
        app.stream(self.stream("in"), key=hr.String()).group_by_key().count(store="n")
        return app

    def delete(self, *, create: bool = True, records: int = 0) -> None:
        self.system.delete_stream(self.stream("in"))
        if create:
            self.system.create_stream(self.stream("in"), 1)
            self.system.produce(self.stream("in"), [(b"k", b"other")] * records)


WORLD, place = Counted, only_on("kafka")


@pytest.mark.parametrize(("create", "words"), [(True, "was deleted and recreated since"), (False, "does not exist")])
def test_between_two_runs(world: Counted, create: bool, words: str) -> None:
    world.run(world.app())
    world.delete(create=create, records=9)  # as many as make the stored position look right
    with pytest.raises(hr.HeadraceError, match=rf"stream '{world.name}-in' {words}"):
        started(world.app(), "caught-up")


def test_while_the_job_runs(world: Counted) -> None:
    job = started(world.app())
    try:
        world.delete(records=9)
        with pytest.raises(IncompatibleChangeError, match=rf"'{world.name}-in' was deleted.* while the application runs"):
            job.wait(60)
    finally:
        job.stop()


@pytest.mark.parametrize("ask", ["beginning_offsets", "end_offsets", "high_watermarks"])
def test_a_stream_of_a_job_that_is_missing_was_deleted_whatever_is_asked_of_it(world: Counted, ask: str) -> None:
    """Between a deletion and the next creation a job may ask for any of these first."""
    with hr.open_system(world.url) as system:
        found = system.describe_stream(world.stream("in"))
        system.pin({found.name: found.id}, {found.name: found.partitions})
        world.delete(create=False)
        with pytest.raises(IncompatibleChangeError, match=rf"'{world.name}-in' was deleted while the application runs"):
            getattr(system, ask)(world.stream("in"))
