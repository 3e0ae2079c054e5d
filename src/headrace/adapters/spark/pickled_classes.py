"""Classes of the user's own module, as they travel by value: dataclasses, TypedDicts, NamedTuples and msgspec structs too.

Where a class comes out there is no module of it, so the names in its annotations are resolved before. What msgspec keeps at a
class cannot be pickled, and is made again. A struct cannot be made empty and filled later, as cloudpickle makes classes: it
is made with its fields, and its types and methods are set then, as these may name it.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from inspect import get_annotations, signature
from io import BytesIO
from types import GetSetDescriptorType, MemberDescriptorType, new_class
from typing import Any

import msgspec
from pyspark import cloudpickle

_CACHE = "__msgspec_cache__"
_STRUCT = type(msgspec.Struct)
_OPTIONS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults", "forbid_unknown_fields", "weakref",
    "dict", "cache_hash",
)  # fmt: skip
# what dataclasses compares by identity, by its name there
_SINGLE = {id(value): name for name, value in vars(dataclasses).items() if type(value).__module__ == "dataclasses"}
_OF_META = tuple(name for name in signature(msgspec.Meta).parameters if name != "self")
_MADE = frozenset({"__slots__", "__match_args__", "__module__", "__qualname__", "__dict__", "__weakref__", _CACHE})


def pickled_by_value(value: Any) -> bytes:
    """`value` as bytes, of which `cloudpickle.loads` makes it again in another process."""
    with BytesIO() as file:
        _Pickler(file).dump(value)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    def reducer_override(self, obj: Any) -> Any:
        if (name := _SINGLE.get(id(obj))) is not None:
            return name
        if isinstance(obj, msgspec.Meta):
            return made_meta, ({name: value for name in _OF_META if (value := getattr(obj, name)) is not None},)
        reduced = super().reducer_override(obj)
        if not isinstance(obj, type) or not isinstance(reduced, tuple) or len(reduced) != 6:
            return reduced  # no class, or one that is found by its name
        if isinstance(obj, _STRUCT):
            return _reduced_struct(obj)
        if typing.is_typeddict(obj):
            return made_typed_dict, (obj.__name__,), _of_typed_dict(obj), None, None, set_attributes
        attributes = reduced[2][0]
        attributes.pop(_CACHE, None)
        if annotations := _annotations_of(obj):
            attributes["__annotations__"] = annotations
        return reduced


def _annotations_of(kind: Any) -> dict[str, Any]:
    """Those of the class itself; as they are where they name what is not there, which is nothing for a serde then."""
    own = get_annotations(kind)
    try:
        resolved = typing.get_type_hints(kind, include_extras=True)
    except Exception:  # whatever the user's annotations raise
        return own
    return {name: resolved.get(name, annotation) for name, annotation in own.items()}


def _of_typed_dict(kind: Any) -> dict[str, Any]:
    """One that inherits has all fields itself, and no bases to be made with."""
    kept = ("__module__", "__qualname__", "__doc__", "__total__", "__required_keys__", "__optional_keys__")
    return {name: getattr(kind, name) for name in kept} | {"__annotations__": _annotations_of(kind)}


def _reduced_struct(kind: Any) -> tuple[Any, ...]:
    config, annotations = kind.__struct_config__, _annotations_of(kind)
    options = {name: getattr(config, name) for name in _OPTIONS if hasattr(config, name)}
    if config.tag is not None:
        options |= {"tag": config.tag, "tag_field": config.tag_field}
    own = [name for name in kind.__struct_fields__ if name in annotations]
    options["kw_only"] = any(name not in kind.__match_args__ for name in own)
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    fields = {name: _field(names[name], defaults.get(name, msgspec.NODEFAULT)) for name in own}
    namespace = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    bases = kind.__dict__.get("__orig_bases__", kind.__bases__)
    later = {"__annotations__": annotations}
    for name, value in kind.__dict__.items():
        is_slot = isinstance(value, MemberDescriptorType | GetSetDescriptorType)
        if not is_slot and name not in _MADE and not name.startswith("__struct_"):
            later.setdefault(name, value)
    given = kind.__name__, bases, namespace, fields, options, "__post_init__" in kind.__dict__
    return made_struct, given, later, None, None, set_attributes


def _field(name: str, default: Any) -> dict[str, Any]:
    """What `msgspec.field` is given."""
    if default is msgspec.NODEFAULT:
        return {"name": name}
    if type(default).__name__ == "Factory":
        return {"name": name, "default_factory": default.factory}
    return {"name": name, "default": default}


def made_struct(
    name: str,
    bases: tuple[Any, ...],
    namespace: Mapping[str, Any],
    fields: Mapping[str, Mapping[str, Any]],
    options: Mapping[str, Any],
    has_post_init: bool,
) -> type:
    """A struct's class, without its methods and the types of its fields."""
    made = {**namespace, "__annotations__": dict.fromkeys(fields, Any)}
    made |= {field: msgspec.field(**given) for field, given in fields.items()}

    def post_init(self: Any) -> None:
        vars(kind)["__post_init__"](self)

    if has_post_init:  # msgspec takes it when the class is made, and its own is set later
        made["__post_init__"] = post_init
    kind: type = new_class(name, bases, dict(options), lambda body: body.update(made))
    return kind


def made_typed_dict(name: str) -> type:
    """One without its fields."""
    made: type = typing.TypedDict(name, {})  # type: ignore[misc]  # its name is not known here
    return made


def made_meta(given: Mapping[str, Any]) -> msgspec.Meta:
    return msgspec.Meta(**given)


def set_attributes(kind: type, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(kind, name, value)
