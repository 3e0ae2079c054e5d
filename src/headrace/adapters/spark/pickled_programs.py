"""A program as bytes for workers, which cannot import what is beside the application's file: that travels by value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from headrace.adapters.spark.pickled_classes import pickled_by_value


class PickledPrograms:
    """The programs of the plan in force as bytes, each made once. `is_cluster`: see `program_bytes`."""

    def __init__(self, *, is_cluster: bool) -> None:
        self._is_cluster = is_cluster
        self._made: dict[str, tuple[Any, bytes]] = {}  # by the program's id, under which the next plan may have another one

    def bytes_of(self, program: Any) -> bytes:
        of, pickled = self._made.get(program.id, (None, b""))
        if of is not program:  # that writes, say, to a stream that has more partitions since
            pickled = program_bytes(program, self._is_cluster)
            self._made[program.id] = program, pickled
        return pickled


def program_bytes(program: Any, is_cluster: bool) -> bytes:
    """A `core.topology.program.Program` without what stays in the driver. `is_cluster`: workers are on other machines, where
    no module of the application's folder is; else they find those that its own module imports."""
    found = list(_modules_of_functions(program))
    own = {module.__name__: module for module in found if module.__name__ != "__main__"}  # that travels so anyway
    if is_cluster:
        roots = {root for module in found if (root := _root_of(module)) is not None}
        for module in list(sys.modules.values()):
            is_module = isinstance(module, ModuleType) and module.__name__ != "__main__"
            if is_module and _is_users(module) and _root_of(module) in roots:
                own[module.__name__] = module
    for module in own.values():
        cloudpickle.register_pickle_by_value(module)
    return pickled_by_value(program.without_columns())


def _modules_of_functions(program: Any) -> Iterator[ModuleType]:
    """The modules of users in which a program's functions are defined."""
    for node in program.nodes:
        for name in node.__dataclass_fields__:
            body = getattr(node, name)
            body = getattr(body, "body", body)
            for part in _parts_of(body):
                module = sys.modules.get(getattr(part, "__module__", None) or "")
                if module is not None and _is_users(module):
                    yield module


def _parts_of(body: Any) -> Iterator[Any]:
    """A function, and what it is made of where it is a `functools.partial`, whose own module is Python's."""
    yield body
    if isinstance(body, partial):
        for part in (body.func, *body.args, *body.keywords.values()):
            yield from _parts_of(part)


def _is_users(module: ModuleType) -> bool:
    """Whether a module is written by the user, in Python: what is compiled has no functions that could travel by value."""
    top = module.__name__.partition(".")[0]
    if top == "headrace":
        return False
    file = getattr(module, "__file__", None)
    if file is None:  # built into Python or a part of a compiled package; else a notebook or a program has made it
        package = sys.modules.get(top, module)
        return top not in sys.stdlib_module_names and (package is module or _is_users(package))
    if file.endswith(tuple(EXTENSION_SUFFIXES)):
        return False
    return "site-packages" not in file and "dist-packages" not in file and not file.startswith(sys.base_prefix)


def _root_of(module: ModuleType) -> Path | None:
    """The folder that a module is imported from, above its packages; None for one without a file."""
    file = getattr(module, "__file__", None)
    if not file:
        return None
    path = Path(file)
    depth = len(module.__name__.split(".")) + (path.name == "__init__.py")
    return path.parents[depth - 1] if len(path.parents) >= depth else None
