import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.api.times import format_micro_time, format_time, parse_time

YEAR_9000 = 221_845_392_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-31T08:00:00Z", 1769846400.0),
        ("2026-01-31T08:00:00.250000Z", 1769846400.25),
        ("2026-01-31T09:00:00+01:00", 1769846400.0),
    ],
)
def test_reads_what_the_api_writes(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-01-31", "2026-01-31T08:00:00"])
def test_refuses_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|isoformat"):
        parse_time(text)


@given(st.integers(0, YEAR_9000))
def test_whole_seconds_come_back(seconds: int) -> None:
    assert parse_time(format_time(seconds)) == seconds


@given(st.integers(0, 4_000_000_000_000_000))
def test_microseconds_come_back(micros: int) -> None:
    back = parse_time(format_micro_time(micros / 1e6))
    assert abs(back - micros / 1e6) < 2e-6


def test_fractions_are_cut_off() -> None:
    assert format_time(0.999) == "1970-01-01T00:00:00Z"
    assert format_micro_time(0.25) == "1970-01-01T00:00:00.250000Z"
