"""`np` and `pa`, numpy and pyarrow, imported when something of them is first used: they take 0.2 s, and a topology is
declared without them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__all__ = ["np", "pa"]

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
else:

    class _Deferred:
        """A module, of which what was once used is an attribute of this object from then on."""

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> object:
            found = getattr(importlib.import_module(self._module), name)
            setattr(self, name, found)
            return found

    np, pa = _Deferred("numpy"), _Deferred("pyarrow")
