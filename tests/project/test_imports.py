"""Holds the import table against the code, read with `ast`: what a module imports, wherever in it, counts.

    cli, testing -> demo -> application -> client -> wiring -> driver | worker | dsl | adapters -> serdes, state_files, group
    -> exchange, codec -> ports, coordination, config -> core -> model -> errors -> terminal_text

A module may import what is on a lower level, and its own group; never another group of its own level. So the driver and the
worker never meet: what they tell each other is in `exchange`. The public names in `headrace` itself are for the uppermost
levels, as they are for users.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"

LEVELS: tuple[frozenset[str], ...] = (
    frozenset({"terminal_text", "signals"}),
    frozenset({"errors"}),
    frozenset({"model"}),
    frozenset({"core", "record"}),
    frozenset({"ports", "coordination", "config", "environment"}),
    frozenset({"exchange", "codec"}),
    frozenset({"serdes", "state_files", "group", "adapters.common"}),
    frozenset({"driver", "worker", "dsl", "adapters"}),
    frozenset({"wiring"}),
    frozenset({"client"}),
    frozenset({"application"}),
    frozenset({"demo"}),  # an application of ours; the command line runs it
    frozenset({"cli", "testing"}),
    frozenset({"headrace", "__main__"}),  # the package itself, which gives the public names and runs the command line
)
USERS_OF_THE_PUBLIC_NAMES = frozenset({"cli", "testing", "demo"})
LEVEL_OF = {name: level for level, names in enumerate(LEVELS) for name in names}

# One outside technology, one package.
ONLY_IN = {
    "pyspark": "adapters.spark",
    "py4j": "adapters.spark",
    "kazoo": "adapters.zookeeper",
    "lmdb": "adapters.lmdb",
    "confluent_kafka": "adapters.kafka",
    "confluent_kafka.schema_registry": "serdes",  # ships with it, and speaks HTTP to another server
    "fastavro": "serdes",
    "google.protobuf": "serdes",
    "jsonschema": "serdes",
    "sqlite3": "adapters.log",
    "opentelemetry": "adapters.opentelemetry",
    "prometheus_client": "adapters.http",
    "starlette": "adapters.http",
    "uvicorn": "adapters.http",
}
# They import the standard library, and those of HASHING xxhash.
PURE = frozenset({"model", "core", "errors", "terminal_text", "config", "environment"})
HASHING = frozenset({"model", "core"})


def group_of(module: str) -> str:
    """`headrace.adapters.log.system` is in `adapters.log`, `headrace.core.keys.hashing` in `core`.

    Each adapter is a group of its own, so that none imports another.
    """
    parts = module.split(".")[1:]
    if not parts:
        return "headrace"
    return ".".join(parts[:2]) if parts[0] == "adapters" else parts[0]


def level_of(group: str) -> int:
    return LEVEL_OF[group] if group in LEVEL_OF else LEVEL_OF[group.partition(".")[0]]


def is_legal(importer: str, imported: str) -> bool:
    source, target = group_of(importer), group_of(imported)
    if target == "headrace":
        return source in {"headrace", *USERS_OF_THE_PUBLIC_NAMES}
    return source == target or level_of(target) < level_of(source)


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def home_of(imported: str) -> str | None:
    """The group that alone imports it: of the longest name in `ONLY_IN` that it is, or is in."""
    parts = imported.split(".")
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((ONLY_IN[name] for name in names if name in ONLY_IN), None)


def imports_of(tree: ast.AST, known: frozenset[str] = frozenset()) -> Iterator[tuple[str, int]]:
    """The modules that a tree imports, and the line: `from headrace import errors` imports `headrace.errors`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            submodules = [name for name in inner if name in known]
            yield from ((name, node.lineno) for name in submodules)
            if len(submodules) < len(inner):
                yield (node.module or "", node.lineno)


MODULES = modules()


def all_imports() -> Iterator[tuple[str, str, str]]:
    """(importer, imported, where) over all of the package."""
    for module, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for imported, line in imports_of(tree, frozenset(MODULES)):
            yield module, imported, f"{path.relative_to(ROOT)}:{line}"


def test_every_module_has_a_place_in_the_table() -> None:
    lost = [module for module in MODULES if group_of(module).partition(".")[0] not in LEVEL_OF]
    assert lost == [], "give it a level in LEVELS, and in the table of the documentation"


def test_imports_go_down_only() -> None:
    wrong = [
        f"{where}: {module} imports {imported}"
        for module, imported, where in all_imports()
        if imported.partition(".")[0] == "headrace" and not is_legal(module, imported)
    ]
    assert wrong == [], "\n".join(wrong)


def test_one_outside_technology_is_imported_by_one_package() -> None:
    wrong = [
        f"{where}: {imported} belongs in headrace.{home}"
        for module, imported, where in all_imports()
        if (home := home_of(imported)) is not None and group_of(module) != home
    ]
    assert wrong == [], "\n".join(wrong)


