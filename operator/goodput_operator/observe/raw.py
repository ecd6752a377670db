"""Reading raw JSON whose shape is not trusted."""

from collections.abc import Iterator, Mapping
from typing import Any

from goodput_operator.api.times import parse_time

Raw = Mapping[str, Any]


def at(raw: Any, *path: str) -> Any:
    """The value at a path of keys; None where a step is missing or is no object."""
    for key in path:
        if not isinstance(raw, Mapping):
            return None
        raw = raw.get(key)
    return raw


def mapping(raw: Any, *path: str) -> Raw:
    """The object at a path; empty when there is none."""
    value = at(raw, *path)
    return value if isinstance(value, Mapping) else {}


def mappings(raw: Any, *path: str) -> Iterator[Raw]:
    """The objects of the list at a path; anything else in it is passed over."""
    value = at(raw, *path)
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, Mapping))


def text(raw: Any, *path: str) -> str:
    """The string at a path; empty when there is none."""
    value = at(raw, *path)
    return value if isinstance(value, str) else ""


def integer(raw: Any, *path: str) -> int | None:
    """The integer at a path."""
    value = at(raw, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def truth(raw: Any, *path: str, default: bool = False) -> bool:
    """The boolean at a path."""
    value = at(raw, *path)
    return value if isinstance(value, bool) else default


def time(raw: Any, *path: str) -> float | None:
    """The time at a path, in POSIX seconds; None when there is none that can be read."""
    value = text(raw, *path)
    if not value:
        return None
    try:
        return parse_time(value)
    except ValueError:
        return None


def strings(raw: Any, *path: str) -> dict[str, str]:
    """The strings of the object at a path."""
    return {
        key: value
        for key, value in mapping(raw, *path).items()
        if isinstance(key, str) and isinstance(value, str)
    }


def controller(raw: Raw) -> Raw:
    """The owner reference of the object's controller; empty when there is none."""
    for owner in mappings(raw, "metadata", "ownerReferences"):
        if owner.get("controller") is True:
            return owner
    return {}


def conditions(raw: Raw) -> dict[str, Raw]:
    """``status.conditions`` by type."""
    return {text(item, "type"): item for item in mappings(raw, "status", "conditions")}
