"""What is refused before Spark is started, as it could not work on a cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headrace as hr
from headrace.adapters.spark.required_settings import CLUSTER_SETTINGS, check
from headrace.adapters.spark.session import session_within
from headrace.config.loading import load_config
from headrace.wiring.cluster_terms import check_cluster_settings, check_state_uri
from headrace.wiring.folders import state_uri_of

GOOD = {"local_store_dir": "/var/stores", "state_uri": "/shared/state"}


def checked(**keys: Any) -> None:
    check_cluster_settings(load_config(None, {}, keys))


def test_folders_that_are_set_are_good() -> None:
    checked(**GOOD)
    checked(**GOOD | {"state_uri": "s3://bucket/state"})


@pytest.mark.parametrize(
    ("changed", "said", "advice"),
    [
        ({"local_store_dir": None}, "local_store_dir is '.headrace/stores'", "a folder on a local disk of each"),
        ({"local_store_dir": "stores"}, "local_store_dir is 'stores'.* an absolute path", "a folder on a local disk of each"),
        ({"state_uri": None}, "state_uri is not set", "shared folder"),
    ],
)
def test_a_default_for_one_machine_is_refused(changed: dict[str, Any], said: str, advice: str) -> None:
    with pytest.raises(hr.ConfigError, match=said) as refused:
        checked(**GOOD | changed)
    assert refused.value.hint is not None and advice in refused.value.hint


def test_it_is_refused_before_spark_or_the_system_is_touched(tmp_path: Path) -> None:
    app = hr.App("flights", "kafka://127.0.0.1:1", **{"spark.master": "spark://127.0.0.1:1"})
    app.stream("a", key=hr.String(), value=hr.Long()).group_by_key().count().to_stream().to("b", value=hr.Long())
    with pytest.raises(hr.ConfigError, match="local_store_dir is"):
        app.start()


def test_an_embedded_log_keeps_its_state_in_a_folder() -> None:
    for uri in (None, "/state", "file:///state"):
        check_state_uri(load_config(None, {}, {"system": "log:/data", "state_uri": uri}))
    with pytest.raises(hr.StateError, match=r"'s3://bucket/state': with an embedded log \(log:/data\)") as refused:
        check_state_uri(load_config(None, {}, {"system": "log:/data", "state_uri": "s3://bucket/state"}))
    assert refused.value.hint == "set `state_uri` to a folder, or `system` to Kafka"
    on_kafka = load_config(None, {}, {"system": "kafka://127.0.0.1:1", "state_uri": "s3://bucket/state"})
    check_state_uri(on_kafka)
    assert state_uri_of(on_kafka) == "s3://bucket/state"


def test_a_password_in_a_uri_is_refused_and_not_shown() -> None:
    with pytest.raises(hr.ConfigError) as refused:
        check_state_uri(load_config(None, {}, {"system": "kafka://a:1", "state_uri": "s3://me:tiger@bucket/state"}))
    assert "tiger" not in str(refused.value)


def test_settings_of_sparks_that_are_started_here_follow_the_master(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from headrace.adapters.spark.session import _chosen

    def chosen(settings: dict[str, str], submitted: dict[str, str]) -> dict[str, str]:
        return _chosen(settings, submitted, "app", tmp_path, [])

    here, there = chosen({}, {}), chosen({"spark.master": "spark://host-1:7077"}, {})
    assert here["spark.driver.host"] == "127.0.0.1" and "spark.network.timeout" not in here
    assert "spark.driver.host" not in there, "an address of loopback is none for executors"
    assert CLUSTER_SETTINGS.items() <= there.items() and there["spark.locality.wait"] == "3s"
    own = chosen({"spark.master": "yarn", "spark.network.timeout": "60s"}, {})
    assert own["spark.network.timeout"] == "60s"


@pytest.mark.parametrize("configured", ["local[2]", "spark://other:7077"])
def test_the_master_of_a_spark_submit_is_never_overridden(configured: str, tmp_path: Path) -> None:
    from headrace.adapters.spark.session import _chosen

    settings, submitted = {"spark.master": configured, "spark.my.one": "2"}, {"spark.master": "spark://host-1:7077"}
    found = _chosen(settings, submitted, "app", tmp_path, [])
    assert (found["spark.master"], found["spark.my.one"]) == ("spark://host-1:7077", "2")
    assert CLUSTER_SETTINGS.items() <= found.items()


DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}


@pytest.mark.parametrize("least", [{}, {"spark.dynamicAllocation.minExecutors": "0"}])
def test_a_spark_that_ends_all_idle_executors_is_refused(least: dict[str, str]) -> None:
    """It would start none again: without an executor no round is run, and without a Spark task Spark starts no executor."""
    conf = SimpleNamespace(get=(DYNAMIC | least).get)
    given = SimpleNamespace(sparkContext=SimpleNamespace(master="spark://127.0.0.1:7077", getConf=lambda: conf))
    with pytest.raises(hr.NotSupportedError, match=r"minExecutors is 0: Spark ends all executors") as why:
        session_within(given)
    assert why.value.hint is not None and "spark.dynamicAllocation.minExecutors=1 or more" in why.value.hint


def test_a_spark_that_keeps_an_executor_or_has_none_is_not_refused() -> None:
    check((DYNAMIC | {"spark.dynamicAllocation.minExecutors": "1"}).get, on_cluster=True)
    check(DYNAMIC.get, on_cluster=False)
    check({}.get, on_cluster=True)
    with pytest.raises(hr.NotSupportedError, match=r"spark.speculation is on"):
        check({"spark.speculation": "TRUE "}.get, on_cluster=False)
