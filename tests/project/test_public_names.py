"""What `import headrace as hr` offers: the public names, all of them, and nothing that only happens to be there."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import headrace as hr
from headrace import errors

SOURCE = Path(__file__).parents[2] / "src"
OWN_FAILURES = {errors.StoreDamagedError}  # caught and mended by a run: it never reaches a caller


def test_dir_lists_exactly_the_public_names() -> None:
    assert dir(hr) == sorted(hr.__all__) == sorted(set(hr.__all__))
    assert not {"annotations", "importlib", "Any", "dsl", "cli"} & set(dir(hr))


def test_every_public_name_is_there_and_no_other_module_is_one() -> None:
    found = {name: getattr(hr, name) for name in hr.__all__}
    assert [name for name, value in found.items() if isinstance(value, ModuleType)] == ["testing"]
    public = [name for name in vars(hr) if not name.startswith("_") and not isinstance(vars(hr)[name], ModuleType)]
    assert set(public) - set(hr.__all__) <= {"annotations", "Any", "TYPE_CHECKING"}


def test_every_error_that_a_caller_can_meet_is_public() -> None:
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.HeadraceError)}
    assert {kind.__name__ for kind in kinds - OWN_FAILURES} <= set(hr.__all__)


def test_listing_the_names_loads_nothing_heavy() -> None:
    program = "import sys, headrace; dir(headrace); print({'pyspark', 'pyarrow', 'numpy'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"
