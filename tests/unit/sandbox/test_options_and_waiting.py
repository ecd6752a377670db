"""Names, options, finding leftovers, and waiting with a reason."""

from pathlib import Path

import pytest

from goodput_sandbox import Sandbox, SandboxError, SandboxOptions, netns
from goodput_sandbox.testing import wait_for
from goodput_sandbox.toolchain import needed_version


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("name", ["", "a-b", "A", "1a", "a.b", "../x", "a" * 21])
def test_names_that_could_clash_or_escape_are_refused(name: str) -> None:
    with pytest.raises(SandboxError, match="name"):
        Sandbox(name)


def test_namespaces_of_a_longer_name_are_not_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("gp-ab", "gp-ab-node1", "gp-abc", "gp-a", "other"):
        (tmp_path / name).touch()
    monkeypatch.setattr(netns, "_FOLDER", tmp_path)
    assert netns.owned("gp-ab") == ["gp-ab-node1", "gp-ab"]


def test_state_is_remembered_across_objects() -> None:
    Sandbox("a").remember(phase="up", rooted=False)
    assert Sandbox("a").state["phase"] == "up"
    assert not Sandbox("a").is_up
    assert Sandbox("a").in_netns(["x"]) == ["x"]


def test_options_are_plain_json_values() -> None:
    values = SandboxOptions(kueue_config={"a": 1}).as_dict()
    assert values["kueue_integrations"] == ["batch/job"]
    assert values["kueue_config"] == {"a": 1}


def test_the_go_line_of_a_module_is_the_version_needed(tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module x\n\ngo 1.26.0\n")
    assert needed_version(tmp_path / "go.mod") == (1, 26, 0)


def test_waiting_in_vain_says_for_what_and_what_was_seen() -> None:
    with pytest.raises(AssertionError, match=r"pods Running: not within .* last seen: 3 of 8"):
        wait_for(lambda: (False, "3 of 8"), 0.01, "pods Running", interval=0.005)


def test_an_error_while_waiting_counts_as_not_yet() -> None:
    answers = iter([OSError("refused"), None])

    def check() -> bool:
        if answer := next(answers):
            raise answer
        return True

    wait_for(check, 1, "server", interval=0.001)
