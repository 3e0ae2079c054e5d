"""Where a process is, as the disk goes that has its local stores. Seed: SEP-11 (LocationIdProvider, LocationId)."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NewType

LOCATION = re.compile(r"[\w.:/@+-]{1,200}", re.ASCII)


LocationId = NewType("LocationId", str)
"""A place that has disks of its own: a host, or the node of a pod. Two processes are at one place where these are equal."""


class LocationIdProvider(ABC):
    """Says where the process is in which it is called: what a class of one's own for the key `location_id` is derived from. It
    is made without arguments, once in each worker process."""

    @abstractmethod
    def get_location_id(self) -> LocationId:
        """A name of up to 200 letters, digits and any of `_.:/@+-`, which stays the same as long as the disk is there."""
