"""What a processor of a group is started with: wrong inputs are refused before anything is opened, and what it registers."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.common.lease_holder import boot_id
from headrace.adapters.zookeeper.connection import connection_of
from headrace.config.loading import load_config
from headrace.group.layout import GroupName
from headrace.testing import Driver
from headrace.wiring import config_of
from headrace.wiring.group_terms import GroupTerms, check_group, is_in_group, open_group_of, open_terms
from headrace.wiring.spark_sessions import client_secrets
from headrace.wiring.worker.location import location_of
from support.zookeepers import RealPlace

NOWHERE = "zookeeper://127.0.0.1:1/headrace"


class Engine:
    """As much of one as the terms ask for."""

    slots = 3


def settings(folder: Path, **changed: Any) -> dict[str, Any]:
    good = {
        "system": "kafka://127.0.0.1:1",
        "coordinator": NOWHERE,
        "processor_id": "flights-1",
        "local_store_dir": str(folder / "stores"),
        "state_uri": str(folder / "state"),
    }
    return good | changed


def counting(config: dict[str, Any]) -> hr.App:
    app = hr.App("flights", config=config)
    app.stream("flights", key=hr.String(), value=hr.Long()).group_by_key().count().to_stream().to("counts", value=hr.Long())
    return app


def forwarding(config: dict[str, Any]) -> hr.App:
    app = hr.App("flights", config=config)
    app.stream("flights", key=hr.String(), value=hr.Long()).to("copies")
    return app


def refusal(app: hr.App, engine: Any = None) -> hr.HeadraceError:
    with pytest.raises(hr.HeadraceError) as refused:
        check_group(app, config_of(app), engine)
    assert refused.value.hint, "it says what to do"
    return refused.value


def test_what_is_well_set_is_not_refused(tmp_path: Path) -> None:
    for app in (counting(settings(tmp_path)), forwarding(settings(tmp_path, local_store_dir=None, state_uri=None))):
        assert is_in_group(config_of(app))
        check_group(app, config_of(app), None)
    for changed in (
        {"state_uri": "s3://bucket/state"},
        {"state_uri": "file:///state"},
        {"spark.master": "local[2]"},
        {"processor_id": "a.b_c-4" + "x" * 93},
        {"coordinator": "zookeeper://a:2181,b:2181/teams/flights"},
        {"elasticity_factor": 4, "autosizing": "off", "autosizing_factor_max": 8},
        {"containers": 4, "ssp_grouper": "all_ssps_to_every_task"},  # which says how many tasks there are
        {"zookeeper.session.timeout.ms": 3000, "zookeeper.digest.username": "me", "zookeeper.digest.password": "tiger"},
    ):
        app = counting(settings(tmp_path, **changed))
        check_group(app, config_of(app), None)


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"system": "log:./data"}, hr.NotSupportedError, "system 'log:./data': a group runs on Kafka"),
        ({"processing_guarantee": "at_least_once"}, hr.NotSupportedError, "a group commits exactly once"),
        ({"spark.master": "spark://127.0.0.1:1"}, hr.ConfigError, "spark.master 'spark://127.0.0.1:1' has executors on other"),
        ({"spark.master": "local-cluster[2,1,1024]"}, hr.ConfigError, "spark.master 'local-cluster"),
        ({"processor_id": None}, hr.ConfigError, "processor_id is not set"),
        ({"processor_id": "a/b"}, hr.ConfigError, "processor_id 'a/b': expected up to 100 letters"),
        ({"processor_id": "größe"}, hr.ConfigError, "processor_id 'größe'"),
        ({"processor_id": "x" * 101}, hr.ConfigError, "processor_id 'x"),
        ({"coordinator": "http://127.0.0.1:1/x"}, hr.ConfigError, "expected zookeeper://HOST:PORT/ROOT"),
        ({"coordinator": "zookeeper://127.0.0.1:1"}, hr.ConfigError, "there is no ROOT"),
        ({"coordinator": "zookeeper://127.0.0.1/x"}, hr.ConfigError, "'127.0.0.1' is no HOST:PORT"),
        ({"zookeeper.sesion.timeout.ms": 5}, hr.ConfigError, "zookeeper.sesion.timeout.ms is not known"),
        ({"zookeeper.session.timeout.ms": "5s"}, hr.ConfigError, "expected a number of milliseconds"),
        ({"zookeeper.digest.username": "me"}, hr.ConfigError, "zookeeper.digest.password is not set"),
        ({"application_id": "a-b"}, hr.InvalidNameError, "application_id 'a-b'"),
        ({"stage_id": "a b"}, hr.InvalidNameError, "stage_id 'a b'"),
        ({"local_store_dir": None}, hr.ConfigError, "is '.headrace/stores': in a group expected an absolute path"),
        ({"local_store_dir": "stores"}, hr.ConfigError, "local_store_dir is 'stores': in a group"),
        ({"local_store_dir": "/dev/null/stores"}, hr.SetupError, "/dev/null/stores for the local stores"),
        ({"state_uri": __file__}, hr.SetupError, ".py for the state files (state_uri) cannot be written: it is a file"),
        ({"state_uri": None}, hr.ConfigError, "state_uri is not set: in a group"),
        ({"state_uri": "state"}, hr.ConfigError, "state_uri 'state': in a group expected an absolute path or a URI"),
        ({"containers": 1}, hr.NotSupportedError, "containers is 1: in a group each slot of a processor is a container"),
        ({"containers.source": 3}, hr.NotSupportedError, "containers.source is 3: in a group"),
        ({"autosizing": "on"}, hr.NotSupportedError, "autosizing is 'on': the scale of a group does not follow the load"),
        ({"autosizing.source": "on"}, hr.NotSupportedError, "autosizing.source is 'on'"),
        ({"state_uri": "s3://me:tiger@bucket/state"}, hr.ConfigError, "state_uri holds a password"),
    ],
)
def test_a_wrong_setting_is_refused(tmp_path: Path, changed: dict[str, Any], kind: type, said: str) -> None:
    error = refusal(counting(settings(tmp_path, **changed)))
    assert type(error) is kind and said in error.message
    assert "tiger" not in str(error)


def test_handed_rounds_are_refused(tmp_path: Path) -> None:
    app = hr.App("flights", config=settings(tmp_path))
    app.stream("flights", key=hr.String(), value=hr.Json("a int")).for_each_round(lambda df, number: None, name="loading")
    error = refusal(app)
    assert isinstance(error, hr.NotSupportedError) and "for_each_round ('loading')" in error.message


def test_an_engine_of_ones_own_needs_no_local_spark(tmp_path: Path) -> None:
    app = forwarding(settings(tmp_path, **{"spark.master": "spark://127.0.0.1:1"}))
    check_group(app, config_of(app), Engine())  # type: ignore[arg-type]


def test_spark_submit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    error = refusal(forwarding(settings(tmp_path)))
    assert isinstance(error, hr.NotSupportedError) and "spark-submit" in error.message


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("kazoo", "headrace.adapters.zookeeper"))]:
        if name != "headrace.adapters.zookeeper.connection":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("headrace.adapters.zookeeper.opening", raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    error = refusal(forwarding(settings(tmp_path)))
    assert isinstance(error, hr.SetupError)
    assert error.message == "a group (`coordinator`) needs the package kazoo, which is not installed"
    assert error.hint == "pip install 'headrace[zookeeper]'"


def test_it_is_refused_before_spark_or_kafka_is_touched(tmp_path: Path) -> None:
    """There is no broker: Kafka's error would be another."""
    for changed, said in (({"processor_id": None}, "processor_id is not set"), ({"state_uri": None}, "state_uri is not set")):
        with pytest.raises(hr.ConfigError, match=said):
            counting(settings(tmp_path, **changed)).start()
    with pytest.raises(hr.ConfigError, match="coordinator is not set"):
        forwarding(settings(tmp_path, coordinator=None)).start()


