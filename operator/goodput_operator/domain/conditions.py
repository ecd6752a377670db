"""Merging conditions: the transition time moves only when the status does."""

from goodput_operator.api.status import Condition
from goodput_operator.api.times import format_time


def set_condition(
    conditions: tuple[Condition, ...],
    type_: str,
    status: bool,
    reason: str,
    message: str,
    now: float,
    generation: int | None = None,
) -> tuple[Condition, ...]:
    """The conditions with this one set, in the order in which the types first appeared."""
    value = "True" if status else "False"
    before = find(conditions, type_)
    since = (
        before.last_transition_time
        if before is not None and before.status == value
        else format_time(now)
    )
    after = Condition(
        type=type_,
        status=value,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if before is None:
        return (*conditions, after)
    return tuple(after if condition.type == type_ else condition for condition in conditions)


def find(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of this type, if there is one."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: tuple[Condition, ...], type_: str) -> bool:
    """Whether the condition of this type is there and true."""
    condition = find(conditions, type_)
    return condition is not None and condition.status == "True"
