"""How far a sub-topology is spread: its elasticity factor and its containers; what is requested of them, and what is in force.

Seed: SEP-32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

AUTOMATIC = 0  # containers: as many as the engine runs at once


@dataclass(frozen=True, slots=True)
class Scale:
    """`factor`: into how many virtual tasks each task is cut, a power of two. `containers`: in how many of them its tasks run,
    `AUTOMATIC` for as many as the engine runs at once."""

    factor: int = 1
    containers: int = AUTOMATIC


@dataclass(frozen=True, slots=True)
class ScaleInForce:
    """The scale of a sub-topology, what its configuration said when that was last looked at, and who has set the scale since
    (empty: the configuration). A start keeps the scale, unless the configuration says something else than it did."""

    scale: Scale
    configured: Scale
    set_by: str = ""


@dataclass(frozen=True, slots=True)
class StoredScales:
    """What is in force, by the titles of sub-topologies. `settled`: ids of requests that are done, and may still be there."""

    scales: Mapping[str, ScaleInForce] = field(default_factory=dict)
    settled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """Somebody asks for another scale. None leaves a part of it as it is. `sub_topology`: its title, None for all."""

    requested_by: str
    requested_at_us: int
    sub_topology: str | None = None
    factor: int | None = None
    containers: int | None = None
    reason: str = ""


def scale_text(scale: Scale) -> str:
    """A scale for people.

    >>> scale_text(Scale(4, 2)), scale_text(Scale())
    ('factor 4, 2 containers', 'factor 1, containers automatic')
    """
    return f"factor {scale.factor}, {_containers_text(scale.containers)}"


def request_text(request: ScaleRequest) -> str:
    """What is requested, for people.

    >>> request_text(ScaleRequest("me", 0, factor=8)), request_text(ScaleRequest("me", 0, factor=2, containers=1))
    ('factor 8', 'factor 2, 1 container')
    """
    parts = [] if request.factor is None else [f"factor {request.factor}"]
    return ", ".join([*parts, *([] if request.containers is None else [_containers_text(request.containers)])])


def _containers_text(containers: int) -> str:
    return "containers automatic" if containers == AUTOMATIC else f"{containers} container{'s' * (containers != 1)}"
