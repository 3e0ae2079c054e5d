"""Loading an application from a file: `APP.py`, or `APP.py:name` where the file makes several.

The file is read first: one that can hold no application, by its source and by those of the modules that it imports, is refused,
and nothing of it is executed. Modules beside the file are read as the file is, and what they import too. Of installed ones the
file that is imported, and what its package says that it needs. In doubt the file is executed.

Then it is imported under a name of its own, not as `__main__`: its whole top level is executed but for the code under
`if __name__ == "__main__":`. Its folder is added to `sys.path`, and is where its `headrace.toml` is looked for.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import re
import sys
import tokenize
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from headrace import wiring
from headrace.application import App
from headrace.config.loading import load_config
from headrace.core.topology.app_sources import AppSource, Import, app_source_of
from headrace.errors import AppLoadError, HeadraceError
from headrace.wiring.spark_sessions import client_secrets, log_dir_of

_PACKAGE = "headrace"
_FILES_MAX = 500
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_NOT_EXECUTED = "it was read, and not executed"
_NO_FILE_HINT = "give the file that makes the App: FILE.py[:name]"


def load_app(text: str, overrides: Sequence[str] = (), say: Callable[[str], None] = lambda text: None) -> App:
    """The application that `text` names, with `folder` and `config_folder` set to where its file is. Spark is started only if
    the import asks for it, as `F.col` does; `say` reports it. `overrides` (as `--set` takes them) are for that start.
    `AppLoadError` for a file that is missing or raises, and for none or several applications."""
    path, name = _split(text)
    with suppress(OSError, SyntaxError, UnicodeDecodeError), tokenize.open(path) as file:  # importing it says what is no text
        _refuse_what_is_no_application(path, file.read())
    session = None
    module = _imported(path)
    if module is None:
        session = _session(path, overrides, say)
        module = _imported(path, has_session=True)
    assert module is not None
    app = _app_in(module, path, name)
    app.folder = app.config_folder = path.parent
    if session is not None and app.session.given is None:
        app.session.running = session
    return app


def _split(text: str) -> tuple[Path, str | None]:
    file, name = text, None
    before, colon, after = text.rpartition(":")
    if colon and before.endswith(".py") and not Path(text).exists():
        file, name = before, after
    path = Path(os.path.abspath(os.path.expanduser(file)))  # a name that errors show: without `..`
    if not (text and os.path.isfile(path) and os.access(path, os.R_OK)):
        found, hint = _no_file(path) if text else ("expected the name of a file", _NO_FILE_HINT)
        raise AppLoadError(f"application {text!r}: {found}", hint)
    if name is not None and not name.isidentifier():
        raise AppLoadError(f"application {text!r}: {name!r} is no name", "write FILE.py:name, such as flights.py:app")
    return path, name


def _no_file(path: Path) -> tuple[str, str]:
    """What is wrong with what is no file that can be read, and what to do."""
    if os.path.isfile(path):  # not `path.is_file()`, which raises where a folder above cannot be read
        return f"{path} cannot be read", "give this user the right to read it"
    if os.path.isdir(path):
        files = _python_files_in(path)
        return f"{path} is a folder, expected a file", f"it holds {', '.join(files)}" if files else _NO_FILE_HINT
    above = next(folder for folder in path.parents if os.path.exists(folder))
    if not os.access(above, os.X_OK):
        return f"the folder {above} cannot be read", "give this user the right to read it"
    names = [file.removesuffix(".py") for file in _python_files_in(path.parent)]
    near = [path.with_name(f"{name}.py") for name in difflib.get_close_matches(path.stem, names, 1)]
    return f"there is no file {path}", f"did you mean {os.path.relpath(near[0])}?" if near else _NO_FILE_HINT


def _python_files_in(folder: Path) -> list[str]:
    """Their names, the first few."""
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".py") and entry.is_file())[:8]
    except OSError:
        return []


def _imported(path: Path, has_session: bool = False) -> ModuleType | None:
    """The file as a module; None where its import failed inside PySpark, for want of a session."""
    # The stem alone could be the name of another module: calendar.py would stand in for Python's own.
    stem = re.sub(r"\W", "_", path.stem)
    module_name = f"{stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise AppLoadError(f"{path} is no Python file", "its name should end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with wiring.only_declaring(path):
            spec.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(module_name, None)
        if isinstance(error, KeyboardInterrupt):  # Ctrl-C and SIGTERM are none of the file's
            raise
        if isinstance(error, HeadraceError):
            frames = traceback.walk_tb(error.__traceback__)
            for line in [line for frame, line in frames if frame.f_code.co_filename == str(path)][-1:]:
                error.add_note(f"{path.name}, line {line}")
            raise
        if not has_session and _is_for_want_of_a_session(error):
            return None
        if isinstance(error, SyntaxError) and error.filename in (None, str(path)):
            raise _no_python(path, error) from None
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
            trace = trace.tb_next  # our own frames, and the import machinery's
        raise AppLoadError(
            f"{path.name} raised {type(error).__name__} when it was imported",
            "the traceback above says where; the file is imported, not run: keep app.run() under `if __name__ == '__main__':`",
            user_traceback="".join(traceback.format_exception(type(error), error, trace)),
        ) from None
    return module


def _no_python(path: Path, error: SyntaxError) -> AppLoadError:
    """What Python says of a line of the file, or of a file that is no text at all."""
    if error.lineno is None or "(unicode error)" in str(error.msg):
        reason = str(error.msg).removeprefix("(unicode error) ")
        return AppLoadError(f"{path.name} is no Python file: {reason}", "give the source file that makes the App, in UTF-8")
    return AppLoadError(
        f"{path.name}, line {error.lineno}: {error.msg}",
        "it is not valid Python: fix that line, or the lines before it",
        user_traceback="".join(traceback.format_exception_only(error)),
    )


def _is_for_want_of_a_session(error: BaseException) -> bool:
    """Whether PySpark itself raised it: there is no session, so that is what it misses. Functions that make Columns assert that
    there is a context, without a message; others raise an error of PySpark's."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    is_sparks = frame.f_globals.get("__name__", "").startswith("pyspark.")
    return is_sparks and (isinstance(error, AssertionError) or re.search("SESSION|CONTEXT", str(error).upper()) is not None)


