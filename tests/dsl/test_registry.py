"""Serdes with a schema registry: evolution, subjects, who is to blame, waits, and secrets."""

from __future__ import annotations

import base64
import json
import pickle
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import api_pb2

import headrace as hr
from dsl import fake_registry
from dsl.fake_registry import FakeRegistry
from headrace.errors import ConfigError, RegistryError, SchemaError, SerdeError
from headrace.testing import Driver

V1 = {"type": "record", "name": "shop.Item", "fields": [{"name": "name", "type": "string"}]}
V2 = V1 | {"fields": [*V1["fields"], {"name": "price", "type": "long", "default": 7}]}
JSON_ITEM = {"title": "Item", "type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CANARY = "canary-5ecret"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry.running() as running:
        yield running


def quick(registry: FakeRegistry, **keys: Any) -> hr.SchemaRegistry:
    return hr.SchemaRegistry(registry.url, timeout_s=0.3, **keys)


# --- reading and writing --------------------------------------------------------------------------------------------


def test_what_an_older_schema_wrote_is_given_as_the_newer_one_has_it(registry: FakeRegistry) -> None:
    old, new = (hr.Avro(schema, registry=registry.url, subject="items-value") for schema in (V1, V2))
    first, second = old.encode({"name": "tea"}), new.encode({"name": "jam", "price": 2})
    assert (first[:5], second[:5]) == (b"\0\0\0\0\1", b"\0\0\0\0\2")
    assert first[5:] == hr.Avro(V1).encode({"name": "tea"})
    data = pa.array([first, None, second])
    expected = [{"name": "tea", "price": 7}, None, {"name": "jam", "price": 2}]
    assert new.decode_many(data) == (expected, [])
    assert new.decode_arrow(data)[0].to_pylist() == expected
    assert old.decode(second) == {"name": "jam"}
    assert old.form == new.form == "registry-avro<shop.Item>"


def test_a_schema_is_taken_from_the_registry_and_travels_with_the_serde(registry: FakeRegistry) -> None:
    registry.register("items-value", {"schema": json.dumps(V2)})
    serde = hr.Avro(registry=registry.url, subject="items-value")
    assert serde.spark_type == "struct<name:string,price:bigint>"
    asked = len(registry.requests)
    there = pickle.loads(pickle.dumps(serde))
    assert there == serde
    assert there.spark_type == serde.spark_type
    assert len(registry.requests) == asked
    assert there.decode(serde.encode({"name": "tea"})) == {"name": "tea", "price": 7}
    with pytest.raises(SchemaError, match="no subject 'gone'"):
        hr.Avro(registry=registry.url, subject="gone")


def test_a_schema_that_refers_to_another_is_read(registry: FakeRegistry) -> None:
    registry.register("kinds", {"schema": json.dumps({"type": "enum", "name": "shop.Kind", "symbols": ["A", "B"]})})
    outer = {"type": "record", "name": "shop.Outer", "fields": [{"name": "kind", "type": "shop.Kind"}]}
    reference = {"name": "shop.Kind", "subject": "kinds", "version": 1}
    registry.register("outer-value", {"schema": json.dumps(outer), "references": [reference]})
    serde = hr.Avro(registry=registry.url, subject="outer-value")
    assert serde.spark_type == "struct<kind:string>"
    assert serde.decode(serde.encode({"kind": "B"})) == {"kind": "B"}


def test_a_chain_of_too_many_references_is_refused_with_a_word(registry: FakeRegistry) -> None:
    def refers_to(number: int) -> dict[str, Any]:
        return {"name": f"shop.S{number}", "subject": f"s{number}", "version": 1}

    for number in range(1_101):
        body = {"schema": json.dumps({"type": "enum", "name": f"shop.S{number}", "symbols": ["A"]})}
        registry.register(f"s{number}", {**body, "references": [refers_to(number + 1)]})
    outer = {"schema": json.dumps({"type": "string"}), "references": [refers_to(0)]}
    registry.register("outer-value", outer)
    with pytest.raises(SchemaError, match="refers to more than 1000 others"):
        hr.Avro(registry=registry.url, subject="outer-value")


def test_only_looking_up_registers_nothing(registry: FakeRegistry) -> None:
    serde = hr.Avro(V1, registry=registry.url, subject="items-value", auto_register=False)
    with pytest.raises(RegistryError, match=r"items-value[\s\S]*auto_register"):
        serde.encode({"name": "tea"})
    assert registry.subjects == {}
    registry.register("items-value", {"schema": json.dumps(V1)})
    assert serde.encode({"name": "tea"})[:5] == b"\0\0\0\0\1"


def test_one_request_serves_all_records(registry: FakeRegistry) -> None:
    serde = hr.Avro(V1, registry=registry.url)
    encoded, _ = serde.encode_many([{"name": "tea"}] * 50)
    serde.decode_many(encoded)
    assert len(registry.requests) <= 2


def test_protobuf_names_its_message_in_its_file_and_registers_imports(registry: FakeRegistry) -> None:
    serde = hr.Protobuf(api_pb2.Method, registry=registry.url, subject="methods-value")
    data = serde.encode({"name": "get"})
    assert data[:7] == b"\0\0\0\0\1\2\2"  # a path of one step, to the second message of the file
    assert serde.decode(data)["name"] == "get"
    assert registry.schemas[1]["schemaType"] == "PROTOBUF"
    other = hr.Protobuf(api_pb2.Api, registry=registry.url, subject="methods-value")
    with pytest.raises(SerdeError, match=r"message \[1\] of its file, expected \[0\]"):
        other.decode(data)


def test_json_schema_is_held_against_its_writers_schema(registry: FakeRegistry) -> None:
    serde = hr.JsonSchema(JSON_ITEM, registry=registry.url, subject="j-value")
    data = serde.encode({"a": 1})
    assert data == b'\0\0\0\0\1{"a":1}'
    assert registry.schemas[1]["schemaType"] == "JSON"
    assert serde.decode(data) == {"a": 1}
    with pytest.raises(SerdeError, match="required property"):
        serde.decode(data[:5] + b"{}")
    with pytest.raises(SerdeError, match="is JSON: expected AVRO"):
        hr.Avro(V1, registry=registry.url).decode(data)


# --- a job ----------------------------------------------------------------------------------------------------------


def test_a_job_registers_under_the_names_of_its_streams(registry: FakeRegistry) -> None:
    app = hr.App("shop")
    items = app.stream("items", key=hr.String(), value=hr.Avro(V1, registry=registry.url))
    items.map_values(lambda r: r.value | {"price": 3}, value=hr.Avro(V2, registry=registry.url)).to("priced")
    with Driver(app) as d:
        d.send("items", "k", {"name": "tea"})
        d.run()
        assert [r.value for r in d.read("priced")] == [{"name": "tea", "price": 3}]
    assert set(registry.subjects) == {"items-value", "priced-value"}


def test_a_system_registers_under_the_name_of_the_stream(registry: FakeRegistry, tmp_path: Any) -> None:
    system = hr.open_system(f"log:{tmp_path / 'data'}")
    try:
        system.create_stream("items", 1)
        serde = hr.Avro(V1, registry=registry.url)
        system.produce("items", [("k", {"name": "tea"})], key=hr.String(), value=serde)
        assert [r.value for r in system.consume("items", value=serde)] == [{"name": "tea"}]
    finally:
        system.close()
    assert set(registry.subjects) == {"items-value"}


# --- who is to blame ------------------------------------------------------------------------------------------------


def test_an_unknown_id_fails_its_record_alone_and_is_asked_for_once(registry: FakeRegistry) -> None:
    serde = hr.Avro(V1, registry=registry.url)
    good = serde.encode({"name": "tea"})
    unknown = b"\0\0\0\0\x63x"
    values, failures = serde.decode_many(pa.array([unknown, good, unknown, b"\1bad", b"\0", b""]))
    assert values == [None, {"name": "tea"}, None, None, None, None]
    assert [index for index, _ in failures] == [0, 2, 3, 4, 5]
    assert "has no schema 99" in str(failures[0][1])
    assert "a 0 and 4 bytes of schema id" in str(failures[2][1])
    assert sum("/99" in request for request in registry.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_registry_that_refuses_is_no_records_fault(registry: FakeRegistry, status: int) -> None:
    registry.failing = status
    serde = hr.Avro(V1, registry=quick(registry))
    data = pa.array([b"\0\0\0\0\1x"])
    for attempt in (lambda: serde.encode_many([{"name": "tea"}]), lambda: serde.decode_many(data)):
        with pytest.raises(RegistryError, match=rf"{registry.url}.* {status}: told to fail"):
            attempt()


def test_a_slow_or_absent_registry_is_waited_for_a_bounded_time(registry: FakeRegistry) -> None:
    registry.slow_s = 1.5
    serde = hr.Avro(V1, registry=quick(registry))
    began = time.monotonic()
    with pytest.raises(RegistryError, match=r"no readable answer[\s\S]*waits 0\.3 s"):
        serde.decode(b"\0\0\0\0\1x")
    assert time.monotonic() - began < 20  # a bound, not a speed
    with pytest.raises(RegistryError, match="no readable answer"):
        hr.Avro(V1, registry=hr.SchemaRegistry("http://127.0.0.1:9", timeout_s=0.3)).encode({"name": "tea"})


# --- secrets --------------------------------------------------------------------------------------------------------


def test_passwords_open_the_registry_and_are_in_no_text(registry: FakeRegistry) -> None:
    registry.password = CANARY
    inside = registry.url.replace("//", f"//me:{CANARY}@")
    for given in (inside, hr.SchemaRegistry(registry.url, auth=("me", CANARY))):
        serde = hr.Avro(V1, registry=given, subject="items-value")
        assert serde.decode(serde.encode({"name": "tea"})) == {"name": "tea"}
        assert CANARY not in f"{serde!r} {serde.form} {hr.SchemaRegistry(inside)!r}"
        assert CANARY not in str(hr.SchemaRegistry(inside))
    registry.password = "another"
    wrong = hr.Avro(V1 | {"name": "Other"}, registry=hr.SchemaRegistry(inside, timeout_s=5.0))
    with pytest.raises(RegistryError, match="401") as caught:
        wrong.encode({"name": "tea"})
    shown = "".join(traceback.format_exception(caught.value))
    assert CANARY not in shown
    assert base64.b64encode(f"me:{CANARY}".encode()).decode() not in shown  # the server gives the header back
    with pytest.raises(ConfigError) as refused:
        hr.SchemaRegistry(f"me:{CANARY}@registry")
    assert CANARY not in str(refused.value)
