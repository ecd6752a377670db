"""Vectors of resources, and what a pod takes from its node.

Amounts are integers in thousandths of the resource's own unit, so that sums are exact: one core is
1000, one GPU is 1000, one byte of memory is 1000.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

MILLI = 1000
"""Thousandths in one unit."""
PODS = "pods"
CPU = "cpu"

MAX_UNITS = 2**63 - 1
"""Kubernetes caps a quantity here."""

_MAX_POWER = 40
"""A non-zero number with digits left of the point times this power of ten is beyond the cap."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BINARY_FORMAT = ("memory", "ephemeral-storage", "storage", "hugepages-")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Resources:
    """Amounts by resource name, in thousandths. A name that is absent has the amount 0.

    Amounts may be negative: what is free on an over-committed node is.
    """

    amounts: Mapping[str, int]
    """Never holds a zero; do not change it."""

    def __init__(self, amounts: Mapping[str, int] | Iterable[tuple[str, int]] = ()) -> None:
        kept = dict(amounts)
        if 0 in kept.values():
            kept = {name: amount for name, amount in kept.items() if amount}
        object.__setattr__(self, "amounts", kept)

    @classmethod
    def parse(cls, quantities: Mapping[str, Any] | None) -> "Resources":
        """From a ``ResourceList`` as the API has it, such as ``{"cpu": "500m"}``.

        Raises ValueError when a quantity cannot be read.
        """
        return cls(_parse_list(quantities))

    @classmethod
    def sum(cls, parts: Iterable["Resources"]) -> "Resources":
        """All of them together."""
        total: dict[str, int] = {}
        for part in parts:
            _add(total, part.amounts)
        return cls(total)

    def __add__(self, other: "Resources") -> "Resources":
        total = dict(self.amounts)
        _add(total, other.amounts)
        return Resources(total)

    def __sub__(self, other: "Resources") -> "Resources":
        return self.less((other,))

    def less(self, parts: Iterable["Resources"]) -> "Resources":
        """What is left of this once all the parts are taken from it."""
        rest = dict(self.amounts)
        for part in parts:
            for name, amount in part.amounts.items():
                rest[name] = rest.get(name, 0) - amount
        return Resources(rest)

    def __mul__(self, times: int) -> "Resources":
        return Resources({name: amount * times for name, amount in self.amounts.items()})

    __rmul__ = __mul__

    def __hash__(self) -> int:
        return hash(frozenset(self.amounts.items()))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Names and amounts, sorted by name."""
        return iter(sorted(self.amounts.items()))

    def __repr__(self) -> str:
        listed = ", ".join(f"{name}={format_quantity(amount, name)}" for name, amount in self)
        return f"Resources({listed})"

    @property
    def is_zero(self) -> bool:
        """Whether every amount is 0."""
        return not self.amounts

    def get(self, name: str) -> int:
        """The amount of one resource, in thousandths; 0 when absent."""
        return self.amounts.get(name, 0)

    def fits_in(self, free: "Resources") -> bool:
        """Whether ``free`` has room for this.

        As in kube-scheduler, a resource that is not asked for never matters, even where its free
        amount is negative.
        """
        room = free.amounts
        return all(
            amount <= 0 or amount <= room.get(name, 0) for name, amount in self.amounts.items()
        )

    def times_in(self, free: "Resources") -> int | None:
        """How many times this fits in ``free``, never negative; None: without limit."""
        room = free.amounts
        times: int | None = None
        for name, amount in self.amounts.items():
            if amount > 0:
                here = max(0, room.get(name, 0)) // amount
                if times is None or here < times:
                    times = here
        return times

    def shortfall(self, free: "Resources") -> dict[str, int]:
        """What ``free`` lacks to hold this, by resource, sorted by name; empty when it fits."""
        return {
            name: amount - free.get(name)
            for name, amount in self
            if amount > 0 and amount > free.get(name)
        }


def parse_quantity(value: str | int | float) -> int:
    """A Kubernetes quantity in thousandths, rounded away from zero.

    The grammar is that of ``k8s.io/apimachinery/pkg/api/resource.Quantity``: a decimal number with
    a binary suffix (Ki … Ei), a decimal one (n, u, m, k, M, G, T, P, E) or an exponent. Magnitudes
    above 2^63 - 1 units are capped. Raises ValueError for anything else.
    """
    if isinstance(value, str):
        return _parse_text(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"quantity {value!r} is neither a string nor a number")
    return _parse_text(str(value))


@lru_cache(maxsize=16_384)
def _parse_text(text: str) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"quantity {text!r} is not a number with an optional suffix, such as 500m, 8 or 1.5Gi"
        )
    fraction = match["fraction"] or ""
    digits = int(match["whole"] + fraction)
    suffix = match["suffix"] or ""
    power = 3 - len(fraction)
    if suffix in _BINARY:
        digits <<= _BINARY[suffix]
    else:
        power += int(match["exponent"] or _DECIMAL.get(suffix, 0))
    magnitude = min(_scale_up(digits, power), MAX_UNITS * MILLI)
    return -magnitude if match["sign"] == "-" else magnitude


def _scale_up(digits: int, power: int) -> int:
    """``digits`` times ten to the ``power``, rounded up. Huge powers saturate, uncomputed."""
    if digits == 0:
        return 0
    if power > _MAX_POWER:
        return MAX_UNITS * MILLI
    if power >= 0:
        return int(digits * 10**power)
    if -power > len(str(digits)):
        return 1
    return int(-(-digits // 10**-power))


def format_quantity(amount: int, resource: str = "") -> str:
    """The canonical quantity for an amount in thousandths; ``parse_quantity`` reads it back.

    Memory and storage get binary suffixes where they are exact, all else gets decimal ones.
    """
    if amount == 0:
        return "0"
    units, thousandths = divmod(amount, MILLI)
    if thousandths:
        return f"{amount}m"
    if resource.startswith(_BINARY_FORMAT) and units % 1024 == 0:
        return _with_suffix(units, 1024, ("", *_BINARY))
    return _with_suffix(units, 1000, ("", "k", "M", "G", "T", "P", "E"))


def _with_suffix(units: int, base: int, suffixes: tuple[str, ...]) -> str:
    power = 0
    while units % base == 0 and power + 1 < len(suffixes):
        units //= base
        power += 1
    return f"{units}{suffixes[power]}"


def pod_requests(pod_spec: Mapping[str, Any]) -> Resources:
    """What kube-scheduler counts for a pod with this spec, and one of ``pods``.

    Follows ``PodRequests`` of ``k8s.io/component-helpers/resource`` on a spec with the API server's
    defaults applied:

    - a container's limit stands in where it has no request for that resource;
    - containers and sidecars (init containers that restart always) run together: they add up;
    - each init container runs beside the sidecars started before it: the largest such sum counts
      where it is more;
    - requests for the pod as a whole (KEP-2837) replace the sum for CPU, memory and huge pages;
    - the overhead of the runtime class is added;
    - all but CPU is rounded up to whole units.

    Raises ValueError when the spec does not have the form of a pod's, naming the field if it is a
    quantity that cannot be read.
    """
    try:
        return _pod_requests(pod_spec)
    except (AttributeError, TypeError) as error:
        raise ValueError(
            "containers, initContainers, resources and overhead must be as in a pod "
            f"(lists of objects; amounts by resource): {error}"
        ) from error


def _pod_requests(pod_spec: Mapping[str, Any]) -> Resources:
    total: dict[str, int] = {}
    for container in pod_spec.get("containers") or ():
        _add(total, _container_requests(container))
    init_containers = pod_spec.get("initContainers")
    if init_containers:
        total = _with_init_containers(total, init_containers)
    if pod_spec.get("resources"):
        total.update(_pod_level_requests(pod_spec["resources"], total))
    if pod_spec.get("overhead"):
        _add(total, _parse_list(pod_spec["overhead"], "overhead"))
    for name, amount in total.items():
        if amount % MILLI and name != CPU:
            total[name] = amount + MILLI - amount % MILLI
    total[PODS] = MILLI
    return Resources(total)


def _with_init_containers(
    running: dict[str, int], init_containers: Iterable[Mapping[str, Any]]
) -> dict[str, int]:
    total = dict(running)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in init_containers:
        requests = _container_requests(container)
        if container.get("restartPolicy") == "Always":
            _add(total, requests)
            _add(sidecars, requests)
            _raise_to(peak, sidecars)
        else:
            _add(requests, sidecars)
            _raise_to(peak, requests)
    _raise_to(total, peak)
    return total


def _pod_level_requests(
    resources: Mapping[str, Any], of_containers: Mapping[str, int]
) -> dict[str, int]:
    """Requests of the pod as a whole, with the defaults that the API server would set.

    Where the pod has a limit but no request, CPU and memory default to what the containers request,
    if they do, and to the limit otherwise.
    """
    requests = _parse_list(resources.get("requests"), "resources.requests")
    limits = _parse_list(resources.get("limits"), "resources.limits")
    for name, limit in limits.items():
        if name not in requests:
            requests[name] = of_containers.get(name, limit) if _may_overcommit(name) else limit
    return {
        name: amount
        for name, amount in requests.items()
        if _may_overcommit(name) or name.startswith("hugepages-")
    }


def _may_overcommit(name: str) -> bool:
    return name in (CPU, "memory")


def _container_requests(container: Mapping[str, Any]) -> dict[str, int]:
    resources = container.get("resources")
    if not resources:
        return {}
    try:
        requests = _parse_list(resources.get("requests"), "requests")
        limits = resources.get("limits")
        if limits:
            for name, amount in _parse_list(limits, "limits").items():
                requests.setdefault(name, amount)
    except ValueError as error:
        raise ValueError(f"container {container.get('name')}: resources.{error}") from error
    return requests


def _parse_list(quantities: Mapping[str, Any] | None, field: str = "") -> dict[str, int]:
    parsed = {}
    for name, value in (quantities or {}).items():
        if value is None:
            continue
        try:
            parsed[name] = parse_quantity(value)
        except ValueError as error:
            raise ValueError(f"{field}[{name}]: {error}") from error
    return parsed


def _add(total: dict[str, int], part: Mapping[str, int]) -> None:
    for name, amount in part.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], least: Mapping[str, int]) -> None:
    """Raise every amount that is below that in ``least``; a name that is absent is taken over."""
    for name, amount in least.items():
        if name not in total or amount > total[name]:
            total[name] = amount
