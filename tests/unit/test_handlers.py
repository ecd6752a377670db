"""What kopf is told: to watch, and nothing else."""

import itertools

import kopf
import pytest

from goodput_operator import constants as c
from goodput_operator import handlers
from goodput_operator.config import Config
from goodput_operator.domain.model import JobKey
from goodput_operator.kube.client import QUIET_SECONDS
from goodput_operator.runtime import kinds
from goodput_operator.runtime.operator import Operator
from tests.unit.runtime import raws


@pytest.fixture
def operator() -> Operator:
    async def connect(metrics: object) -> object:
        raise AssertionError("not needed")

    return Operator(Config(), connect)  # type: ignore[arg-type]


def test_kopf_writes_nothing(operator: Operator) -> None:
    settings = handlers.settings_of(operator)
    assert settings.posting.enabled is False
    assert settings.peering.standalone is True
    assert settings.queueing.worker_limit is None
    registry = handlers.register(operator)
    assert not registry._changing.get_all_handlers()
    assert not registry._spawning.get_all_handlers()
    assert not registry._indexing.get_all_handlers()


def test_every_kind_that_is_listed_is_watched(operator: Operator) -> None:
    registry = handlers.register(operator)
    watched = {
        (selector.group or "", selector.any_name)
        for selector in registry._watching.get_all_selectors()
    }
    listed = {(kind.resource.group, kind.resource.plural) for kind in kinds.KINDS}
    assert watched == listed


def test_watches_select_what_lists_select(operator: Operator) -> None:
    selectors = handlers.settings_of(operator).watching.label_selectors
    assert set(selectors.values()) == {c.LABEL_JOB_UID}
    assert {selector.any_name for selector in selectors} == {"pods", "workloads"}
    assert {kind.resource.plural for kind in kinds.KINDS if kind.selector} == {"pods", "workloads"}


def test_an_api_server_that_is_away_never_ends_the_process(operator: Operator) -> None:
    backoffs = handlers.settings_of(operator).networking.error_backoffs
    for _ in range(2):
        waits = list(itertools.islice(iter(backoffs), 1000))
        assert len(waits) == 1000
        assert max(waits) <= 10


async def test_events_feed_the_store(operator: Operator) -> None:
    registry = handlers.register(operator)
    (handler,) = (
        each for each in registry._watching.get_all_handlers() if each.selector.any_name == c.PLURAL
    )
    await handler.fn(event={"type": None, "object": raws.job()})  # type: ignore[call-arg, misc]
    key = JobKey(raws.NAMESPACE, "digits")
    assert operator.store.job(key) is not None
    assert operator.queue.depth == 1
    await handler.fn(event={"type": "DELETED", "object": raws.job(version=11)})  # type: ignore[call-arg, misc]
    assert operator.store.job(key) is None


async def test_a_list_of_kopf_is_no_sign_that_a_stream_is_alive(operator: Operator) -> None:
    registry = handlers.register(operator)
    (handler,) = (
        each for each in registry._watching.get_all_handlers() if each.selector.any_name == c.PLURAL
    )
    operator._last_sign -= 100
    await handler.fn(event={"type": None, "object": raws.job()})  # type: ignore[call-arg, misc]
    assert operator.silence >= 100
    await handler.fn(event={"type": "MODIFIED", "object": raws.job(version=11)})  # type: ignore[call-arg, misc]
    assert operator.silence < 1


def test_silent_watches_of_kopf_are_given_up_on_like_our_own(operator: Operator) -> None:
    assert handlers.settings_of(operator).watching.inactivity_timeout == QUIET_SECONDS


def test_no_handler_is_registered_globally() -> None:
    assert not kopf.get_default_registry()._watching.get_all_handlers()
