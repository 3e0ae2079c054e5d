"""Keeps the source habitable: sizes of functions, modules and folders, names, and the trees that the documents show.

An exception has a reason beside it, and a number that may fall and not rise.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from project.test_imports import MODULES, ROOT, all_imports

FUNCTION_LINES_MAX, PARAMETERS_MAX, MODULE_LINES_MAX, SIBLINGS_MAX, CRUMB_LINES = 70, 7, 400, 25, 70

# Functions with more parameters. Commands are exempt: Typer reads their options from the parameters.
PARAMETERS = {
    "adapters.kafka_server.cluster.Cluster.__init__": 8,  # what users write, by name
    "core.rewind.rewinds.rewind_target_of": 9,
    "dsl.app_declaration.AppDeclaration.stream": 9,  # what users write, by name
    "dsl.joinable.StreamJoins.join": 11,
    "dsl.joinable.StreamJoins.left_join": 11,
    "dsl.joinable.StreamJoins.outer_join": 10,
    "errors.RecordError.__init__": 8,
}
# Commands are named as users type them, and systems offer the same functions: both may share names with others.
SHARED_NAMES_IN = ("headrace.cli.", "headrace.adapters.", "headrace.testing.")
# Public names that several other modules define. The protocols of `dsl.processor_context` and the worker's classes behind
# them share their names on purpose, and so do the two `Serde`: the public one is generic.
DEFINED_TWICE = frozenset(
    {
        "KeyValueStoreView", "ListStoreView", "MapStoreView", "Metrics", "ProcessorContext", "Schedule", "Serde", "Timer",
        "WindowStoreView",
        "batch_of", "changes_of", "column_of", "described", "entries_of", "key_of", "merged",
        "operator_of", "parted", "partitions_of", "records_of", "run", "shown", "startpoints", "text_of", "type_of",
    }
)  # fmt: skip
# Modules of less than 70 lines that one module of their folder imports, with why they stay.
CRUMBS = {
    "adapters.kafka_server.answers": "Kafka's wire format",
    "core.job_plan.containers": "a decision of its own",
    "core.job_plan.elasticity": "a decision of its own",
    "driver.planning.load_plan": "what any process does that runs a plan",
    "wiring.foreground": "it imports what only a terminal needs",
    "wiring.local_stores": "what is done on the machines of workers",
    "wiring.worker.fold_process": "a process of its own",
}


def trees() -> Iterator[tuple[str, Path, ast.Module]]:
    for module, path in MODULES.items():
        yield module, path, ast.parse(path.read_text(encoding="utf-8"))


TREES = list(trees())


def functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}.{node.name}", node
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from functions(node, f"{prefix}.{node.name}")
        elif isinstance(node, ast.If | ast.With | ast.Try):
            yield from functions(node, prefix)


FUNCTIONS = [(name, node) for module, _, tree in TREES for name, node in functions(tree, module.removeprefix("headrace."))]


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([one for one in named if one.arg not in ("self", "cls")])


def test_functions_fit_on_a_screen() -> None:
    long = {
        name: node.end_lineno - node.lineno + 1
        for name, node in FUNCTIONS
        if node.end_lineno is not None and node.end_lineno - node.lineno >= FUNCTION_LINES_MAX
    }
    assert long == {}, f"functions of more than {FUNCTION_LINES_MAX} lines: divide them"


def test_functions_take_few_parameters() -> None:
    many = {
        name: count
        for name, node in FUNCTIONS
        if not name.startswith("cli.") and (count := parameters_of(node)) > max(PARAMETERS_MAX, PARAMETERS.get(name, 0))
    }
    assert many == {}, f"functions of more than {PARAMETERS_MAX} parameters: make a value of those that belong together"


def test_modules_are_read_in_one_go() -> None:
    lines = {module.removeprefix("headrace."): len(path.read_text().splitlines()) for module, path in MODULES.items()}
    long = {name: count for name, count in lines.items() if count > MODULE_LINES_MAX}
    assert long == {}, f"modules of more than {MODULE_LINES_MAX} lines: divide them by purpose"


def test_folders_are_taken_in_at_a_glance() -> None:
    siblings: dict[Path, int] = defaultdict(int)
    for path in MODULES.values():
        siblings[path.parent] += path.name != "__init__.py"
    full = {str(folder.relative_to(ROOT)): count for folder, count in siblings.items() if count > SIBLINGS_MAX}
    assert full == {}, f"folders of more than {SIBLINGS_MAX} modules: divide them by theme"


def is_overload(node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether it only says a type of the function that follows."""
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def test_a_public_name_is_defined_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module, _, tree in TREES:
        for node in tree.body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if named and not module.startswith(SHARED_NAMES_IN) and not is_overload(node):
                places[node.name].append(module)
    twice = {name: found for name, found in places.items() if len(found) > 1 and name not in DEFINED_TWICE}
    assert twice == {}, "one name for two things: rename one"


def test_a_small_module_has_a_reason() -> None:
    importers: dict[str, set[str]] = defaultdict(set)
    for importer, imported, _ in all_imports():
        importers[imported].add(importer)
    lines = {module: len(path.read_text().splitlines()) for module, path in MODULES.items()}
    crumbs = []
    for module, path in MODULES.items():
        name, using = module.removeprefix("headrace."), importers[module] - {"headrace"}
        if path.name == "__init__.py" or lines[module] >= CRUMB_LINES or len(using) != 1 or name in CRUMBS:
            continue
        (only,) = using
        if MODULES[only].parent == path.parent and lines[only] + lines[module] <= MODULE_LINES_MAX:
            crumbs.append(f"{name} ({lines[module]} lines) belongs into {only.removeprefix('headrace.')}")
    assert crumbs == [], "\n".join(crumbs)


DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_modules_that_a_document_names_are_there(document: Path) -> None:
    folders = {path.name for path in (ROOT / "src" / "headrace").iterdir() if path.is_dir()}
    named = re.findall(r"`((?:\w+/)+\w+\.py|(?:\w+/)+)`", document.read_text(encoding="utf-8"))
    missing = [
        place
        for place in named
        if (place.partition("/")[0] in folders and not (ROOT / "src" / "headrace" / place).exists())
        or (place.partition("/")[0] in ("tests", "bench", "scripts") and not (ROOT / place).exists())
    ]
    assert missing == [], f"{document.name} names what is not there"


def test_the_tree_in_contributing_is_the_tree() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tree = text[text.index("src/headrace/\n") : text.index("docs/ examples/")]
    folders = {path.name for path in (ROOT / "src" / "headrace").iterdir() if (path / "__init__.py").exists()}
    files = {path.name for path in (ROOT / "src" / "headrace").glob("*.py") if not path.name.startswith("__")}
    missing = sorted(name for name in folders if f"{name}/" not in tree) + sorted(name for name in files if name not in tree)
    assert missing == []