def test_only_a_processor_of_a_group_has_an_id() -> None:
    with pytest.raises(hr.ConfigError, match=r"processor_id is 'a', and coordinator is not set"):
        is_in_group(load_config(None, {}, {"processor_id": "a"}))
    assert not is_in_group(load_config(None, {}, {}))


def test_the_test_driver_runs_an_application_of_a_group_alone(tmp_path: Path) -> None:
    with Driver(counting(settings(tmp_path))) as driver:
        driver.send("flights", "a", 1)
        driver.run()
        assert [record.value for record in driver.read("counts")] == [1]


# --- the terms ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def coordinator(real_zookeeper: RealPlace) -> str:
    return f"zookeeper://127.0.0.1:{real_zookeeper.server.port}/headrace"


def opened(app: hr.App, engine: Any = None) -> GroupTerms:
    return open_terms(app, config_of(app), engine)


def test_the_terms_are_those_of_the_settings_and_of_this_process(tmp_path: Path, coordinator: str) -> None:
    given = settings(tmp_path, coordinator=coordinator, job_id="7", **{"spark.master": "local[2]"})
    terms = opened(counting(given))
    try:
        found = terms.registration
        assert (found.processor_id, found.location_id, found.slots) == ("flights-1", socket.gethostname(), 2)
        assert (found.host, found.pid, found.boot_id) == (socket.gethostname(), os.getpid(), boot_id())
        assert found.process_started
        assert (terms.release_wait_s, terms.return_wait_s) == (10.0, 30.0)
        assert terms.group.paths.root == "/headrace/flights-1-flights-7-1"
        assert terms.group.state().members == (), "nothing is registered yet"
        terms.group.register(found)
        assert [one.registration for one in terms.group.state().members] == [found]
    finally:
        terms.group.close()


