"""Case 9: the graph of phases in the docs is the one that the tests hold jobs to."""

import re
from pathlib import Path
from typing import Any

import pytest

from goodput_operator.api.status import Phase
from tests.integration.transitions import PHASES, allowed, transitions

DOCS = Path(__file__).parents[2] / "docs" / "trainingjob.md"
EDGE = re.compile(r"^\s+(\[\*\]|\w+) --> (\[\*\]|\w+)$", re.MULTILINE)


def drawn() -> set[tuple[str, str]]:
    text = DOCS.read_text()
    diagram = text.split("```mermaid\nstateDiagram-v2\n", 1)[1].split("```", 1)[0]
    return set(EDGE.findall(diagram))


def test_case_09_the_diagram_in_the_docs_is_the_graph_of_the_tests() -> None:
    table = {(old or "[*]", new) for old, after in PHASES.items() for new in after}
    ends = {(old, "[*]") for old, after in PHASES.items() if not after}
    assert drawn() == table | ends


def test_case_09_the_graph_knows_every_phase_and_nothing_follows_the_end() -> None:
    assert set(PHASES) == {"", *Phase}
    assert PHASES["Complete"] == PHASES["Failed"] == frozenset()


def job(phase: str, **conditions: str) -> dict[str, Any]:
    told = [{"type": type_, "status": status} for type_, status in conditions.items()]
    return {"object": {"metadata": {"uid": "1"}, "status": {"phase": phase, "conditions": told}}}


@pytest.mark.parametrize(
    ("states", "wrong"),
    [
        ([job("Queued"), job("Starting"), job("Running"), job("Complete")], []),
        ([job("Queued"), job("Running")], [("phase", "Queued", "Running")]),
        (
            [job("Queued"), job("Starting"), job("Failed"), job("Starting")],
            [("phase", "Failed", "Starting")],
        ),
        (
            [job("Queued", Failed="True"), job("Queued")],
            [("Failed", "True", "")],
        ),
        ([job("Queued", Strange="True")], [("Strange", "", "True")]),
    ],
    ids=["a life", "started without a place", "raised from the dead", "forgotten", "unknown"],
)
def test_case_09_what_is_not_on_the_graph_is_found(
    states: list[dict[str, Any]], wrong: list[tuple[str, str, str]]
) -> None:
    assert [each for each in transitions(states) if not allowed(each)] == wrong
