"""How a named value is stored in an application's metadata topic: its key is `<namespace>/<name>`, both quoted."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote


def entry_key(namespace: str, name: str) -> bytes:
    """The key of a record.

    >>> entry_key("startpoints", "a/b")
    b'startpoints/a%2Fb'
    """
    return f"{quote(namespace, safe='')}/{quote(name, safe='')}".encode()


def entries_of(stands: Mapping[bytes, bytes], namespace: str) -> dict[str, bytes]:
    """The values of a namespace, by name, in the order of the names; keys of other forms are somebody else's.

    >>> entries_of({b"a/1": b"x", b"b/2": b"y"}, "a")
    {'1': b'x'}
    """
    prefix = f"{quote(namespace, safe='')}/".encode()
    names = {key: unquote(key[len(prefix) :].decode("utf-8", "replace")) for key in stands if key.startswith(prefix)}
    return {name: stands[key] for key, name in sorted(names.items(), key=lambda item: item[1])}
