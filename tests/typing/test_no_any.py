"""No public function returns `Any`, or a container of it; and what users are promised is what runs."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import headrace as hr
from headrace import testing
from headrace.client.startpoints import Startpoints
from headrace.core.topology import description, description_types
from headrace.driver import job_status
from headrace.dsl import processor_context
from headrace.dsl.preview import Preview
from headrace.model.streams import StreamDescription
from headrace.wiring.worker.entry import run_container
from headrace.worker.inline_engine import InlineEngine
from headrace.worker.operators.processing import process, stores
from headrace.worker.operators.processing import timer_store as timers

GOLDEN = sorted((Path(__file__).parents[1] / "dsl" / "golden").glob("*.json"))
RETURNED = (Startpoints, Preview, StreamDescription, processor_context.NamedStore, processor_context.Metrics)
IMPLEMENTED = [
    (processor_context.ProcessorContext, process.ProcessorContext),
    (processor_context.Metrics, process.Metrics),
    (processor_context.KeyValueStoreView, stores.KeyValueStoreView),
    (processor_context.WindowStoreView, stores.WindowStoreView),
    (processor_context.Timer, timers.Timer),
]


def public() -> Iterator[tuple[str, object]]:
    """The public names, those of the test kit, and the classes of what their methods return."""
    yield from ((f"hr.{name}", getattr(hr, name)) for name in hr.__all__ if name not in ("testing", "__version__"))
    yield from ((f"hr.testing.{name}", getattr(testing, name)) for name in testing.__all__)
    yield from ((each.__name__, each) for each in RETURNED)


def functions_of(name: str, value: object) -> Iterator[tuple[str, Callable[..., object]]]:
    """The function, or the public methods and properties of the class, inherited ones too; overloads each."""
    if inspect.isfunction(value):
        yield from ((name, each) for each in [*typing.get_overloads(value), value])
    if not inspect.isclass(value):
        return
    for member_name in dir(value):
        member = inspect.getattr_static(value, member_name)
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if member_name.startswith("_") or not inspect.isfunction(function):
            continue
        if function.__module__.startswith("headrace"):
            yield from functions_of(f"{name}.{member_name}", function)


def returns_of(name: str, value: object) -> Iterator[tuple[str, str]]:
    for found, function in functions_of(name, value):
        yield found, str(function.__annotations__.get("return", "is missing"))


def holds_any(annotation: str) -> bool:
    return re.search(r"\bAny\b|is missing", annotation) is not None


def test_no_public_function_returns_any() -> None:
    returns = [found for name, value in public() for found in returns_of(name, value)]
    assert len(returns) > 300
    assert [f"{name} -> {annotation}" for name, annotation in returns if holds_any(annotation)] == []


def test_any_is_found_in_returns() -> None:
    class Open:
        def one(self) -> Any: ...

        @property
        def many(self) -> dict[str, Any]: ...

        def none(self) -> AnyOther: ...  # type: ignore[name-defined]  # noqa: F821

    Open.one.__module__ = Open.many.fget.__module__ = Open.none.__module__ = "headrace.open"  # type: ignore[attr-defined]
    assert {name for name, annotation in returns_of("Open", Open) if holds_any(annotation)} == {"Open.one", "Open.many"}


@pytest.mark.parametrize("module", [description_types, job_status])
def test_no_field_of_a_typed_dict_is_any(module: object) -> None:
    kinds = [kind for kind in vars(module).values() if typing.is_typeddict(kind)]
    assert len(kinds) >= 3
    for kind in kinds:
        assert "Any" not in str(typing.get_type_hints(kind))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_description_has_the_keys_and_types_of_its_type(path: Path) -> None:
    described = json.loads(path.read_text(encoding="utf-8"))
    assert msgspec.convert(described, hr.TopologyDescription, strict=True) == described


def test_the_keys_of_an_operator_are_those_that_are_written() -> None:
    described = [json.loads(path.read_text(encoding="utf-8")) for path in GOLDEN]
    found = {key for each in described for sub in each["sub_topologies"] for operator in sub["operators"] for key in operator}
    promised = set(description_types.OperatorDescription.__annotations__)
    source = inspect.getsource(description)
    assert found <= promised
    assert [key for key in promised if f'"{key}"' not in source] == [], "nothing writes these"


def test_a_status_has_the_keys_and_types_of_its_type(tmp_path: Path) -> None:
    app = hr.App("typed", system=f"log:{tmp_path}/log", state_uri=f"{tmp_path}/state", local_store_dir=f"{tmp_path}/local")
    app.stream("sales", key=hr.String(), value=hr.Long()).group_by_key().count(store="counts")
    with hr.open_system(f"log:{tmp_path}/log") as log:
        log.create_stream("sales", partitions=2)
        log.produce("sales", [("a", 1), ("b", 2)], key=hr.String(), value=hr.Long())
    status = app.run(until="caught-up", engine=InlineEngine(run_container), progress=False)
    assert msgspec.convert(status, hr.RunStatus, strict=True) == status
    assert status["sub_topologies"]["source"]["records"] == 2


@pytest.mark.parametrize(("promised", "running"), IMPLEMENTED, ids=lambda kind: kind.__name__)
def test_the_worker_has_what_a_processor_is_promised(promised: type, running: type) -> None:
    """Methods with the same arguments; the rest are attributes, which the operators' tests read."""
    methods = {name: member for name, member in vars(promised).items() if inspect.isfunction(member) and name[0] != "_"}
    for name, member in methods.items():
        of_running = inspect.signature(getattr(running, name)).parameters
        assert list(inspect.signature(member).parameters) == list(of_running), name
        for parameter in inspect.signature(member).parameters.values():
            has_default = parameter.default is not parameter.empty
            assert has_default == (of_running[parameter.name].default is not parameter.empty), f"{name}({parameter.name})"


def test_a_declaration_names_its_store_as_its_name_does(tmp_path: Path) -> None:
    class Counted(hr.Processor[str, int, str, int]):
        counts = hr.KeyValueStore("counts", value=hr.Long())
        stores = (counts,)

        def process(self, record: hr.Record) -> None:
            by_declaration, by_name = self.context.store(self.counts), self.context.store("counts")
            assert by_declaration is by_name
            by_declaration.put(by_declaration.get(0) + record.value)

    app = hr.App("declared")
    app.stream("sales", key=hr.String(), value=hr.Long()).process(Counted)
    with testing.Driver(app, directory=tmp_path) as d:
        d.send("sales", "a", 2)
        d.send("sales", "a", 3)
        d.run()
        assert d.store("counts").all() == {"a": 5}
