"""The layout of the repository that other things rely on."""

import operator as standard_library_operator
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_folder_operator_is_no_package() -> None:
    """An ``operator/__init__.py`` would shadow the standard library's module of that name."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert hasattr(standard_library_operator, "itemgetter")


def test_the_package_is_typed() -> None:
    assert files("goodput_operator").joinpath("py.typed").is_file()
