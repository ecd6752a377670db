"""The operator's settings: from ``GOODPUT_*`` variables and a YAML file, validated once."""

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from goodput_operator.domain.policy import DEFAULT_POLICY, Policy

PREFIX = "GOODPUT_"
FILE_VARIABLE = "GOODPUT_CONFIG"

MAX_PORT = 65_535
MIN_POLLS = 3
"""A Lease must be seen so many times before it can be stale."""


def _port_in_range(address: str) -> str:
    if int(address.rpartition(":")[2]) > MAX_PORT:
        raise ValueError(f"the port is beyond {MAX_PORT}")
    return address


def _split(names: Any) -> Any:
    """A variable holds several names with commas between them; a file has a list."""
    if isinstance(names, str):
        return [name.strip() for name in names.split(",") if name.strip()]
    return names


def _node_conditions(conditions: Any) -> Any:
    """``Type=Status`` each; the word ``none`` alone stands for none at all."""
    listed = _split(conditions)
    if listed == ["none"]:
        return ()
    return tuple(map(_node_condition, listed)) if isinstance(listed, list) else listed


def _node_condition(condition: Any) -> Any:
    if not isinstance(condition, str):
        return condition
    type_, _, status = condition.partition("=")
    if not type_ or status not in ("True", "False", "Unknown"):
        raise ValueError(
            f"{condition!r} is no condition: write it as Type=Status, with the status True, False "
            "or Unknown, as in KernelDeadlock=True"
        )
    if type_ == "Ready":
        raise ValueError("Ready is looked at anyway, as a node that is lost: leave it out")
    return type_, status


HostPort = Annotated[
    str,
    Field(pattern=r"^(\[[0-9a-fA-F:]+\]|[^\s:\[\]]+):[0-9]{1,5}$"),
    AfterValidator(_port_in_range),
]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class ConfigError(Exception):
    """The settings are unusable; the message names each variable, its value and the remedy."""


