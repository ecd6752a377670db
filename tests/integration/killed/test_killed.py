"""Case 12: the operator is killed before every single write of a story, and converges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from goodput_sandbox.operator_process import stop_operator
from goodput_sandbox.sandbox import Sandbox
from tests.integration.conftest import SHORT
from tests.integration.killed.runs import Outcome, Runs
from tests.integration.killed.stories import STORIES, Story
from tests.integration.record import Record
from tests.integration.transitions import allowed

QUICK = {
    **SHORT,
    "GOODPUT_HOLD_SECONDS": "4",
    "GOODPUT_NODE_GONE_SECONDS": "2",
    "GOODPUT_REQUEUE_BASE_SECONDS": "4",
    "GOODPUT_SETTLE_SECONDS": "0.2",
    # Runs lose nodes at the same time, and there are no others than theirs.
    "GOODPUT_SILENCE_HOLD_SECONDS": "0",
}
GAPS = [(story, gap) for story in STORIES for gap in story.gaps]


@pytest.fixture(scope="module")
def runs(
    sandbox: Sandbox, record: Record, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runs]:
    """Runs with operators of their own; the shared one, which would join in, is stopped."""
    stop_operator(sandbox)
    made = Runs(sandbox, record, QUICK, tmp_path_factory.mktemp("killed"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def begun(runs: Runs, request: pytest.FixtureRequest) -> dict[tuple[str, str | None], Future]:
    """What the selected tests need, all of it under way at once."""
    wanted: dict[tuple[str, str | None], Future] = {}
    for item in request.session.items:
        values = getattr(item, "callspec", None)
        if item.path != Path(__file__) or values is None:
            continue
        story = values.params["story"]
        for gap in (None, values.params.get("gap")):
            wanted[story.name, gap] = runs.begin(story, gap)
    return wanted


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_case_12_every_write_of_a_story_is_one_of_the_gaps(
    story: Story, begun: dict[tuple[str, str | None], Future]
) -> None:
    calm = begun[story.name, None].result()
    print(json.dumps(calm.writes, indent=1, sort_keys=True))
    known = {what: int(n) for what, n in (write.rsplit(" ", 1) for write in story.writes)}
    assert calm.writes.keys() <= known.keys()
    exact = {what: n for what, n in known.items() if not what.endswith("/status")}
    assert {what: calm.writes.get(what) for what in exact} == exact
    assert not calm.killed
    check(calm, story)


@pytest.mark.parametrize(
    ("story", "gap"), GAPS, ids=[f"{story.name}, before {gap}" for story, gap in GAPS]
)
def test_case_12_killed_before_a_write_it_converges(
    story: Story, gap: str, begun: dict[tuple[str, str | None], Future]
) -> None:
    calm: Outcome = begun[story.name, None].result()
    killed: Outcome = begun[story.name, gap].result()
    check(killed, story)
    assert killed.restarts == calm.restarts
    assert killed.live_pods == calm.live_pods
    assert killed.pods_made == calm.pods_made
    if not killed.killed:
        pytest.skip(
            "not written this time: how many statuses there are depends on what is seen at once"
        )


def check(outcome: Outcome, story: Story) -> None:
    assert (outcome.phase, outcome.attempt) == (story.phase, story.attempt)
    assert outcome.gpus == story.gpus
    assert list(outcome.workloads_made.values()) == [1]
    names = {f"a{attempt}-worker-{rank}" for attempt in range(1, story.attempt + 1)
             for rank in range(2)}  # fmt: skip
    assert outcome.pods_made == dict.fromkeys(names, 1)
    assert {attempt: len(times) for attempt, times in outcome.placements.items()} == dict.fromkeys(
        range(1, story.attempt + 1), 1
    ), "an attempt number was used twice"
    assert not [each for each in outcome.transitions if not allowed(each)]
