"""Topics that grow: no client of this process goes by what it knew, and every broker tells of the new partitions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.adapters.kafka import topic_expansion
from headrace.adapters.kafka.admin import Admin, Topic
from headrace.adapters.kafka.connection import connection_of
from headrace.adapters.kafka.fetching import fetched
from headrace.adapters.kafka.system import KafkaSystem, open_system
from headrace.errors import IncompatibleChangeError, StorageError
from headrace.record import Record
from headrace.testing.kafka_server import KafkaServer
from kafka.clients import QUIET


@pytest.fixture
def system(kafka_server: KafkaServer) -> Iterator[KafkaSystem]:
    with open_system(f"kafka://{kafka_server.bootstrap}", {"wait.s": "20"}) as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def grow(kafka_server: KafkaServer, name: str, partitions: int) -> None:
    """As somebody else's tool does it; the broker tells of the new partitions when this returns."""
    admin = AdminClient({**kafka_server.client_settings(), **QUIET})
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(20)
    deadline_s = time.monotonic() + 20
    while len(admin.list_topics(name, timeout=10).topics[name].partitions) < partitions:
        assert time.monotonic() < deadline_s, f"{name} has not grown to {partitions} partitions"
        time.sleep(0.01)


class TestInThisProcess:
    def test_a_kept_consumer_reads_a_new_partition(self, system: KafkaSystem, name: str) -> None:
        system.create_stream(name, 1)
        system.produce(name, [Record(b"k", b"old", partition=0)])
        assert [len(offsets) for offsets, _ in fetched(system.client, name, 0, 0, 1, keep=True)] == [1]
        system.expand_stream(name, 4)
        system.produce(name, [Record(b"k", b"new", partition=3)])
        batches = [batch for _, batch in fetched(system.client, name, 3, 0, 1, keep=True)]
        assert [row["value"] for batch in batches for row in batch.to_pylist()] == [b"new"]

    def test_partitions_that_others_added_are_written_and_told_of(
        self, kafka_server: KafkaServer, system: KafkaSystem, name: str
    ) -> None:
        created = system.create_stream(name, 2)
        system.produce(name, [Record(b"k", b"v", partition=0)])
        system.pin({name: created.id}, {name: 2})
        assert sorted(system.end_offsets(name)) == [0, 1]
        grow(kafka_server, name, 4)
        looks: list[Callable[[], int]] = [
            lambda: len(system.end_offsets(name)),
            lambda: system.describe_stream(name).partitions,
            lambda: {stream.name: stream.partitions for stream in system.streams()}[name],
        ]
        assert [look() for look in looks] == [2, 2, 2]  # a job hears of them when it asks whether there are any
        deadline_s = time.monotonic() + 20
        while system.partition_counts([name, "not-there"]) != {name: 4}:
            assert time.monotonic() < deadline_s, "partitions that can be asked for their ends are not counted"
        assert [look() for look in looks] == [4, 4, 4]
        assert system.produce(name, [Record(b"k", b"v", partition=3)]) == 1
        assert system.end_offsets(name)[3] > 0

    def test_partitions_that_are_still_made_are_not_counted(
        self, kafka_server: KafkaServer, system: KafkaSystem, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        created = system.create_stream(name, 2)
        with open_system(f"kafka://{kafka_server.bootstrap}") as other:
            other.expand_stream(name, 4)
        system.pin({name: created.id}, {name: 2})
        unmade = {3}
        monkeypatch.setattr(system._admin, "unmade", lambda topic, partitions: sorted(unmade & set(partitions)))
        for left, count in (({3}, 2), (set(), 4), ({1}, 4)):  # of those that it knows it does not ask again
            unmade = left
            assert system.partition_counts([name]) == {name: count}
            assert len(system.end_offsets(name)) == count

    def test_a_plan_says_how_many_there_are_whichever_broker_has_not_heard_of_it(
        self, system: KafkaSystem, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A plan that another process has made, and brokers that answer as before once more."""
        former = system._topics.last(name) if system.create_stream(name, 2) else None
        assert former is not None
        system.pin({name: former.id}, {name: 2})
        system.expand_stream(name, 4)
        with monkeypatch.context() as patch:
            patch.setattr(system._topics, "_known", {name: former})
            patch.setattr(system._admin, "unmade", lambda topic, partitions: sorted(partitions))
            assert system.partition_counts([name]) == {name: 2}
            system.pin({name: former.id}, {name: 4})
            patch.setattr(system._admin, "topics", lambda names: {name: former})
            assert sorted(system.end_offsets(name)) == [0, 1, 2, 3]
            assert system.partition_counts([name]) == {name: 4}
        with monkeypatch.context() as patch:  # this process has known better itself
            system.partition_counts([name])
            system.pin({name: former.id}, {name: 2})
            patch.setattr(system._admin, "topics", lambda names: {name: former})
            for _ in range(2):
                assert system.partition_counts([name]) == {name: 4}
                assert sorted(system.end_offsets(name)) == [0, 1, 2, 3]

    def test_a_record_for_a_partition_that_is_not_there_is_an_error_after_a_moment(
        self, system: KafkaSystem, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from headrace.adapters.kafka import clients

        monkeypatch.setattr(clients, "GROWN_S", 0.2)
        system.create_stream(name, 1)
        producer = clients.new_producer(system.client, None, 0)
        clients.produce_all(producer, name, [(b"v", b"k", 0, 0, None)], [], 5.0)
        producer.flush(10)
        with pytest.raises(KafkaException) as raised:
            clients.produce_all(producer, name, [(b"v", b"k", 1, 0, None)], [], 5.0)
        assert raised.value.args[0].code() == KafkaError._UNKNOWN_PARTITION


class TestRefusals:
    @pytest.mark.parametrize("suffix", ["metadata", "checkpoints"])
    def test_bookkeeping_keeps_its_one_partition(self, system: KafkaSystem, name: str, suffix: str) -> None:
        system.metadata_store(name).request("partition-checks", b"{}")
        with pytest.raises(IncompatibleChangeError, match=f"'{name}-{suffix}' is the bookkeeping of application '{name}'"):
            system.expand_stream(f"{name}-{suffix}", 2)
        assert system.describe_stream(f"{name}-{suffix}").partitions == 1

    def test_who_comes_second_is_told_of_both_counts(self, kafka_server: KafkaServer, system: KafkaSystem, name: str) -> None:
        """Between the look and the request somebody else was quicker."""
        system.create_stream(name, 2)
        admin = Admin(system.connection)
        grow(kafka_server, name, 8)
        for partitions in (4, 8):
            with pytest.raises(IncompatibleChangeError, match=f"'{name}' has 8 partitions, .* expanded to {partitions}"):
                admin.add_partitions(name, partitions)

    def test_a_request_whose_answer_was_lost_is_no_error(
        self, system: KafkaSystem, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.create_stream(name, 2)
        admin = Admin(system.connection)
        requested, lost = admin._requested, []

        def losing(request: Any) -> Any:
            answer = requested(request)
            if not lost and name in answer and answer[name].result() is None:  # of `create_partitions` alone
                lost.append(name)
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "canary"))
            return answer

        monkeypatch.setattr(admin, "_requested", losing)
        admin.add_partitions(name, 4)
        assert lost == [name]
        assert system.describe_stream(name).partitions == 4


class Unaware:
    """A client that has heard that partitions have no leaders, and goes by that until it is made to ask."""

    def __init__(self) -> None:
        self.has_asked = False

    def list_topics(self, topic: str, timeout: float) -> None:
        self.has_asked = True

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
        futures: dict[Any, Future[Any]] = {place: Future() for place in wanted}
        for future in futures.values():
            if self.has_asked:
                future.set_result(SimpleNamespace(offset=7))
            else:
                future.set_exception(KafkaException(KafkaError(KafkaError._NOENT, "no leaders found")))
        return futures

    def describe_topics(self, topics: Any, request_timeout: float) -> dict[str, Future[Any]]:
        future: Future[Any] = Future()
        future.set_result(SimpleNamespace(partitions=[SimpleNamespace(leader=1)] * 2, topic_id="id"))
        return {"t": future}

    def poll(self, timeout: float) -> int:
        return 0


def test_what_a_client_has_heard_of_leaders_is_not_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin(connection_of("kafka://127.0.0.1:1", {"wait.s": "2"}))
    monkeypatch.setattr(admin, "_kept", Unaware())
    assert [admin.unmade(Topic("t", 2, "id"), [1]) for _ in range(2)] == [[1], []]
    monkeypatch.setattr(admin, "_kept", Unaware())
    assert admin.ends(Topic("t", 2, "id")) == {0: 7, 1: 7}


class Brokers:
    """Three brokers, and what each tells of topic `t`: its number of partitions, and how many of them have leaders."""

    def __init__(self) -> None:
        self.told = {1: (4, 4), 2: (4, 4), 3: (4, 4)}
        self.answers_as: dict[int, int] = {}  # who answers in a broker's place
        self.looks = 0
        self.left: list[list[int]] = []  # what is still to be made, look by look; then nothing
        self.asked: list[list[int]] = []

    def unmade(self, topic: Topic, partitions: Any) -> list[int]:
        self.asked.append(list(partitions))
        return self.left.pop(0) if self.left else []

    def listed(self, broker: int) -> Any:
        count, led = self.told[broker]
        leaders = {number: SimpleNamespace(leader=1 if number < led else -1) for number in range(count)}
        brokers = {number: SimpleNamespace(host="localhost", port=number) for number in self.told}
        return SimpleNamespace(
            orig_broker_id=broker, brokers=brokers, topics={"t": SimpleNamespace(error=None, partitions=leaders)}
        )


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    brokers = Brokers()

    class Client:
        def __init__(self, settings: dict[str, Any]) -> None:
            self.broker = int(settings["bootstrap.servers"].rpartition(":")[2])

        def list_topics(self, topic: str, timeout: float) -> Any:
            brokers.looks += 1
            return brokers.listed(brokers.answers_as.get(self.broker, self.broker))

    monkeypatch.setattr(topic_expansion, "AdminClient", Client)
    return brokers


def expand(brokers: Brokers, wait_s: float = 0.3) -> Topic:
    admin: Any = SimpleNamespace(
        connection=SimpleNamespace(client={}, wait_s=wait_s),
        listed=lambda topic: brokers.listed(1),
        add_partitions=lambda topic, partitions: None,
        unmade=brokers.unmade,
    )
    return topic_expansion.expanded(admin, Topic("t", 2, "id"), 4)


class TestEveryBroker:
    """The brokers here are a table of what each tells: one that lags behind another cannot be had of real ones."""

    def test_all_tell_of_them(self, brokers: Brokers) -> None:
        assert expand(brokers) == Topic("t", 4, "id")
        assert brokers.looks == 2

    @pytest.mark.parametrize("told", [(2, 2), (4, 3)])
    def test_one_that_lags_behind_is_waited_for(self, brokers: Brokers, told: tuple[int, int], monkeypatch: Any) -> None:
        brokers.told[3] = told

        def pause(seconds: float) -> None:
            if brokers.looks > 6:
                brokers.told[3] = (4, 4)

        monkeypatch.setattr(topic_expansion.time, "sleep", pause)
        assert expand(brokers, wait_s=30).partitions == 4
        assert brokers.looks > 6

    def test_one_that_never_tells_is_named(self, brokers: Brokers) -> None:
        brokers.told[2] = (2, 2)
        with pytest.raises(StorageError, match="'t' was expanded to 4 partitions, but broker 2 does not report all"):
            expand(brokers)

    def test_an_answer_of_another_broker_does_not_count(self, brokers: Brokers) -> None:
        brokers.answers_as = {3: 1}
        with pytest.raises(StorageError, match="broker 3 does not report"):
            expand(brokers)

    def test_one_that_leaves_the_cluster_is_not_waited_for(self, brokers: Brokers, monkeypatch: Any) -> None:
        brokers.told[2] = (2, 2)
        monkeypatch.setattr(topic_expansion.time, "sleep", lambda seconds: brokers.told.pop(2, None))
        assert expand(brokers, wait_s=30).partitions == 4

    def test_partitions_are_waited_for_as_long_as_the_brokers_go_on(self, brokers: Brokers, monkeypatch: Any) -> None:
        now_s = [0.0]
        clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=lambda seconds: now_s.append(now_s.pop() + 2))
        monkeypatch.setattr(topic_expansion, "time", clock)
        brokers.left = [[2, 3], [3], [3]]
        assert expand(brokers, wait_s=3).partitions == 4
        assert brokers.asked == [[2, 3], [2, 3], [3], [3]]
        brokers.left = [[3]] * 4
        with pytest.raises(StorageError, match="expanded to 4 partitions, and its partition 3 has no end offset"):
            expand(brokers, wait_s=3)
