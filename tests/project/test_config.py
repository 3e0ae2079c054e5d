"""Configuration: precedence, refusals, values of sub-topologies, and the page that is made from the keys."""

from __future__ import annotations

import pickle
import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.loading import KEYS, Config, load_config
from headrace.core.job_plan.groupers import GroupByPartition
from headrace.driver.autosizing import policy_of
from headrace.errors import ConfigError

ROOT = Path(__file__).parents[2]


def config_of(**arguments: object) -> Config:
    return load_config(None, {}, arguments)


def write_toml(folder: Path, text: str) -> Path:
    (folder / "headrace.toml").write_text(text, encoding="utf-8")
    return folder


def test_nothing_set_gives_the_defaults() -> None:
    config = load_config(None, {"PATH": "/bin"}, {})
    assert dict(config) == {name: key.default for name, key in KEYS.items()}
    assert config.processing_guarantee == "exactly_once"
    assert config.containers is None
    assert config.origins == {}


def test_defaults_would_be_accepted_if_they_were_set() -> None:
    given_values = {name: key.default for name, key in KEYS.items() if key.default is not None}
    assert dict(config_of(**given_values)) == dict(config_of())


@given(st.sets(st.sampled_from(["file", "variable", "argument", "override"])))
def test_the_last_place_that_sets_a_key_wins(tmp_path_factory: pytest.TempPathFactory, places: set[str]) -> None:
    folder = tmp_path_factory.mktemp("app")
    if "file" in places:
        write_toml(folder, "max_round_ms = 1\n")
    config = load_config(
        folder,
        {"HEADRACE_MAX_ROUND_MS": "2"} if "variable" in places else {},
        {"max_round_ms": 3} if "argument" in places else {},
        ["max_round_ms=4"] if "override" in places else [],
    )
    rising = {"file": 1, "variable": 2, "argument": 3, "override": 4}
    assert config.max_round_ms == max((rising[place] for place in places), default=20_000)


def test_of_two_overrides_the_later_wins() -> None:
    assert load_config(None, {}, {}, ["max_lag=1", "max_lag=2"]).max_lag == 2


@pytest.mark.parametrize(
    ("argument", "text", "value"),
    [
        ("settle_time_s", "2.5", 2.5),
        ("settle_time_s", "3", 3.0),
        ("max_records_per_round", "50_000", 50_000),
        ("state_uri", "s3://bucket/a=b", "s3://bucket/a=b"),
        ("on_lost_offsets", "earliest", "earliest"),
    ],
)
def test_text_is_read_as_the_type_of_its_key(argument: str, text: str, value: object) -> None:
    from_variable = load_config(None, {f"HEADRACE_{argument.upper()}": text}, {})
    from_override = load_config(None, {}, {}, [f"{argument}={text}"])
    assert from_variable[argument] == from_override[argument] == value
    assert type(from_override[argument]) is type(value)


def test_tables_and_dotted_names_are_the_same(tmp_path: Path) -> None:
    tables = load_config(write_toml(tmp_path, "[containers]\nby-carrier = 2\n[kafka.client]\nid = 7\n"), {}, {})
    dotted = config_of(**{"containers.by-carrier": 2, "kafka": {"client.id": "7"}})
    assert tables == dotted
    assert dotted["kafka.client.id"] == "7"
    assert dotted.kafka == {"client.id": "7"}


def test_an_argument_that_is_none_is_not_set() -> None:
    assert load_config(None, {"HEADRACE_SYSTEM": "log:./other"}, {"system": None}).system == "log:./other"


def test_a_sub_topology_has_its_own_value_or_the_common_one() -> None:
    config = config_of(containers=8, **{"containers.by-carrier": 2, "max_records_per_round.source": 10})
    assert config.containers_of("by-carrier") == 2
    assert config.containers_of(None) == config.containers_of("views") == 8
    assert config.max_records_per_round_of(None) == 10
    assert config.max_records_per_round_of("by-carrier") == 1_000_000
    elastic = config_of(elasticity_factor=4, **{"elasticity_factor.source": 1, "elasticity_factor.views": 16})
    assert [elastic.elasticity_factor_of(name) for name in (None, "views", "by-carrier")] == [1, 16, 4]


