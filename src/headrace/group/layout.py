"""The nodes of a group. Seed: SEP-11 (ZK data model).

    <root>/<application>-<application id>-<job>-<job id>-<stage id>/
      processors/processor.NNNNNNNNNN    ephemeral, sequential: a `Registration`
      jobModels/<version>/{meta, 0000, 0001 ...}     see `group.job_models`
      jobModelVersion                    `ModelVersions`
      barriers/<version>/state           NEW, then DONE or TIMED_OUT, which are final
      barriers/<version>/participants/<registration>     ephemeral
      localityData/<task>                the location where it has run last
      run                                `GroupRun`; empty before the first
      pause                              `PauseRequest`; empty where none is requested
      resting/<registration>             ephemeral: the number of the pause that it rests for
      stopped/<processor id>             tasks wait for it: it was stopped in order, or was away when the group began again

Names that a user chooses are escaped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from headrace.errors import InvalidNameError

_MEMBER = re.compile(r"processor\.(\d{10})")
_ID = re.compile(r"[A-Za-z0-9_.]{1,100}")
_DOTS = re.compile(r"\.{1,2}")


def escaped(name: str) -> str:
    """`name` as the name of a node: all but letters, digits and `_.-~` as `%XX` of its UTF-8.

    >>> escaped("a/b ü"), escaped(".."), unescaped(escaped("a/b ü")), unescaped(escaped(".."))
    ('a%2Fb%20%C3%BC', '%2E%2E', 'a/b ü', '..')
    """
    return name.replace(".", "%2E") if _DOTS.fullmatch(name) else quote(name, safe="", errors="surrogatepass")


def unescaped(node: str) -> str:
    """`UnicodeDecodeError` for what no name gives."""
    return unquote(node, errors="strict")


@dataclass(frozen=True, slots=True)
class GroupName:
    """Which group it is, of those below one root."""

    application: str
    application_id: str = "1"
    job: str | None = None  # the application's name
    job_id: str = "1"
    stage_id: str = "1"

    def __post_init__(self) -> None:
        for what in ("application_id", "job_id", "stage_id"):
            if _ID.fullmatch(getattr(self, what)) is None:
                raise InvalidNameError(
                    f"{what} {getattr(self, what)!r} of a group: expected letters, digits and any of `_.`", "such as 1"
                )

    @property
    def node(self) -> str:
        parts = (self.application, self.application_id, self.job or self.application, self.job_id, self.stage_id)
        return "-".join(map(escaped, parts))


@dataclass(frozen=True, slots=True)
class GroupPaths:
    """The paths of one group's nodes; `root` is its own."""

    root: str

    @property
    def fixed(self) -> tuple[str, ...]:
        """Those that are always there, the root apart; all others are below them."""
        data = (self.versions, self.run, self.pause)
        return *data, self.processors, self.job_models, self.barriers, self.localities, self.rests, self.stops

    @property
    def processors(self) -> str:
        return f"{self.root}/processors"

    @property
    def new_processor(self) -> str:
        return f"{self.processors}/processor."

    def processor(self, sequence: int) -> str:
        return f"{self.new_processor}{sequence:010d}"

    @property
    def job_models(self) -> str:
        return f"{self.root}/jobModels"

    def job_model(self, version: int) -> str:
        return f"{self.job_models}/{version}"

    def meta(self, version: int) -> str:
        return f"{self.job_model(version)}/meta"

    def chunk(self, version: int, number: int) -> str:
        return f"{self.job_model(version)}/{number:04d}"

    @property
    def versions(self) -> str:
        return f"{self.root}/jobModelVersion"

    @property
    def barriers(self) -> str:
        return f"{self.root}/barriers"

    def barrier(self, version: int) -> str:
        return f"{self.barriers}/{version}"

    def barrier_state(self, version: int) -> str:
        return f"{self.barrier(version)}/state"

    def participants(self, version: int) -> str:
        return f"{self.barrier(version)}/participants"

    @property
    def localities(self) -> str:
        return f"{self.root}/localityData"

    def locality(self, task: str) -> str:
        return f"{self.localities}/{escaped(task)}"

    @property
    def run(self) -> str:
        return f"{self.root}/run"

    @property
    def pause(self) -> str:
        return f"{self.root}/pause"

    @property
    def rests(self) -> str:
        return f"{self.root}/resting"

    def rest(self, sequence: int) -> str:
        return f"{self.rests}/{sequence}"

    @property
    def stops(self) -> str:
        return f"{self.root}/stopped"

    def stopped(self, processor_id: str) -> str:
        return f"{self.stops}/{escaped(processor_id)}"


def sequence_of(node: str) -> int | None:
    """The registration of a node below `processors`; None for one that is none.

    >>> sequence_of("processor.0000000012"), sequence_of("another")
    (12, None)
    """
    found = _MEMBER.fullmatch(node)
    return None if found is None else int(found[1])


def number_of(node: str) -> int | None:
    """The version, or the registration, that is a node's name; None for a name that is no such number."""
    return int(node) if node.isascii() and node.isdigit() and str(int(node)) == node else None