def test_each_term_follows_its_setting(tmp_path: Path, coordinator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACK_OF_A_TEST", "rack-7")
    location_of.cache_clear()
    given = settings(
        tmp_path,
        coordinator=coordinator,
        location_id="env:RACK_OF_A_TEST",
        group_release_wait_s=2,
        processor_return_wait_s=0,
        **{"zookeeper.session.timeout.ms": "7000"},
    )
    terms = opened(forwarding(given), Engine())
    try:
        assert (terms.registration.location_id, terms.registration.slots) == ("rack-7", 3)
        assert (terms.release_wait_s, terms.return_wait_s) == (2.0, 0.0)
        assert terms.group.lease.timeout_s == 7.0
    finally:
        terms.group.close()


def test_the_code_is_that_of_the_application_and_of_settings_that_shape_plans(tmp_path: Path, coordinator: str) -> None:
    def code(app: hr.App) -> str:
        terms = opened(app)
        terms.group.close()
        return terms.registration.code

    given = settings(tmp_path, coordinator=coordinator)
    same = [code(counting(given | {"processor_id": id_})) for id_ in "ab"]
    others = [code(forwarding(given)), code(counting(given | {"containers": 3}))]
    assert len({*same, *others}) == 3 and same[0] == same[1]


class Lost(hr.LocationIdProvider):
    def get_location_id(self) -> hr.LocationId:
        raise KeyError("rack")


def test_a_location_that_fails_names_its_class(tmp_path: Path, coordinator: str) -> None:
    place = f"{__name__}:Lost"
    with pytest.raises(hr.ConfigError, match=rf"location_id '{place}' raised KeyError: 'rack'"):
        opened(forwarding(settings(tmp_path, coordinator=coordinator, location_id=place)))


def test_a_server_that_is_not_there_is_an_error_in_time_that_names_it(tmp_path: Path) -> None:
    given = settings(tmp_path, **{"zookeeper.connect.timeout.ms": 500})
    began_s = time.monotonic()
    with pytest.raises(hr.UnavailableError, match=r"ZooKeeper at 127\.0\.0\.1:1 gave no answer within 0\.5 s"):
        opened(forwarding(given))
    assert time.monotonic() - began_s < 10
    config = load_config(None, {}, settings(tmp_path))
    with pytest.raises(hr.UnavailableError, match=r"within 0\.3 s"):
        open_group_of(config, "flights", wait_s=0.3)


def test_who_only_looks_sees_who_is_there_and_joins_nothing(tmp_path: Path, coordinator: str) -> None:
    app = forwarding(settings(tmp_path, coordinator=coordinator))
    looking = open_group_of(config_of(app), "flights", wait_s=5.0)
    terms = opened(app)
    try:
        assert not looking.is_there()
        terms.group.register(terms.registration)
        assert (looking.is_there(), looking.processors(), looking.sequence) == (True, 1, None)
    finally:
        terms.group.close()
        looking.close()


def test_passwords_are_not_shown_and_kept_from_spark(tmp_path: Path) -> None:
    given = {"zookeeper.digest.username": "me", "zookeeper.digest.password": "tiger-1", "zookeeper.sasl.password": "tiger-2"}
    config = load_config(None, {}, settings(tmp_path, **given, **{"kafka.sasl.password": "tiger-3"}))
    assert "tiger" not in repr(config) and "zookeeper.digest.username='me'" in repr(config)
    assert sorted(client_secrets(config)) == ["tiger-1", "tiger-2", "tiger-3"]


def test_the_settings_come_from_all_places(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("coordinator = 'zookeeper://a:1/x'\n[zookeeper.session.timeout]\nms = 3000\n")
    environ = {"HEADRACE_PROCESSOR_ID": "b", "HEADRACE_ZOOKEEPER__DIGEST__USERNAME": "me", "HEADRACE_JOB_ID": "2"}
    config = load_config(tmp_path, environ, {"zookeeper.digest.password": "tiger"}, ["application_id=3"])
    connection = connection_of(str(config.coordinator), config.zookeeper)
    assert (connection.servers, connection.session_timeout_s, connection.digest) == ("a:1", 3.0, "me:tiger")
    assert (config.processor_id, config.application_id, config.job_id) == ("b", "3", "2")
    assert GroupName("flights", "3", None, "2").node == "flights-3-flights-2-1"