def test_a_value_for_a_sub_topology_that_is_not_there_is_refused() -> None:
    config = config_of(**{"containers.by-carier": 2, "containers.source": 1})
    with pytest.raises(ConfigError, match=r"containers\.by-carier \(App\(\.\.\.\)\).*\n.*by-carrier, source"):
        config.check_sub_topologies(["by-carrier"])
    config.check_sub_topologies(["by-carier"])


def test_variables_keep_the_case_of_what_is_not_all_capitals() -> None:
    variables = {
        "HEADRACE_SPARK__sql__maxToStringFields": "9",
        "HEADRACE_KAFKA__BOOTSTRAP__SERVERS": "b:9092",
        "HEADRACE_CONTAINERS__Views": "3",
    }
    config = load_config(None, variables, {})
    assert config.spark == {"sql.maxToStringFields": "9"}
    assert config.kafka == {"bootstrap.servers": "b:9092"}
    assert config.containers_of("Views") == 3


def test_variables_of_the_test_suite_are_no_configuration() -> None:
    assert load_config(None, {"HEADRACE_TEST_STEPS": "kill:log:3:1"}, {}) == config_of()


@pytest.mark.parametrize(
    ("environ", "arguments", "overrides", "where"),
    [
        ({"HEADRACE_MAX_ROUNDS_MS": "1"}, {}, [], "environment variable HEADRACE_MAX_ROUNDS_MS"),
        ({}, {"max_rounds_ms": 1}, [], "App(...)"),
        ({}, {}, ["max_rounds_ms=1"], "--set max_rounds_ms"),
    ],
)
def test_an_unknown_key_names_the_nearest_and_where_it_was_set(
    environ: dict[str, str], arguments: dict[str, object], overrides: list[str], where: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, environ, arguments, overrides)
    assert "max_rounds_ms" in caught.value.message
    assert where in caught.value.message
    assert caught.value.hint == "did you mean 'max_round_ms'?"


def test_an_unknown_key_in_the_file_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write_toml(tmp_path, "[sprak]\nx = 1\n"), {}, {})
    assert str(tmp_path / "headrace.toml") in caught.value.message
    assert caught.value.hint == "did you mean 'spark.x'?"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"containers": True}, "expected a whole number, at least 1, found True"),
        ({"containers": 0}, "expected a whole number, at least 1, found 0"),
        ({"containers": "2"}, "expected a whole number, at least 1, found '2'"),
        ({"containers.views": 1.5}, "expected a whole number, at least 1, found 1.5"),
        ({"settle_time_s": float("nan")}, "found nan"),
        ({"settle_time_s": float("inf")}, "found inf"),
        ({"settle_time_s": -1}, "at least 0, found -1"),
        ({"system": ""}, "expected a text that is not empty, found ''"),
        ({"processing_guarantee": "exactly-once"}, "expected 'exactly_once' or 'at_least_once', found 'exactly-once'"),
        ({"ssp_grouper": 3}, "expected a text that is not empty or a grouper, found 3"),
        ({"elasticity_factor": 3}, "expected a power of two, found 3"),
        ({"elasticity_factor.by-carrier": 6}, "expected a power of two, found 6"),
        ({"elasticity_factor.source": 2048}, "expected at most 1,024, found 2,048"),
        ({"system.views": "log:x"}, "system has no value for one sub-topology"),
        ({"containers.": 1}, "containers has no value for one sub-topology"),
        ({"kafka": "b:9092"}, "as kafka.NAME"),
        ({"spark.jars": ["a"]}, "expected a text, a number or true/false, found list"),
    ],
)
def test_a_wrong_value_says_key_expected_found_and_where(arguments: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, arguments)
    (name,) = arguments
    assert caught.value.message.startswith(f"{name} (App(...)): ")
    assert expected in caught.value.message


def test_text_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"max_lag \(--set max_lag\): expected a whole number.*found 'much'"):
        load_config(None, {}, {}, ["max_lag=much"])


def test_an_override_without_a_value_is_refused() -> None:
    for override in ("max_lag", "=3", ""):
        with pytest.raises(ConfigError, match="expected KEY=VALUE"):
            load_config(None, {}, {}, [override])


def test_a_file_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"headrace\.toml is not valid TOML.*line 2"):
        load_config(write_toml(tmp_path, "max_lag = 1\nmax_lag =\n"), {}, {})


