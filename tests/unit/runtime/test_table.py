"""Any order of events ends in the newest state."""

from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.runtime.table import MAX_GRAVES, Identity, Name, Table

NAME = Name("ns", "a")


@given(st.permutations(range(1, 8)), st.booleans())
def test_the_newest_version_wins_in_any_order(versions: list[int], deleted: bool) -> None:
    table: Table[int] = Table()
    events = [*versions, 8] if deleted else list(versions)
    for version in events:
        identity = Identity(NAME, "uid", version)
        if version == 8:
            table.drop(identity)
        elif table.accepts(identity):
            table.put(identity, version)
    assert table.get(NAME) == (None if deleted else 7)


@given(
    st.permutations(
        [
            ("old", 1, "put"),
            ("old", 2, "put"),
            ("old", 3, "drop"),
            ("new", 4, "put"),
            ("new", 5, "put"),
        ]
    )
)
def test_a_successor_wins_over_its_predecessor_in_any_order(
    events: list[tuple[str, int, str]],
) -> None:
    table: Table[str] = Table()
    for uid, version, event in events:
        identity = Identity(NAME, uid, version)
        if event == "drop":
            table.drop(identity)
        elif table.accepts(identity):
            table.put(identity, f"{uid}{version}")
    assert table.get(NAME) == "new5"


def test_a_list_drops_what_vanished_but_nothing_newer_than_itself() -> None:
    table: Table[str] = Table()
    for name, version in (("gone", 5), ("listed", 6), ("created since", 12)):
        table.put(Identity(Name("ns", name), name, version), name)
    missing = table.missing({Name("ns", "listed")}, 10)
    assert [identity.name.name for identity in missing] == ["gone"]


def test_memory_of_deleted_objects_is_bounded() -> None:
    table: Table[int] = Table()
    for number in range(MAX_GRAVES + 10):
        table.drop(Identity(NAME, str(number), number))
    assert table.accepts(Identity(NAME, "0", 1))
    assert not table.accepts(Identity(NAME, str(MAX_GRAVES), 1))
