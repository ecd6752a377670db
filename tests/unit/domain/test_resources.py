"""Quantities, vectors of them, and what a pod takes from its node."""

from decimal import ROUND_UP, Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goodput_operator.domain.resources import (
    MAX_UNITS,
    MILLI,
    Resources,
    format_quantity,
    parse_quantity,
    pod_requests,
)

GI = 2**30 * MILLI

FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("0", 0),
        ("8", 8000),
        ("500m", 500),
        ("0.5", 500),
        (".5", 500),
        ("5.", 5000),
        ("+2", 2000),
        ("-1.5", -1500),
        ("1k", 10**6),
        ("1Ki", 1024 * 1000),
        ("1.5Gi", 3 * 2**29 * 1000),
        ("1E", 10**21),
        ("1E3", 10**6),
        ("1e3", 10**6),
        ("1e+3", 10**6),
        ("12e-3", 12),
        (" 4 ", 4000),
        (4, 4000),
        (0.25, 250),
        (1e3, 10**6),
    ],
)
def test_reads_the_grammar_of_kubernetes(text: str | float, milli: int) -> None:
    assert parse_quantity(text) == milli


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("0.1m", 1),
        ("1n", 1),
        ("1u", 1),
        ("1500u", 2),
        ("-0.1m", -1),
        ("1e-400", 1),
        ("1.0001", 1001),
    ],
)
def test_rounds_away_from_zero(text: str, milli: int) -> None:
    assert parse_quantity(text) == milli


@pytest.mark.parametrize("text", ["8Ei", "1e30", "1e999999999", "99999999999999999999"])
def test_caps_what_kubernetes_cannot_hold(text: str) -> None:
    assert parse_quantity(text) == MAX_UNITS * MILLI


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        ".",
        "1 Gi",
        "1GB",
        "1ki",
        "1mi",
        "1e",
        "1e1.5",
        "--1",
        "1i",
        "nan",
        "inf",
        "٣",
        "1_0",
    ],
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("value", [True, None, [], float("nan"), float("inf")])
def test_refuses_values_that_are_no_number(value: Any) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(value)


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.integers(0, 10**7),
    fraction=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(FACTORS)),
)
def test_agrees_with_decimal_arithmetic(sign: str, whole: int, fraction: str, suffix: str) -> None:
    text = f"{whole}.{fraction}" if fraction else str(whole)
    with localcontext(prec=60):
        exact = Decimal(text) * FACTORS[suffix]
        milli = min(int((exact * 1000).quantize(Decimal(1), ROUND_UP)), MAX_UNITS * MILLI)
    assert parse_quantity(f"{sign}{text}{suffix}") == (-milli if sign == "-" else milli)


@given(whole=st.integers(0, 10**6), exponent=st.integers(-12, 12), letter=st.sampled_from("eE"))
def test_agrees_with_decimal_exponents(whole: int, exponent: int, letter: str) -> None:
    exact = Decimal(whole).scaleb(exponent + 3)
    expected = int(exact.quantize(Decimal(1), ROUND_UP))
    assert parse_quantity(f"{whole}{letter}{exponent}") == expected


@given(amount=st.integers(-(2**70), 2**70), resource=st.sampled_from(["cpu", "memory"]))
def test_formats_what_it_reads(amount: int, resource: str) -> None:
    assert parse_quantity(format_quantity(amount, resource)) == amount


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (8000, "nvidia.com/gpu", "8"),
        (1500, "cpu", "1500m"),
        (3 * GI // 2, "memory", "1536Mi"),
        (10**6, "memory", "1k"),
        (2 * GI, "hugepages-1Gi", "2Gi"),
        (0, "memory", "0"),
    ],
)
def test_formats_canonically(amount: int, resource: str, text: str) -> None:
    assert format_quantity(amount, resource) == text


VECTORS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "nvidia.com/gpu"]), st.integers(-50, 50)
).map(Resources)


@given(a=VECTORS, b=VECTORS, c=VECTORS)
def test_is_a_vector(a: Resources, b: Resources, c: Resources) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c) == Resources.sum([a, b, c])
    assert (a + b) - b == a
    assert a.less([b, c]) == a - (b + c)
    assert a * 3 == a + a + a
    assert (a - a).is_zero
    assert hash(a + b) == hash(b + a)


@given(
    need=st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(0, 9)).map(Resources),
    free=st.dictionaries(st.sampled_from(["cpu", "gpu"]), st.integers(-9, 90)).map(Resources),
)
def test_fits_exactly_when_nothing_is_short(need: Resources, free: Resources) -> None:
    assert need.fits_in(free) == (not need.shortfall(free))
    times = need.times_in(free)
    if times is None:
        assert need.is_zero
    else:
        assert times == 0 or (need * times).fits_in(free)
        assert not (need * (times + 1)).fits_in(free)


