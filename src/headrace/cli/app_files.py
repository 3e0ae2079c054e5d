"""Whether a file can hold an application, by its source and by those of the modules that it imports: nothing is executed.
Modules beside the file are read as the file is, and what they import too. Of installed ones the file that is imported, and what
its package says that it needs. What cannot be found or read may be anything: then the file is executed."""

from __future__ import annotations

import importlib.metadata
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from headrace.core.topology.app_sources import AppSource, Import, app_source_of
from headrace.errors import AppLoadError

_PACKAGE = "headrace"
_FILES_MAX = 500
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NOT_EXECUTED = "it was read, and not executed"


def refuse_what_is_no_application(path: Path, text: str) -> None:
    """`AppLoadError` for a file that holds no application, or that runs one while it is imported, if its source shows it. A
    source that is no Python is let through: importing it says what is wrong with it."""
    try:
        source = app_source_of(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    if source.runs_in_line is not None:
        raise AppLoadError(
            f"{path.name}, line {source.runs_in_line}: it runs its application at import, but a command only loads it",
            f'put the run under `if __name__ == "__main__":`; {_NOT_EXECUTED}',
        )
    imports_app = source.is_dynamic or _imports_app(path, source)
    if imports_app is None or source.is_dynamic or (source.binds and (source.names_app or imports_app)):
        return
    where = ' but under `if __name__ == "__main__":`' if source.names_app_in_main and not source.names_app else ""
    raise AppLoadError(
        f"{path.name} makes no hr.App at its top level{where}",
        f'write app = hr.App("name", ...) there, outside of any function; {_NOT_EXECUTED}',
    )


def _imports_app(path: Path, source: AppSource) -> bool | None:
    """Whether a module that the file imports, or one that such a module beside the file imports, may make an application. None
    where one of them cannot be found or is no Python."""
    seen: set[Path] = {path}
    left = [(path.parent, path.parent, one) for one in source.imports]
    while left and len(seen) <= _FILES_MAX:
        root, folder, imported = left.pop(0)
        top = imported.module.partition(".")[0]
        if imported.level == 0 and (top in sys.stdlib_module_names or top == _PACKAGE):
            continue
        files = _files_of(root, folder, imported)
        if not files:
            return None
        for file in files:
            if file in seen or file.suffix != ".py":  # what is compiled makes none
                continue
            seen.add(file)
            text = file.read_text(encoding="utf-8", errors="replace")
            if _INSTALLED & set(file.parts):
                if _PACKAGE in text or _needs_us(top):
                    return True
                continue
            try:
                inner = app_source_of(text)
            except (SyntaxError, ValueError, RecursionError):
                return None
            if inner.names_app or inner.is_dynamic:
                return True
            left += [(root, file.parent, one) for one in inner.imports]
    return False


def _files_of(root: Path, folder: Path, imported: Import) -> list[Path]:
    """The files of a module that is imported, and of the packages above it; none where one of them cannot be found."""
    if imported.level:
        places = [str([folder, *folder.parents][min(imported.level - 1, len(folder.parents))])]
    else:
        places = [str(root), *sys.path]
    specs: list[ModuleSpec | None] = []
    for part in filter(None, imported.module.split(".")):
        spec = PathFinder.find_spec(part, places)
        if spec is None:
            return []
        specs.append(spec)
        places = list(spec.submodule_search_locations or ())
    # a module of the package, or a name in it
    specs += [PathFinder.find_spec(name, places) for name in imported.names if places and name != "*"]
    return [Path(spec.origin) for spec in specs if spec is not None and spec.origin is not None]


def _needs_us(top: str) -> bool:
    """Whether an installed package says that it needs Headrace."""
    try:
        return any(_PACKAGE in need for need in importlib.metadata.requires(top) or ())
    except importlib.metadata.PackageNotFoundError:
        return False