def _session(path: Path, overrides: Sequence[str], say: Callable[[str], None]) -> Any:
    """A session by the configuration that is known before the application is: all but what `App(...)` says."""
    spark = importlib.import_module("headrace.adapters.spark.session")
    config = load_config(path.parent, os.environ, {}, list(overrides))
    say("starting Spark: the application builds Columns when it is imported")
    settings = {f"spark.{name}": value for name, value in config.spark.items()}
    return spark.started(settings, path.stem, log_dir_of(config), [str(path.parent)], client_secrets(config))


def _app_in(module: ModuleType, path: Path, name: str | None) -> App:
    apps = {key: value for key, value in vars(module).items() if isinstance(value, App)}
    known = f"say which one: {' or '.join(f'{path.name}:{name}' for name in apps)}" if apps else "the file makes no hr.App"
    if name in apps:
        return apps[name]
    if name is not None:
        found = f"it is a {type(getattr(module, name)).__name__}" if hasattr(module, name) else "there is no such name"
        raise AppLoadError(f"{path.name}:{name} is no hr.App: {found}", known)
    if len({id(app) for app in apps.values()}) == 1:
        return next(iter(apps.values()))
    if "app" in apps:
        return apps["app"]
    if not apps:
        raise AppLoadError(
            f"{path.name} makes no hr.App at its top level", 'write app = hr.App("name", ...) there, outside of any function'
        )
    raise AppLoadError(f"{path.name} makes {len(apps)} applications: {', '.join(apps)}", known)


def _refuse_what_is_no_application(path: Path, text: str) -> None:
    """`AppLoadError` for a file that holds no application, or that runs one while it is imported, if its source shows it. A
    source that is no Python is let through: importing it says what is wrong with it."""
    source = _source_of(text)
    if source is None:
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


def _source_of(text: str) -> AppSource | None:
    """None for what is no Python."""
    try:
        return app_source_of(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


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
            inner = _source_of(text)
            if inner is None:
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