def test_what_decides_imports_the_standard_library_only() -> None:
    wrong = []
    for module, imported, where in all_imports():
        group, top = group_of(module), imported.partition(".")[0]
        allowed = top in sys.stdlib_module_names or top == "headrace" or (top == "xxhash" and group in HASHING)
        if group in PURE and not allowed:
            wrong.append(f"{where}: {module} imports {imported}")
    assert wrong == [], "\n".join(wrong)


def test_core_and_model_have_no_clock_randomness_or_input() -> None:
    forbidden = {"logging", "os", "random", "secrets", "socket", "subprocess", "tempfile", "threading", "time", "uuid"}
    wrong = [
        f"{where}: {module} imports {imported}"
        for module, imported, where in all_imports()
        if group_of(module) in {"core", "model"} and imported.partition(".")[0] in forbidden
    ]
    assert wrong == [], "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported", "legal"),
    [
        ("headrace.core.rounds.offset_ranges", "headrace.model.streams", True),
        ("headrace.model.streams", "headrace.core.rounds.offset_ranges", False),
        ("headrace.driver.rounds.sub_topology_runner", "headrace.adapters.log.system", False),
        ("headrace.adapters.log.system", "headrace.adapters.lmdb.store", False),
        ("headrace.adapters.log.system", "headrace.adapters.log.catalog", True),
        ("headrace.adapters.log.system", "headrace.ports.system", True),
        ("headrace.dsl.app_declaration", "headrace.wiring", False),
        ("headrace.wiring", "headrace.adapters.spark.session", True),
        ("headrace.config.loading", "headrace.config.keys", True),
        ("headrace.config.loading", "headrace.ports.system", False),
        ("headrace.dsl.app_declaration", "headrace", False),
        ("headrace.wiring.launch", "headrace", False),
        ("headrace.cli.commands", "headrace", True),
        ("headrace.cli.commands", "headrace.testing", False),
        ("headrace", "headrace.application", True),
    ],
)
def test_the_table_itself(importer: str, imported: str, legal: bool) -> None:
    assert is_legal(importer, imported) is legal


def test_imports_are_found_wherever_they_stand() -> None:
    text = "def f():\n    import lmdb\n    from headrace import errors, App\nif x:\n    from pyspark.sql import types\n"
    found = {name for name, _ in imports_of(ast.parse(text), frozenset({"headrace.errors"}))}
    assert found == {"lmdb", "headrace.errors", "headrace", "pyspark.sql"}


def test_importing_headrace_loads_nothing_heavy() -> None:
    heavy = ["pyspark", "py4j", "pyarrow", "numpy", "pandas", "lmdb", "sqlglot", "typer", "rich"]
    code = f"import sys, headrace; print(*[name for name in {heavy} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []


# In pieces, as this file is looked through as well.
HOSTS = [".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("maven", "org"), ("npmjs", "org"))]
HOST = re.compile("|".join(re.escape(host) for host in HOSTS))
ABSOLUTE_PATH = re.compile(r"(?<![\w.~/:}-])/[\w.-]+/[\w.-]+")
TOP_OF_ANY_MACHINE = frozenset({"bin", "dev", "etc", "proc", "sys", "usr", "var", "Library"})
TEXT_SUFFIXES = frozenset({".py", ".md", ".toml", ".txt", ".sh", ".json", ".yml", ".yaml", ".cfg", ".ini", ".html", ""})


def project_files() -> list[Path]:
    """What is committed, or would be: what git does not ignore; without git, what is in the known folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = ""  # an unpacked archive, or a machine without git
    if listed:
        return [ROOT / name for name in listed.split("\0") if name]
    folders = ("src", "tests", "docs", "examples", "bench", "scripts", ".ci")
    return [path for path in ROOT.iterdir() if path.is_file()] + [p for f in folders for p in (ROOT / f).rglob("*")]


def telltales_in(line: str) -> list[str]:
    """Hosts of registries, and paths that are there on this machine and need not be on another."""
    paths = [path for path in ABSOLUTE_PATH.findall(line) if path.split("/")[1] not in TOP_OF_ANY_MACHINE]
    return HOST.findall(line) + [path for path in paths if Path(path).exists()]


def test_telltales_are_found() -> None:
    assert telltales_in(f"see https://{HOSTS[0]}/simple") == [HOSTS[0]]
    assert telltales_in("run /usr/bin/python3, write log:./data/x, mount /no-such-folder/of-mine") == []
    top_two = "/".join(str(ROOT).split("/")[:3])
    if top_two.count("/") == 2 and top_two.split("/")[1] not in TOP_OF_ANY_MACHINE:
        assert telltales_in(f"cd {ROOT}") == [top_two]


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    wrong = []
    for path in project_files():
        if path.suffix not in TEXT_SUFFIXES or not path.is_file() or "__pycache__" in path.parts:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            wrong += [f"{path.relative_to(ROOT)}:{number}: {text}" for text in telltales_in(line)]
    assert wrong == [], "\n".join(wrong)
