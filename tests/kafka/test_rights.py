"""The rights that docs/kafka.md lists are enough for a job, and without one of them it is said which is missing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType, ResourceType

import headrace as hr
from headrace.cli.expand import job_models
from headrace.cli.stream_check import _smallest_count
from headrace.errors import StorageError, UnavailableError
from headrace.testing import KafkaServer
from kafka.clients import QUIET
from support.world import caught_up, waited

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(200)]
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",  # the brokers' own listeners are not secured
}
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
CREATE, DELETE, ALTER = AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaServer]:
    with KafkaServer(security="sasl_ssl", users={"alice": "alice-pw", "job": "job-pw"}, properties=AUTHORIZER) as kafka:
        yield kafka


def settings_of(server: KafkaServer, user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"{user}-pw",
        "ssl.ca.location": str(server.tls.ca_pem),
        "wait.s": "10",
    }


def rights_of(name: str) -> list[tuple[Any, str, Any, Any]]:
    """Those of the list in docs/kafka.md, for an application that reads `<name>.in` and writes `<name>.out`."""
    return [
        *((TOPIC, f"{name}.in", LITERAL, right) for right in (READ, DESCRIBE)),
        *((TOPIC, f"{name}.out", LITERAL, right) for right in (WRITE, DESCRIBE)),
        *((TOPIC, f"{name}-", PREFIXED, right) for right in (CREATE, DESCRIBE, READ, WRITE, DELETE)),
        *((GROUP, prefix, PREFIXED, READ) for prefix in (f"{name}.", f"{name}-", "headrace-readers")),
        *((ID, f"{name}/", PREFIXED, right) for right in (WRITE, DESCRIBE)),
        (ResourceType.BROKER, "kafka-cluster", LITERAL, DESCRIBE),
    ]


def grant(server: KafkaServer, rights: list[tuple[Any, str, Any, Any]]) -> None:
    admin = AdminClient({**server.client_settings("PLAIN"), **QUIET})
    bindings = [
        AclBinding(kind, name, pattern, "User:job", "*", right, AclPermissionType.ALLOW)
        for kind, name, pattern, right in rights
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)


def run(server: KafkaServer, name: str, folder: Path) -> None:
    app = hr.App(
        name,
        f"kafka://{server.bootstrap}",
        kafka=settings_of(server, "job"),
        local_store_dir=str(folder / "stores"),
    )
    rows = app.stream(f"{name}.in", key=hr.String(), value=hr.String())
    rows = rows.repartition(hr.Repartitioned(name="again", number_of_partitions=2))
    rows.group_by_key().count(store="counts").to_stream().to(f"{name}.out", value=hr.Long())
    caught_up(app)


def filled(server: KafkaServer) -> str:
    name = f"acl{uuid.uuid4().hex[:6]}"
    with hr.open_system(f"kafka://{server.bootstrap}", kafka=settings_of(server, "alice")) as system:
        system.create_stream(f"{name}.in", 2)
        system.create_stream(f"{name}.out", 2)
        system.produce(f"{name}.in", [(f"k{i % 5}", "v") for i in range(50)], key=hr.String(), value=hr.String())
    return name


def test_the_listed_rights_are_enough(
    guarded: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = filled(guarded)
    grant(guarded, rights_of(name))
    run(guarded, name, tmp_path)
    caplog.clear()
    run(guarded, name, tmp_path)
    unchecked = f"cannot check cleanup.policy of {name}-metadata and {name}-checkpoints"
    assert [one.levelname for one in caplog.records if unchecked in one.getMessage()] == ["WARNING"]
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "alice")) as system:
        counts = {r.key: r.value for r in system.consume(f"{name}.out", key=hr.String(), value=hr.Long())}
    assert counts == {f"k{i}": 10 for i in range(5)}


def test_to_expand_a_stream_takes_one_right_more(guarded: KafkaServer) -> None:
    name = filled(guarded)
    grant(guarded, rights_of(name))
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "job")) as system:
        with pytest.raises(StorageError, match=f"cannot add partitions to topic '{name}.in': (.|\\n)*has not the right to"):
            system.expand_stream(f"{name}.in", 4)
        grant(guarded, [(TOPIC, f"{name}.in", LITERAL, ALTER)])
        assert system.expand_stream(f"{name}.in", 4).partitions == 4
        assert len(system.end_offsets(f"{name}.in")) == 4


def test_a_right_that_is_missing_is_named(guarded: KafkaServer, tmp_path: Path) -> None:
    name = filled(guarded)
    grant(guarded, [right for right in rights_of(name) if right[0] is not ID])
    with pytest.raises(StorageError, match=r"(?i)authoriz|right"):
        run(guarded, name, tmp_path)


@pytest.mark.parametrize(
    ("of", "right", "named"),
    [("{}-", WRITE, "TOPIC_AUTHORIZATION_FAILED"), ("{}.in", READ, r"TOPIC_AUTHORIZATION_FAILED(.|\n)*{}\.in")],
)
def test_a_right_that_the_coordinator_lacks_is_named_and_not_waited_for(
    guarded: KafkaServer, tmp_path: Path, of: str, right: Any, named: str
) -> None:
    name = filled(guarded)
    lacking = (TOPIC, of.format(name), right)
    grant(guarded, [one for one in rights_of(name) if (*one[:2], one[3]) != lacking])
    if right is WRITE:  # the bookkeeping is there
        with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "alice")) as system:
            system.own_topics.ensure(name)
    with pytest.raises(StorageError, match=named.format(name) + r"(.|\n)*this user has not the right to") as error:
        run(guarded, name, tmp_path)
    assert not isinstance(error.value, UnavailableError), "it is tried no more"
    grant(guarded, [lacking_right for lacking_right in rights_of(name) if (*lacking_right[:2], lacking_right[3]) == lacking])
    run(guarded, name, tmp_path)


def test_who_may_not_read_checkpoints_may_request(guarded: KafkaServer) -> None:
    other = filled(guarded)
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "alice")) as system:
        system.own_topics.ensure(other)
        system.metadata_store(other).request("other", b"x")
    grant(guarded, [(TOPIC, f"{other}-", PREFIXED, DESCRIBE)])
    grant(guarded, [(TOPIC, f"{other}-metadata", LITERAL, right) for right in (READ, WRITE)])
    grant(guarded, [(GROUP, f"{other}-", PREFIXED, READ)])
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "job")) as system:
        assert waited(lambda: may(lambda: system.own_topics.is_initialized(other)))
        id_ = system.metadata_store(other).request("other", b"y")
        assert id_ in system.metadata_store(other).requests("other")


def test_metadata_that_may_be_seen_and_not_read_is_no_other_applications(guarded: KafkaServer, tmp_path: Path) -> None:
    name = filled(guarded)
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "alice")) as system:
        system.metadata_store(name).request("other", b"x")
    grant(guarded, [right for right in rights_of(name) if right[0] is not TOPIC or right[3] is not READ])
    missing = f"cannot read topic '{name}-metadata'(.|\\n)*has not the right to"
    with pytest.raises(StorageError, match=missing):
        run(guarded, name, tmp_path)
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "job")) as system:
        with pytest.raises(StorageError, match=missing):
            system.streams(of=name)
        grant(guarded, rights_of(name))
        assert waited(lambda: is_readable(system, name)), "what was refused once is asked again"
    run(guarded, name, tmp_path)


def may(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except StorageError:
        return False
    return True


def is_readable(system: Any, name: str) -> bool:
    try:
        return f"{name}.in" in [one.name for one in system.streams(of=name)]
    except StorageError:
        return False


def test_an_application_that_may_be_seen_and_not_read_may_read_a_stream(
    guarded: KafkaServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = filled(guarded)
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "alice")) as system:
        system.metadata_store(name).request("other", b"x")
        system.create_stream(f"{name}-again-repartition", 1, internal_of=name)
    grant(guarded, [(TOPIC, f"{name}.in", LITERAL, ALTER), (TOPIC, f"{name}.in", LITERAL, DESCRIBE)])
    grant(guarded, [(TOPIC, f"{name}-", PREFIXED, DESCRIBE)])
    with hr.open_system(f"kafka://{guarded.bootstrap}", kafka=settings_of(guarded, "job")) as system:
        assert name in system.applications()
        listed = {one.name: one.internal_of for one in system.streams()}
        assert listed[f"{name}.in"] is None and f"{name}-metadata" not in listed
        assert system.describe_stream(f"{name}-metadata").internal_of == name
        with pytest.raises(StorageError, match=f"(.|\\n)*'{name}-metadata'(.|\\n)*--force expands the stream without knowing"):
            job_models(system, False, "expands the stream")
        assert name not in [model.application for model in job_models(system, True, "expands the stream")]
        assert f"'{name}-metadata'" in capsys.readouterr().err
        assert _smallest_count(system, system.describe_stream(f"{name}.in")) == 2
        assert f"'{name}-metadata'" in capsys.readouterr().err