def test_what_is_not_asked_for_does_not_matter_even_if_over_committed() -> None:
    assert Resources({"cpu": 1}).fits_in(Resources({"cpu": 1, "memory": -5}))


def test_absent_and_zero_are_the_same() -> None:
    assert Resources({"cpu": 1, "gpu": 0}) == Resources({"cpu": 1})
    assert Resources({"cpu": 1, "gpu": 0}).get("gpu") == 0


def container(
    requests: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    sidecar: bool = False,
) -> dict[str, Any]:
    resources = {k: v for k, v in (("requests", requests), ("limits", limits)) if v is not None}
    made: dict[str, Any] = {"name": "c", "resources": resources}
    return made | {"restartPolicy": "Always"} if sidecar else made


CASES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "containers add up": (
        {"containers": [container({"cpu": "1"}), container({"cpu": "500m", "memory": "1Gi"})]},
        {"cpu": "1500m", "memory": "1Gi"},
    ),
    "a limit stands in for a missing request, resource by resource": (
        {"containers": [container({"cpu": "1"}, {"cpu": "4", "nvidia.com/gpu": "8"})]},
        {"cpu": "1", "nvidia.com/gpu": "8"},
    ),
    "a request of zero is a request": (
        {"containers": [container({"cpu": "0"}, {"cpu": "4"})]},
        {},
    ),
    "the largest init container counts where it is more": (
        {
            "containers": [container({"cpu": "1", "memory": "4Gi"})],
            "initContainers": [container({"cpu": "3"}), container({"memory": "1Gi"})],
        },
        {"cpu": "3", "memory": "4Gi"},
    ),
    "sidecars add to the containers": (
        {
            "containers": [container({"cpu": "1"})],
            "initContainers": [container({"cpu": "2"}, sidecar=True)],
        },
        {"cpu": "3"},
    ),
    "an init container runs beside the sidecars before it, not those after it": (
        {
            "containers": [container({"cpu": "1"})],
            "initContainers": [
                container({"cpu": "1"}, sidecar=True),
                container({"cpu": "4"}),
                container({"cpu": "2"}, sidecar=True),
            ],
        },
        {"cpu": "5"},
    ),
    "overhead is added": (
        {"containers": [container({"cpu": "1"})], "overhead": {"cpu": "250m", "memory": "1Mi"}},
        {"cpu": "1250m", "memory": "1Mi"},
    ),
    "requests of the pod as a whole replace the sum": (
        {
            "containers": [container({"cpu": "1", "nvidia.com/gpu": "1"})],
            "resources": {"requests": {"cpu": "6", "memory": "2Gi"}},
            "overhead": {"cpu": "1"},
        },
        {"cpu": "7", "memory": "2Gi", "nvidia.com/gpu": "1"},
    ),
    "requests of the pod for anything but CPU, memory and huge pages are ignored": (
        {
            "containers": [],
            "resources": {"requests": {"nvidia.com/gpu": "4", "hugepages-2Mi": "4Mi"}},
        },
        {"hugepages-2Mi": "4Mi"},
    ),
    "a limit of the pod gives way to requests of containers": (
        {
            "containers": [container({"cpu": "1"})],
            "resources": {"limits": {"cpu": "4", "memory": "2Gi"}},
        },
        {"cpu": "1", "memory": "2Gi"},
    ),
    "memory counts in whole bytes, as in the scheduler": (
        {"containers": [container({"cpu": "1m", "memory": "100m"})]},
        {"cpu": "1m", "memory": "1"},
    ),
    "nothing asked for": ({"containers": [{"name": "c"}]}, {}),
}


@pytest.mark.parametrize(("spec", "expected"), CASES.values(), ids=CASES.keys())
def test_pod_requests(spec: dict[str, Any], expected: dict[str, str]) -> None:
    assert pod_requests(spec) == Resources.parse(expected) + Resources({"pods": MILLI})


def test_an_unreadable_quantity_is_named() -> None:
    spec = {"containers": [{"name": "trainer", "resources": {"limits": {"memory": "64GB"}}}]}
    with pytest.raises(ValueError, match=r"trainer: resources\.limits\[memory\]: quantity '64GB'"):
        pod_requests(spec)


@pytest.mark.parametrize(
    "spec", [{"containers": ["c"]}, {"containers": [], "overhead": ["cpu"]}, {"containers": 3}]
)
def test_a_spec_that_no_pod_has_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be as in a pod"):
        pod_requests(spec)
