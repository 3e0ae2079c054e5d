"""`Protobuf` against Google's library: messages of every kind of field, what is refused, and a job."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.errors import SchemaError, SerdeError, SetupError
from headrace.testing import Driver

Kind = descriptor_pb2.FieldDescriptorProto
INT32, INT64, UINT32, UINT64 = Kind.TYPE_SINT32, Kind.TYPE_INT64, Kind.TYPE_FIXED32, Kind.TYPE_UINT64
MANY, ONE_OF = Kind.LABEL_REPEATED, Kind.LABEL_OPTIONAL


def field(message: Any, number: int, name: str, kind: int, of: str = "", label: int = ONE_OF) -> Any:
    return message.field.add(name=name, number=number, type=kind, type_name=of or None, label=label)


def shop_file() -> Any:
    """`shop.Order` and what it holds, as protoc would compile it."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    for module in (struct_pb2, timestamp_pb2, wrappers_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    kinds = file.enum_type.add(name="Kind")
    kinds.value.add(name="NEW", number=0)
    kinds.value.add(name="OLD", number=1)
    item = file.message_type.add(name="Item")
    field(item, 1, "name", Kind.TYPE_STRING)
    order = file.message_type.add(name="Order")
    scalars = [("i", INT32), ("l", INT64), ("u", UINT32), ("ul", UINT64), ("d", Kind.TYPE_DOUBLE), ("f", Kind.TYPE_FLOAT)]
    scalars += [("b", Kind.TYPE_BOOL), ("s", Kind.TYPE_STRING), ("raw", Kind.TYPE_BYTES)]
    for number, (name, kind) in enumerate(scalars, 1):
        field(order, number, name, kind)
    field(order, 10, "kind", Kind.TYPE_ENUM, ".shop.Kind")
    field(order, 11, "item", Kind.TYPE_MESSAGE, ".shop.Item")
    field(order, 12, "items", Kind.TYPE_MESSAGE, ".shop.Item", MANY)
    field(order, 13, "numbers", INT32, label=MANY)
    entry = order.nested_type.add(name="SizesEntry")
    entry.options.map_entry = True
    field(entry, 1, "key", Kind.TYPE_STRING)
    field(entry, 2, "value", INT64)
    field(order, 14, "sizes", Kind.TYPE_MESSAGE, ".shop.Order.SizesEntry", MANY)
    field(order, 15, "at", Kind.TYPE_MESSAGE, ".google.protobuf.Timestamp")
    field(order, 16, "wrapped", Kind.TYPE_MESSAGE, ".google.protobuf.Int64Value")
    field(order, 17, "free", Kind.TYPE_MESSAGE, ".google.protobuf.Struct")
    order.oneof_decl.add(name="pay")
    field(order, 18, "card", Kind.TYPE_STRING).oneof_index = 0
    field(order, 19, "cash", INT32).oneof_index = 0
    order.oneof_decl.add(name="_note")
    note = field(order, 20, "note", Kind.TYPE_STRING)
    note.oneof_index, note.proto3_optional = 1, True
    tree = file.message_type.add(name="Tree")
    field(tree, 1, "children", Kind.TYPE_MESSAGE, ".shop.Tree", MANY)
    return file


