"""Every configuration key has a reader: one that nobody reads is a promise that nothing keeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace as hr
from headrace.config.loading import KEYS
from support.world import started

SOURCE = Path(__file__).parents[2] / "src" / "headrace"
OWN_MODULES = {"config.py", "config_keys.py"}  # these declare the keys, and read none for its meaning
RESERVED = ["metadata_store"]  # their one effect is that they are refused
_CONFIGS = {"config", "_config", "configured"}


def keys_read_in(text: str) -> Iterator[str]:
    """The keys that a module reads of a configuration: `config.KEY`, `self._config.KEY_of(...)`, `config_of(app).KEY`,
    `config["KEY"]`, `config.of("KEY", sub_topology)`."""
    for node in ast.walk(ast.parse(text)):
        yield from _read_of_one_sub_topology(node)
        if isinstance(node, ast.Attribute) and _is_config(node.value):
            yield node.attr.removesuffix("_of")
        elif isinstance(node, ast.Subscript) and _is_config(node.value) and isinstance(node.slice, ast.Constant):
            yield str(node.slice.value)


def _read_of_one_sub_topology(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Call(func=ast.Attribute(value=config, attr="of"), args=[ast.Constant(value=key), *_]) if _is_config(config):
            yield str(key)


def _is_config(node: ast.expr) -> bool:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _CONFIGS
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in ("_config", "config_of", "load_config")
    return False


def readers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {name: set() for name in KEYS}
    for path in SOURCE.rglob("*.py"):
        if path.name not in OWN_MODULES:
            for key in keys_read_in(path.read_text(encoding="utf-8")):
                found.get(key, set()).add(str(path.relative_to(SOURCE)))
    return found


def test_every_key_has_a_reader() -> None:
    unread = sorted(name for name, modules in readers().items() if not modules)
    assert unread == [], "documented, and without effect: read them, or take them out of config_keys"


def test_every_way_of_reading_a_key_is_known_and_nothing_else() -> None:
    text = (
        "config.max_lag; self._config.containers_of(None); config_of(app).system; config['state_uri']; "
        "container.location_id; KEYS['settle_time_s']; config.origins; config.of('autosizing', None); other.of('max_round_ms')"
    )
    assert set(keys_read_in(text)) & KEYS.keys() == {"max_lag", "containers", "system", "state_uri", "autosizing"}


def test_the_keys_that_a_plan_is_made_from_shape_plans() -> None:
    """Processors of a group compare their values. The others that are read there make no other plan; of how long local stores
    are kept, by which tasks come home, the leader's value counts."""
    text = (SOURCE / "driver" / "planning" / "observe.py").read_text(encoding="utf-8")
    read = set(keys_read_in(text)) & KEYS.keys()
    others = {"system", "event_time_warning_s", "local_store_retention_s"}
    assert {name for name, key in KEYS.items() if key.shapes_plan} == read - others


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_key_is_refused_at_the_line_of_the_app_and_documented_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(hr.NotSupportedError, match=rf"^{name} = 'somewhere' \(App\(\.\.\.\)\): .*\n.*leave it unset"):
        hr.App("reserved", f"log:{tmp_path / 'log'}", **{name: "somewhere"})
    assert "refused" in KEYS[name].meaning


@pytest.mark.parametrize("name", RESERVED)
def test_a_reserved_key_of_another_place_is_refused_at_the_start(tmp_path: Path, name: str) -> None:
    app = hr.App("reserved", f"log:{tmp_path / 'log'}")
    app.stream("in").to("out")
    said = rf"^{name} = 'somewhere' \(--set {name}\): .*\n.*leave it unset"
    with pytest.raises(hr.NotSupportedError, match=said):
        started(app, overrides=[f"{name}=somewhere"])
    assert not (tmp_path / "log").exists()


def test_a_metadata_store_is_refused_as_soon_as_it_can_be_told(tmp_path: Path) -> None:
    """Where the job's system is said may be elsewhere; a store of one's own is none, wherever it is."""
    system = f"log:{tmp_path / 'log'}"
    hr.App("same", system, metadata_store=system)
    app = hr.App("later", metadata_store=system)
    app.stream("in").to("out")
    with pytest.raises(hr.NotSupportedError, match=r"^metadata_store = "):
        started(app, overrides=["system=log:elsewhere"])

    class Own:
        def requests(self) -> None: ...

    with pytest.raises(hr.NotSupportedError, match="expected unset: one transaction"):
        hr.App("own", metadata_store=Own())
