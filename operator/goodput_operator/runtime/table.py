"""Rows of one kind of object, of which only the newest version is ever kept."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from goodput_operator.observe.raw import text

V = TypeVar("V")

MAX_GRAVES = 20_000
"""How many deleted objects are remembered, against answers that arrive late."""


class Name(NamedTuple):
    """Identifies an object of a kind at one time; the namespace is empty for cluster-wide ones."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one object, and one version of it, from another."""

    name: Name
    uid: str
    version: int

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "Identity":
        """Identity of a raw object. Versions are compared as integers, as the API now allows."""
        version = text(raw, "metadata", "resourceVersion")
        return cls(
            Name(text(raw, "metadata", "namespace"), text(raw, "metadata", "name")),
            text(raw, "metadata", "uid"),
            int(version) if version.isdecimal() else 0,
        )


@dataclass(slots=True)
class _Row(Generic[V]):
    identity: Identity
    value: V


class Table(Generic[V]):
    """Values by name. An older version never replaces a newer one; what was deleted stays so."""

    def __init__(self) -> None:
        self._rows: dict[Name, _Row[V]] = {}
        self._graves: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, name: Name) -> V | None:
        """The value of that name."""
        row = self._rows.get(name)
        return row.value if row else None

    def accepts(self, identity: Identity) -> bool:
        """Whether this version is news."""
        if identity.uid in self._graves:
            return False
        row = self._rows.get(identity.name)
        if row is None:
            return True
        if row.identity.uid == identity.uid:
            return identity.version > row.identity.version
        return identity.version >= row.identity.version

    def put(self, identity: Identity, value: V) -> V | None:
        """Keep a value that ``accepts`` has let pass; the value that it replaces."""
        row = self._rows.get(identity.name)
        self._rows[identity.name] = _Row(identity, value)
        return row.value if row else None

    def drop(self, identity: Identity) -> V | None:
        """Forget an object that was deleted; its last value, if it was known."""
        self._graves[identity.uid] = None
        if len(self._graves) > MAX_GRAVES:
            self._graves.popitem(last=False)
        row = self._rows.get(identity.name)
        if row is None or row.identity.uid != identity.uid:
            return None
        return self._rows.pop(identity.name).value

    def missing(self, listed: Collection[Name], version: int) -> list[Identity]:
        """What a list of that version no longer holds; what is newer than the list is kept."""
        return [
            row.identity
            for name, row in self._rows.items()
            if name not in listed and row.identity.version <= version
        ]
