"""Settings: where they come from, and what an error says."""

from dataclasses import fields
from pathlib import Path

import pytest

from goodput_operator.config import Config, ConfigError, load
from goodput_operator.domain.policy import DEFAULT_POLICY, Policy


def test_without_any_settings_the_policy_is_the_default_one() -> None:
    assert load({}).policy() == DEFAULT_POLICY


NUMBERS = [each.name for each in fields(Policy) if each.name != "bad_node_conditions"]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_field_of_the_policy_can_be_set(name: str) -> None:
    config = load({f"GOODPUT_{name.upper()}": "7"})
    assert getattr(config.policy(), name) == 7


def test_a_variable_beats_the_file_and_the_file_the_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("hold_seconds: 5\nrelist_seconds: 6\nwatch_namespaces: [a, b]\n")
    config = load({"GOODPUT_CONFIG": str(file), "GOODPUT_HOLD_SECONDS": "9"})
    assert (config.hold_seconds, config.relist_seconds) == (9, 6)
    assert config.watch_namespaces == ("a", "b")
    assert config.log_format == "json"


def test_namespaces_are_a_list_with_commas_in_a_variable() -> None:
    assert load({"GOODPUT_WATCH_NAMESPACES": "team-a, team-b"}).watch_namespaces == (
        "team-a",
        "team-b",
    )
    assert load({"GOODPUT_WATCH_NAMESPACES": ""}).watch_namespaces == ()


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("GPUMissing=True", (("GPUMissing", "True"),)),
        ("A=True, example.com/B=False", (("A", "True"), ("example.com/B", "False"))),
        ("none", ()),
        ("", DEFAULT_POLICY.bad_node_conditions),
    ],
)
def test_bad_node_conditions_are_types_with_a_status(
    text: str, conditions: tuple[tuple[str, str], ...], tmp_path: Path
) -> None:
    config = load({"GOODPUT_BAD_NODE_CONDITIONS": text})
    assert config.policy().bad_node_conditions == conditions
    file = tmp_path / "config.yaml"
    file.write_text("bad_node_conditions: [GPUMissing=True]\n")
    assert load({}, str(file)).bad_node_conditions == (("GPUMissing", "True"),)


def test_variables_that_kubernetes_makes_of_services_are_passed_over() -> None:
    load({"GOODPUT_OPERATOR_SERVICE_HOST": "10.0.0.1", "GOODPUT_OPERATOR_PORT": "tcp://10.0.0.1:1"})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("GOODPUT_HOLD_SECONDS", "soon"),
        ("GOODPUT_HOLD_SECONDS", "0"),
        ("GOODPUT_PLACEMENT_TRIES", "2.5"),
        ("GOODPUT_LEASE_TIMEOUT_SECONDS", "14"),
        ("GOODPUT_LEASE_POLL_SECONDS", "0"),
        ("GOODPUT_BAD_NODE_CONDITIONS", "GPUMissing"),
        ("GOODPUT_BAD_NODE_CONDITIONS", "GPUMissing=yes"),
        ("GOODPUT_BAD_NODE_CONDITIONS", "A=True,Ready=False"),
        ("GOODPUT_NODE_PENALTY_AVOID", "0"),
        ("GOODPUT_SILENCE_HOLD_SECONDS", "-1"),
        ("GOODPUT_LOG_FORMAT", "xml"),
        ("GOODPUT_PROGRESS_ADDRESS", "https://somewhere:8443"),
        ("GOODPUT_PROGRESS_LISTEN", "8443"),
        ("GOODPUT_HEALTH_LISTEN", "0.0.0.0:70000"),
        ("GOODPUT_NAMESPACE", "Not A Namespace"),
    ],
)
def test_an_error_names_variable_value_and_remedy(variable: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load({variable: value})
    assert f"{variable}='{value}'" in str(caught.value)
    assert "unset it for the default" in str(caught.value)


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"GOODPUT_LOG_FORMAT.*GOODPUT_HOLD_SECONDS"):
        load({"GOODPUT_LOG_FORMAT": "xml", "GOODPUT_HOLD_SECONDS": "soon"})


def test_an_unknown_setting_in_the_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("hold_second: 5\n")
    with pytest.raises(ConfigError, match=r"hold_second: no such setting.*hold_seconds"):
        load({}, str(file))


@pytest.mark.parametrize("content", ["- a\n", "a: [\n"])
def test_a_file_that_is_no_mapping_is_an_error(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load({}, str(file))


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="/nowhere: cannot be read"):
        load({"GOODPUT_CONFIG": "/nowhere"})


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().hold_seconds = 1.0  # type: ignore[misc]


def test_leases_are_looked_at_only_when_a_timeout_is_set() -> None:
    assert load({}).lease_timeout_seconds is None
    config = load({"GOODPUT_LEASE_TIMEOUT_SECONDS": "25"})
    assert (config.lease_timeout_seconds, config.lease_poll_seconds) == (25, 5)


def test_a_lease_timeout_must_leave_time_for_a_few_looks() -> None:
    with pytest.raises(ConfigError, match="shorter than 3 times the 5 s between two looks"):
        load({"GOODPUT_LEASE_TIMEOUT_SECONDS": "14"})
