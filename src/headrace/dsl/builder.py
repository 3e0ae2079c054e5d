"""The growing topology of one application: its nodes in order, and every name in it.

A name that state or positions hang on (a store, an aggregation, a repartition stream) is made of the nearest name that
the user gave before it on its path and the operator's kind: `flights` and `count` give `flights-count`. Stateless
operators added before, behind or beside it do not move it. Two that would get one name are refused, because any
number that told them apart would hand the state of the one to the other as soon as one of them is deleted.

Every other generated name is made of its parent's name and its kind (`flights-filter`, then `flights-filter-peek`), and
siblings of one kind are numbered among themselves. No counter reaches beyond one parent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import UnionType

from headrace.core.topology.shared_stores import check_shared
from headrace.core.topology.sub_topologies import sharers_of, short_name_of, stores_of, sub_topologies_of
from headrace.errors import TopologyError
from headrace.model.names import NAME_LENGTH_MAX, RESERVED, checked_own_name
from headrace.model.table_operators import TransformValues
from headrace.model.topology import Node, Process, Repartition, Sink, Source, SourceKind, StoreSpec, Topology

_GENERATED_LENGTH_MAX = 120  # of a chain of kinds; beyond it the middle becomes a digest


def operator_text(kind: str, name: str) -> str:
    """How errors and descriptions call an operator.

    >>> operator_text("aggregate", "delays")
    "aggregate('delays')"
    """
    return f"{kind}('{name}')"


class Builder:
    """The nodes of one application so far. A call that raises has added nothing."""

    def __init__(self, application: str) -> None:
        self.application = application
        self._nodes: list[Node] = []
        self._texts: dict[str, str] = {}  # operator name -> how it is called in errors
        self._stores: dict[str, str] = {}  # store name -> the operator that has it

    def topology(self) -> Topology:
        return Topology(self.application, tuple(self._nodes))

    def add(self, kind: str, node: Node) -> None:
        """Append `node`; `kind` is what errors call it."""
        assert node.name not in self._texts, f"two nodes named {node.name!r}: reserve a name first"
        self._texts[node.name] = operator_text(kind, node.name)
        for store in stores_of(node):
            self._stores[store.name] = self._texts[node.name]
        self._nodes.append(node)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Take back what was added inside where it ends in an error, for a call that adds step by step."""
        nodes, texts, stores = len(self._nodes), dict(self._texts), dict(self._stores)
        try:
            yield
        except BaseException:
            del self._nodes[nodes:]
            self._texts, self._stores = texts, stores
            raise

    def reserve(self, kind: str, name: str) -> None:
        """Keep `name` from other operators, for one that is written as several nodes and has none of its own."""
        self._texts[self.checked(kind, name)] = operator_text(kind, name)

    def name_of(self, kind: str, parent: str, given: str | None) -> str:
        """The name of a stateless operator behind `parent`: the one given, or the next free one of its kind there."""
        if given is not None:
            return self.checked(kind, given)
        base = _chained(parent, kind)
        name, number = base, 1
        while name in self._texts:
            number += 1
            name = f"{base}-{number}"
        return name

    def lasting_name_of(self, kind: str, anchor: str, given: str | None, say: str = "name") -> str:
        """The name of an operator that state hangs on; `say` is the argument by which the user may name it."""
        if given is not None:
            return self.checked(kind, given)
        name = f"{anchor}-{kind}"
        if name in self._texts or name in self._stores:
            bearer = self._texts.get(name) or f"the store of {self._stores[name]}"
            raise TopologyError(
                f"{kind} behind {anchor!r} would be named {name!r}, which {bearer} is named already",
                f'give it a name of its own, {kind}(..., {say}="..."): its state is found again under that name',
            )
        return self.checked(kind, name)

    def name_after_store(self, kind: str, store: str) -> str:
        """The name of an operator that the user has named by its store alone: that of the store, or with its kind where another
        operator has it. The operator's own name is in no state: that is found by the store's."""
        return self.checked(kind, f"{store}-{kind}" if store in self._texts else store)

    def checked_store(self, kind: str, name: str) -> str:
        """`name` if a new store may have it."""
        checked_own_name("store", name)
        if name in self._stores:
            raise TopologyError(
                f"store {name!r} of {kind}(): {self._stores[name]} has a store of that name",
                "give this one another name: only processors share stores",
            )
        return name

    def checked_processor_store(self, kind: str, store: StoreSpec) -> None:
        """`store` if a new processor may have it: a store of its own, or one that it shares with other processors."""
        processors = (node for node in self._nodes if isinstance(node, Process) and not isinstance(node, TransformValues))
        of_processors = {one.name for node in processors for one in node.stores}
        if store.name not in of_processors:
            self.checked_store(kind, store.name)

    def check_sharing(self, operator: str) -> None:
        """`TopologyError` where a processor cannot share the stores that it does: they are declared differently, or the others
        are in a sub-topology that can be no part of its own."""
        check_shared(self._nodes)
        if any(operator in sharers for sharers in sharers_of(self._nodes).values()):
            sub_topologies_of(self.topology())

    def repartition_stream(self, name: str) -> str:
        """`<application>-<name>-repartition`, the suffix not doubled; refused where it exists in this application.

        >>> Builder("shop").repartition_stream("by-user"), Builder("shop").repartition_stream("by-user-repartition")
        ('shop-by-user-repartition', 'shop-by-user-repartition')
        """
        checked_own_name("repartition", name)
        stream = f"{self.application}-{name.removesuffix('-repartition')}-repartition"
        short = short_name_of(self.application, stream)
        if short in RESERVED or not short:
            raise TopologyError(f"repartition name {name!r}: {short!r} is reserved", "choose another name")
        if len(stream) > NAME_LENGTH_MAX:
            raise TopologyError(
                f"repartition stream {stream!r}: {len(stream)} characters, at most {NAME_LENGTH_MAX} are allowed",
                "give it a shorter name",
            )
        if (node := self._with_stream(stream, Repartition | Source | Sink)) is not None:
            raise TopologyError(
                f"two repartitions with the name {short!r}: {self._texts[node.name]} has the stream {stream!r}",
                "give this one another name, or branch from the stream that the first repartition gives",
            )
        return stream

    def _with_stream(self, stream: str, kinds: type | UnionType) -> Source | Repartition | Sink | None:
        nodes = (node for node in self._nodes if isinstance(node, Source | Repartition | Sink) and isinstance(node, kinds))
        return next((node for node in nodes if node.stream == stream), None)

    def checked_source(self, stream: str, name: str | None) -> str:
        """The name of a new source of `stream`."""
        if (node := self._with_stream(stream, Source | Repartition)) is not None:
            what = "reads" if isinstance(node, Source) and node.kind is not SourceKind.REPARTITION else "writes"
            raise TopologyError(
                f"stream {stream!r} is declared twice: {self._texts[node.name]} {what} it already",
                "branch from the stream that the first call gave; in a notebook, make the App in the same cell",
            )
        return self.checked("stream", stream if name is None else name)

    def checked_sink(self, stream: str, parent: str, feedback: bool) -> str:
        """`stream` if this application may write it as an output, behind the operator `parent`. `feedback`: it may be what the
        records come of."""
        if (node := self._with_stream(stream, Repartition)) is not None:
            raise TopologyError(
                f"to({stream!r}): that is the internal stream of {self._texts[node.name]}", "write to a stream of another name"
            )
        if not feedback and (path := self._path_of(stream, parent)) is not None:
            raise TopologyError(
                f"to({stream!r}): this stream feeds itself ({' -> '.join([*path, stream])}): each record that it writes "
                "would be read again, without end",
                "write to a stream of another name; to look a result up again, keep it in a store; where records come to an "
                f"end, write to({stream!r}, feedback=True)",
            )
        return stream

    def _path_of(self, stream: str, end: str) -> list[str] | None:
        """The streams by which records of `stream` come to the operator `end`, None where they do not."""
        fed: dict[str, list[str]] = {}  # stream -> the streams that are made of it
        for node in self._nodes:
            if isinstance(node, Sink | Repartition) and isinstance(node.stream, str):
                for source in self.sources_of(node.name):
                    fed.setdefault(source, []).append(node.stream)
        goal, paths, seen = self.sources_of(end), [[stream]], {stream}
        for path in paths:  # which grows while it is walked: the shortest path first
            if path[-1] in goal:
                return path
            following = [each for each in fed.get(path[-1], ()) if each not in seen]
            seen.update(following)
            paths += [[*path, each] for each in following]
        return None

    def sources_of(self, operator: str) -> set[str]:
        """The streams from which records come to an operator within its sub-topology."""
        by_name = {node.name: node for node in self._nodes}
        found, left = set(), [operator]
        while left:
            node = by_name[left.pop()]
            left.extend(node.parents)
            if isinstance(node, Source):
                found.add(node.stream)
        return found

    def has_operator(self, name: str) -> bool:
        return name in self._texts

    def checked(self, kind: str, name: str) -> str:
        """`name` if a new operator of `kind` may have it."""
        checked_own_name("operator", name)
        if name in self._texts:
            bearer, hint = self._texts[name], "give one of them another name"
            if self._stores.get(name) == bearer:
                bearer += ", which is named as its store is,"
                hint += ", or declare this one first: an operator that is named by its store alone makes room"
            raise TopologyError(f"two operators with the name {name!r}: {bearer} and this {kind}()", hint)
        return name


def _chained(parent: str, kind: str) -> str:
    """`<parent>-<kind>`; a long chain keeps its beginning and its end, with a digest of all of it in between."""
    name = f"{parent}-{kind}"
    if len(name) <= _GENERATED_LENGTH_MAX:
        return name
    digest = hashlib.blake2b(name.encode(), digest_size=5).hexdigest()
    return f"{parent[:40].rstrip('.')}-{digest}-{kind}"
