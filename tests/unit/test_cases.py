"""Every case that the project answers for has a test with its number in its name."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCS = TESTS.parent / "docs" / "contributing.md"
REQUIRED = {*range(1, 8), *range(9, 16), *range(18, 25), 26, 30}
"""Numbers of the faults of comparable systems that this one is tested against."""
NUMBER = re.compile(r"^test_case_(\d\d)_")
ROW = re.compile(r"^\| (\d\d) \| .+ \| (.+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def named() -> dict[str, set[str]]:
    """Names of all test functions, by file, relative to the folder of the tests."""
    return {
        str(file.relative_to(TESTS)): {
            node.name
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test_")
        }
        for file in TESTS.rglob("test_*.py")
    }


def held(names: set[str]) -> set[int]:
    """The cases that tests of these names hold."""
    return {int(found[1]) for name in names if (found := NUMBER.match(name))}


def test_every_case_has_a_test(named: dict[str, set[str]]) -> None:
    missing = REQUIRED - set().union(*map(held, named.values()))
    assert not missing, f"no test is named test_case_NN_… for the cases {sorted(missing)}"


def test_every_number_in_a_name_has_two_digits(named: dict[str, set[str]]) -> None:
    numbered = [name for names in named.values() for name in names if name.startswith("test_case")]
    assert [name for name in numbered if not NUMBER.match(name)] == []


def test_what_the_table_in_the_docs_says_of_each_case_is_so(named: dict[str, set[str]]) -> None:
    rows = {
        int(number): re.findall(r"`([^`]+)`", files)
        for number, files in ROW.findall(DOCS.read_text())
    }
    assert rows.keys() >= REQUIRED
    for number, files in rows.items():
        holding = {file for file, names in named.items() if number in held(names)}
        assert files, f"case {number:02}: say which file holds it"
        assert set(files) <= holding, f"case {number:02} is held by {sorted(holding)}"
