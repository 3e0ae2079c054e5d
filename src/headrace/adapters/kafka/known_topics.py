"""The topics of a cluster as one system knows them, and which topic a job's stream is."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from headrace.adapters.kafka.admin import Admin, Topic
from headrace.adapters.kafka.broker_requests import LOG
from headrace.errors import IncompatibleChangeError, InvalidNameError, StorageError, StreamNotFoundError, hint_of_missing
from headrace.model.names import checked_to_look_up

ABSENT_S = 2.0  # for this long a broker that knows nothing of a topic may be one that has just started


class KnownTopics:
    """What brokers have last said of each topic. A job pins its streams: a topic that was deleted and made again under the name
    is another one, and one that grows does so when the job counts. `servers` are for messages. Threads may share it."""

    def __init__(self, admin: Admin, servers: str) -> None:
        self._admin, self._servers = admin, servers
        self._known: dict[str, Topic] = {}
        self._pinned: dict[str, tuple[str, int]] = {}  # by name the id, and how many partitions it has at least

    def pin(self, ids: Mapping[str, str], counts: Mapping[str, int]) -> None:
        """From now on `end_offsets` is of the streams with these ids only: positions and state are of them. They have `counts`
        partitions, whichever broker has not heard of that yet, and grow here when `partition_counts` shows it, which waits for
        nothing: a round that requested the ends of partitions that brokers still make would wait for those, with all others."""
        self._pinned = {name: (id_, counts.get(name, 0)) for name, id_ in ids.items()}

    def as_pinned(self, found: Topic) -> Topic:
        """The topic; if it is pinned, with the partitions that have been counted: no more of them, and none less."""
        id_, least = self._pinned.get(found.name, (None, 0))
        if id_ != found.id:
            return found
        known = self._known.get(found.name, found)
        counted = known if known.id == found.id else found
        return counted if counted.partitions >= least else replace(counted, partitions=least)

    def is_pinned(self, name: str) -> bool:
        return name in self._pinned

    def check_pinned(self, name: str) -> None:
        """`IncompatibleChangeError` where the pinned stream of this name was deleted, or deleted and recreated."""
        deadline_s = time.monotonic() + ABSENT_S
        while (topic := self.find(name)) is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
        if topic is None or topic.id != self._pinned[name][0]:
            happened = "was deleted" if topic is None else "was deleted and recreated"
            raise IncompatibleChangeError(
                f"stream {name!r} {happened} while the application runs: its positions and state belong to the deleted stream",
                "run the application under another name, to begin with the streams as they are",
            )

    @contextmanager
    def explaining(self, name: str) -> Iterator[None]:
        """Where a stream cannot be asked about: that it was deleted, if it was pinned and that is why."""
        try:
            yield
        except (StorageError, StreamNotFoundError):
            if name in self._pinned:
                self.check_pinned(name)
            raise

    def last(self, name: str) -> Topic | None:
        """As it was at the last request, without a request."""
        return self._known.get(name)

    def learn(self, topic: Topic) -> None:
        """It was made, or changed, just now."""
        self._known[topic.name] = topic

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def read(self, names: Collection[str]) -> list[Topic]:
        """These topics as they are now, by name. Others are not known any more."""
        self._known = {name: self.as_pinned(topic) for name, topic in self._admin.topics(names).items()}
        return sorted(self._known.values(), key=lambda topic: topic.name)

    def counts(self, streams: Collection[str]) -> dict[str, int]:
        """How many partitions they have now. A pinned stream has new ones when all of them can be written and read."""
        found = self._admin.topics(set(streams))
        for name, topic in found.items():
            known = self.as_pinned(topic)
            if unmade := self._admin.unmade(topic, range(known.partitions, topic.partitions)):
                LOG.info("stream %r: the brokers have yet to make %d of its new partitions", name, len(unmade))
            if unmade or topic.partitions < known.partitions:
                found[name] = known
        self._known |= found
        return {name: found[name].partitions for name in sorted(found)}

    def find(self, name: str) -> Topic | None:
        """The topic as it is now; None where there is none."""
        if not isinstance(name, str) or not name:
            return None
        found = self._admin.topics([name]).get(name)
        if found is not None:
            found = self._known[name] = self.as_pinned(found)
        else:
            self.forget(name)
        return found

    def get(self, name: str, *, known: bool = False) -> Topic:
        """The topic as it is now; with `known` as it was at the last request: partitions do not go away."""
        refuse_kafkas_own(checked_to_look_up("stream", name))
        topic = self._known.get(name) if known else None
        topic = topic or self.find(name)
        if topic is None:
            create = f"create it first: headrace stream create {name} --system kafka://{self._servers}"
            hint = hint_of_missing(str(name), self._admin.names(), create)
            raise StreamNotFoundError(f"stream {name!r} does not exist", hint)
        return topic


def refuse_kafkas_own(name: object) -> None:
    if isinstance(name, str) and name.startswith("__"):
        raise InvalidNameError(
            f"stream {name!r}: names that begin with two underscores are Kafka's own",
            "its tools show and change those; a stream of yours has another name",
        )