@pytest.mark.parametrize("factor", [1, 2, 4, 1024])
def test_a_factor_is_a_power_of_two_up_to_1024(factor: int) -> None:
    assert config_of(elasticity_factor=factor).elasticity_factor == factor
    with pytest.raises(ConfigError, match=r"elasticity_factor \(.*\): expected at most 1,024, found 2,048"):
        config_of(elasticity_factor=2048)


def test_a_grouper_may_be_an_object_or_named() -> None:
    assert config_of(ssp_grouper=GroupByPartition).ssp_grouper is GroupByPartition
    grouper = GroupByPartition()
    assert config_of(ssp_grouper=grouper).ssp_grouper is grouper
    assert config_of(ssp_grouper="mine:Grouper").ssp_grouper == "mine:Grouper"


@pytest.mark.parametrize(
    "override", ["max_round_ms=9000000000001", "idle_timeout_s=1e10", "containers=9007199254740992", "max_lag=" + "9" * 400]
)
def test_numbers_that_nothing_could_count_or_wait_for_are_refused(override: str) -> None:
    with pytest.raises(ConfigError, match=r"expected at most [0-9,]+, found ") as caught:
        load_config(None, {}, {}, [override])
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("override", ["state_uri=a\0b", "kafka.client.id=\udc9b", "spark.x=\0"])
def test_texts_that_can_be_given_to_nothing_are_refused(override: str) -> None:
    with pytest.raises(ConfigError):
        load_config(None, {}, {}, [override])


def test_passed_through_values_are_text_and_secrets_are_hidden() -> None:
    config = config_of(**{"spark.ui.enabled": False, "kafka.sasl.password": "hunter2", "kafka.linger.ms": 5})
    assert config.spark == {"ui.enabled": "false"}
    assert config.kafka == {"sasl.password": "hunter2", "linger.ms": "5"}
    assert "hunter2" not in repr(config)
    assert "kafka.sasl.password=***" in repr(config)


def test_a_refused_value_that_is_passed_through_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        config_of(**{"kafka.sasl.password": ["hunter2"]})
    assert "hunter2" not in str(caught.value)


def test_a_config_is_immutable_and_survives_pickling() -> None:
    config = config_of(containers=2, **{"containers.views": 3, "spark.a": "b"})
    with pytest.raises(AttributeError):
        config.containers = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.spark["a"] = "c"  # type: ignore[index]
    again = pickle.loads(pickle.dumps(config))
    assert again == config
    assert again.origins == config.origins


def test_as_a_mapping_it_has_what_it_lists() -> None:
    config = config_of(**{"containers.views": 3, "spark.a": "b", "kafka.c.d": "e"})
    assert len(config) == len(list(config)) == len(KEYS) + 3
    assert [config[name] for name in config][-3:] == [3, "e", "b"]
    assert "max_rounds_ms" not in config


def test_every_key_is_described() -> None:
    for key in KEYS.values():
        assert key.meaning.endswith("."), key
        assert key.meaning.count(". ") == 0, f"one sentence: {key}"


def test_the_page_is_what_the_keys_say() -> None:
    page = runpy.run_path(str(ROOT / "scripts" / "configuration_page.py"))["page"]()
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == page, "docs/configuration.md is out of date: run `make docs`"
    assert all(f"`{name}`" in page for name in KEYS)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"autosizing_factor_max": 12}, "autosizing_factor_max .*: expected a power of two, found 12"),
        ({"autosizing_factor_min.views": 2048, "autosizing_factor_max": 4096}, "expected at most 1,024"),
        ({"autosizing_factor_min": 32}, "autosizing_factor_min .*: expected at most autosizing_factor_max, 16, found 32"),
        ({"autosizing_containers_min": 2, "autosizing_containers_max.views": 1}, "at most autosizing_containers_max.views, 1"),
        ({"autosizing": "yes"}, "autosizing .*: expected 'off' or 'on'"),
    ],
)
def test_bounds_of_autosizing_that_cannot_be_kept_are_refused(keys: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config_of(**keys)


def test_a_sub_topology_may_have_its_own_autosizing() -> None:
    config = config_of(**{"autosizing.views": "on", "autosizing_factor_max.views": 64, "autosizing_catch_up_s": 5})
    assert policy_of(config, None) is None
    policy = policy_of(config, "views")
    assert policy is not None and (policy.factor_max, policy.catch_up_s, policy.containers_max) == (64, 5.0, None)