def message_class(file: Any, name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    for module in (struct_pb2, timestamp_pb2, wrappers_pb2):
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


Order = message_class(shop_file(), "shop.Order")
SERDE = hr.Protobuf(Order)
TYPE = (
    "struct<i:int,l:bigint,u:bigint,ul:decimal(20,0),d:double,f:float,b:boolean,s:string,raw:binary,kind:string,"
    "item:struct<name:string>,items:array<struct<name:string>>,numbers:array<int>,sizes:map<string,bigint>,at:timestamp,"
    "wrapped:bigint,free:string,card:string,cash:int,note:string>"
)
INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ITEMS = st.fixed_dictionaries({"name": TEXTS})
PLAIN = {
    "i": INTS,
    "l": LONGS,
    "u": st.integers(0, 2**32 - 1),
    "ul": st.integers(0, 2**64 - 1).map(Decimal),
    "d": st.floats(allow_nan=False),
    "f": st.floats(width=32, allow_nan=False),
    "b": st.booleans(),
    "s": TEXTS,
    "raw": st.binary(max_size=6),
    "kind": st.sampled_from(["NEW", "OLD", "17"]),
    "item": st.none() | ITEMS,
    "items": st.lists(ITEMS, max_size=3),
    "numbers": st.lists(INTS, max_size=3),
    "sizes": st.dictionaries(TEXTS, LONGS, max_size=3),
    "at": st.none() | st.datetimes(timezones=st.just(UTC)),
    "wrapped": st.none() | LONGS,
    "free": st.none() | st.sampled_from(["{}", '{"a":[1.0,null],"b":{"c":"d"}}']),
    "note": st.none() | TEXTS,
}
PAYMENTS = st.sampled_from([{"card": None, "cash": None}, {"card": "x", "cash": None}, {"card": None, "cash": 0}])
ORDERS = st.builds(lambda plain, pay: plain | pay, st.fixed_dictionaries(PLAIN), PAYMENTS)


@settings(max_examples=60, deadline=None)
@given(st.lists(ORDERS, min_size=1, max_size=3))
def test_every_kind_of_field_comes_back_as_it_was(orders: list[dict[str, Any]]) -> None:
    encoded, failures = SERDE.encode_many([*orders, None])
    assert failures == []
    assert SERDE.decode_many(encoded) == ([*orders, None], [])
    typed, failures = SERDE.decode_arrow(encoded)
    assert failures == []
    assert SERDE.encode_arrow(typed)[0].to_pylist() == encoded.to_pylist()
    for order, data in zip(orders, encoded.to_pylist(), strict=False):
        message = Order.FromString(data)
        assert (message.l, message.s, list(message.numbers)) == (order["l"], order["s"], order["numbers"])
        assert message.SerializeToString(deterministic=True) == data == SERDE.encode(message)


def test_it_says_its_type_and_form() -> None:
    assert SERDE.spark_type == TYPE
    assert (SERDE.form, repr(SERDE)) == ("protobuf<shop.Order>", "Protobuf('shop.Order')")
    tree = hr.Protobuf(message_class(shop_file(), "shop.Tree"))
    assert tree.spark_type is None
    assert tree.decode(tree.encode({"children": [{}]})) == {"children": [{"children": []}]}


def test_what_is_missing_is_none_or_the_default() -> None:
    value = SERDE.decode(b"")
    absent = {name for name in value if value[name] is None}
    assert absent == {"item", "at", "wrapped", "free", "card", "cash", "note"}
    assert (value["i"], value["s"], value["kind"], value["items"]) == (0, "", "NEW", [])
    assert SERDE.encode({}) == SERDE.encode(value) == b""
    assert SERDE.decode(SERDE.encode({"item": {}, "note": "", "wrapped": 0}))["item"] == {"name": ""}


def test_equal_maps_are_equal_bytes() -> None:
    sizes = {str(number): number for number in range(20)}
    assert SERDE.encode({"sizes": sizes}) == SERDE.encode({"sizes": dict(reversed(sizes.items()))})


def test_a_descriptor_file_serves_as_well(tmp_path: Path) -> None:
    files = descriptor_pb2.FileDescriptorSet()
    for module in (struct_pb2, timestamp_pb2, wrappers_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    files.file.append(shop_file())
    path = tmp_path / "shop.desc"
    path.write_bytes(files.SerializeToString())
    serde = hr.Protobuf(path, "shop.Order")
    assert serde.spark_type == TYPE
    assert serde.encode({"s": "a"}) == SERDE.encode({"s": "a"})
    with pytest.raises(SchemaError, match=r"no message 'shop\.Gone'"):
        hr.Protobuf(str(path), "shop.Gone")
    with pytest.raises(SchemaError, match="without a message"):
        hr.Protobuf(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        hr.Protobuf(tmp_path / "gone.desc", "shop.Order")
    path.write_bytes(b"\xff\xff")
    with pytest.raises(SchemaError, match="no descriptors"):
        hr.Protobuf(path, "shop.Order")
    with pytest.raises(SchemaError, match="expected a generated message class, found type"):
        hr.Protobuf(int)


def test_it_travels_to_a_process_without_the_generated_class() -> None:
    program = "import pickle, sys; serde = pickle.load(sys.stdin.buffer); print(serde.decode(serde.encode({'s': 'a'}))['s'])"
    path = [entry for entry in sys.path if entry]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}"],
        input=pickle.dumps(SERDE),
        capture_output=True,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr.decode()) == (b"a", "")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"i": 2**31}, "field i"),
        ({"i": True}, "field i: expected a number"),
        ({"i": 1.5}, "field i"),
        ({"u": -1}, "field u"),
        ({"ul": Decimal("1.5")}, "field ul: expected a whole number"),
        ({"b": 1}, "field b: expected a bool"),
        ({"s": 1}, "field s"),
        ({"raw": "text"}, "field raw: expected bytes"),
        ({"kind": "LOST"}, "field kind: expected one of NEW, OLD"),
        ({"numbers": [1, None]}, "field numbers: a null in a list"),
        ({"items": {"name": "x"}}, "field items: expected a list"),
        ({"at": datetime(2026, 1, 1)}, "field at: expected a datetime with a zone"),  # noqa: DTZ001
        ({"item": {"nam": "x"}}, "field item: .*no field 'nam'"),
        ({"card": "a", "cash": 1}, "oneof pay"),
        ({"extra": 1}, "no field 'extra'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_named(change: dict[str, Any], said: str) -> None:
    encoded, failures = SERDE.encode_many([{"s": "good"}, change, None])
    assert encoded.is_valid().to_pylist() == [True, False, False]
    ((index, error),) = failures
    assert index == 1
    with pytest.raises(SerdeError, match=said):
        raise error


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_value_or_a_serde_error(data: bytes) -> None:
    good = SERDE.encode({"s": "x"})
    values, failures = SERDE.decode_arrow(pa.array([good, data]))
    assert values[0].is_valid
    assert all(index == 1 and isinstance(error, SerdeError) for index, error in failures)


def test_another_version_of_the_message_is_read() -> None:
    file = shop_file()
    field(file.message_type[1], 99, "added", Kind.TYPE_STRING)
    newer = hr.Protobuf(message_class(file, "shop.Order"))
    assert SERDE.decode(newer.encode({"s": "a", "added": "b"}))["s"] == "a"
    assert newer.decode(SERDE.encode({"s": "a"}))["added"] == ""
    assert newer.form == SERDE.form


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(SetupError, match=r"Protobuf needs the package google[\s\S]*headrace\[protobuf\]"):
        hr.Protobuf(Order)


def test_a_job_has_messages_as_keys_and_values() -> None:
    item = hr.Protobuf(message_class(shop_file(), "shop.Item"))
    app = hr.App("shop")
    orders = app.stream("orders", key=item, value=SERDE)
    orders.filter(lambda r: r.value["i"] > 0).group_by_key().count(store="counts").to("out")
    with Driver(app) as d:
        for number in (0, 1, 2):
            d.send("orders", {"name": "tea"}, {"i": number})
        d.run()
        assert [(r.key, r.value) for r in d.read("out")][-1] == ({"name": "tea"}, 2)