class Config(BaseModel):
    """All settings. A variable is the field in capitals after ``GOODPUT_``; it beats the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kubeconfig: str | None = Field(
        default=None, description="A kubeconfig file; the pod's service account when absent."
    )
    namespace: Namespace = Field(
        default="goodput-system", description="The operator's own namespace."
    )
    watch_namespaces: Annotated[tuple[Namespace, ...], BeforeValidator(_split)] = Field(
        default=(), description="Namespaces whose TrainingJobs are looked after; all when empty."
    )
    progress_listen: HostPort = Field(
        default="0.0.0.0:8443", description="Where the progress endpoint listens."
    )
    progress_address: HostPort | None = Field(
        default=None, description="host:port by which pods reach it; no progress when absent."
    )
    progress_status_interval_seconds: Positive = Field(
        default=30.0, description="How often progress that is not durable reaches the status."
    )
    progress_certificate_seconds: Positive = Field(
        default=3600.0, description="How often the endpoint's certificates are looked after."
    )
    health_listen: HostPort = Field(
        default="0.0.0.0:8080", description="Where /healthz, /readyz and /metrics are served."
    )
    log_format: Literal["json", "text"] = "json"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    relist_seconds: Positive = Field(
        default=300.0, description="How often everything is listed again, whatever was watched."
    )
    liveness_seconds: Positive = Field(
        default=180.0, description="How long the queue or all streams may stand still."
    )
    request_timeout_seconds: Positive = Field(
        default=15.0, description="Longest time for one request to the API server."
    )
    bind_seconds: Positive = DEFAULT_POLICY.bind_seconds
    start_seconds: Positive = DEFAULT_POLICY.start_seconds
    placement_tries: int = Field(default=DEFAULT_POLICY.placement_tries, ge=1)
    hold_seconds: Positive = DEFAULT_POLICY.hold_seconds
    shrink_seconds: NotNegative = DEFAULT_POLICY.shrink_seconds
    grow_after_seconds: NotNegative = DEFAULT_POLICY.grow_after_seconds
    grow_room_seconds: NotNegative = DEFAULT_POLICY.grow_room_seconds
    grow_per_hour: int = Field(default=DEFAULT_POLICY.grow_per_hour, ge=0)
    exclusion_seconds: Positive = DEFAULT_POLICY.exclusion_seconds
    requeue_base_seconds: Positive = DEFAULT_POLICY.requeue_base_seconds
    requeue_max_seconds: Positive = DEFAULT_POLICY.requeue_max_seconds
    restart_grace_seconds: int = Field(default=DEFAULT_POLICY.restart_grace_seconds, ge=0)
    attribution_seconds: Positive = DEFAULT_POLICY.attribution_seconds
    node_gone_seconds: Positive = DEFAULT_POLICY.node_gone_seconds
    settle_seconds: NotNegative = DEFAULT_POLICY.settle_seconds
    silence_window_seconds: Positive = DEFAULT_POLICY.silence_window_seconds
    silence_hold_seconds: NotNegative = DEFAULT_POLICY.silence_hold_seconds
    failures_per_node_day: Positive = DEFAULT_POLICY.failures_per_node_day
    failure_prior_weight: Positive = DEFAULT_POLICY.failure_prior_weight
    bad_node_conditions: Annotated[
        tuple[tuple[str, str], ...], BeforeValidator(_node_conditions)
    ] = Field(
        default=DEFAULT_POLICY.bad_node_conditions,
        description="Type=Status of node conditions with which no rank may be on a node; or none.",
    )
    move_seconds: NotNegative = DEFAULT_POLICY.move_seconds
    move_pause_seconds: NotNegative = DEFAULT_POLICY.move_pause_seconds
    node_penalty_half_life_seconds: Positive = DEFAULT_POLICY.node_penalty_half_life_seconds
    node_penalty_avoid: Positive = DEFAULT_POLICY.node_penalty_avoid
    node_avoid_seconds: NotNegative = DEFAULT_POLICY.node_avoid_seconds
    recheck_seconds: Positive = DEFAULT_POLICY.recheck_seconds
    lease_poll_seconds: Positive = Field(
        default=5.0, description="How often node Leases are listed, if they are."
    )
    lease_timeout_seconds: Positive | None = Field(
        default=None,
        validate_default=False,
        description="A node that has not renewed its Lease for so long is lost; not looked at "
        "when absent. At least three times GOODPUT_LEASE_POLL_SECONDS.",
    )

    @field_validator("lease_timeout_seconds")
    @classmethod
    def _long_enough(cls, timeout: float | None, info: ValidationInfo) -> float | None:
        poll = info.data.get("lease_poll_seconds", 0.0)
        if timeout is not None and timeout < MIN_POLLS * poll:
            raise ValueError(f"shorter than {MIN_POLLS} times the {poll:g} s between two looks")
        return timeout

    def policy(self) -> Policy:
        """The settings that decisions depend on."""
        return Policy(**{each.name: getattr(self, each.name) for each in fields(Policy)})


def load(environment: Mapping[str, str] | None = None, file: str | None = None) -> Config:
    """Read the settings. Raises ConfigError."""
    env = os.environ if environment is None else environment
    values = _from_file(file or env.get(FILE_VARIABLE))
    for name in Config.model_fields:
        text = env.get(PREFIX + name.upper())
        if text is not None and text != "":
            values[name] = text
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise ConfigError("; ".join(_describe(each) for each in error.errors())) from error


def _from_file(file: str | None) -> dict[str, Any]:
    if not file:
        return {}
    try:
        content = yaml.safe_load(Path(file).read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{FILE_VARIABLE}={file}: cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{FILE_VARIABLE}={file}: write it as lines of the form field: value")
    return content


def _describe(problem: Any) -> str:
    field = str(problem["loc"][0]) if problem["loc"] else ""
    known = Config.model_fields.get(field)
    variable = PREFIX + field.upper()
    if known is None:
        return f"{field}: no such setting; known are {', '.join(sorted(Config.model_fields))}"
    meaning = f" ({known.description})" if known.description else ""
    return (
        f"{variable}={problem['input']!r}: {problem['msg']}{meaning}; "
        f"unset it for the default {known.default!r}"
    )
