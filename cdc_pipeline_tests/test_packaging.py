"""What the wheel has, by the words of pyproject.toml."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages

from cdc_pipeline_tests.support.imports import imported
from cdc_pipeline_tests.support.toml import read_toml

_ROOT = Path(__file__).parents[1]


def _packages() -> set[str]:
    found = read_toml(_ROOT / "pyproject.toml")["tool"]["setuptools"]["packages"]
    return set(find_packages(str(_ROOT), include=found["find"]["include"], exclude=found["find"]["exclude"]))


def test_the_wheel_has_the_package_without_its_broker_and_tests() -> None:
    packages = _packages()
    there = {".".join(path.parent.relative_to(_ROOT).parts) for path in (_ROOT / "cdc_pipeline").rglob("__init__.py")}
    assert packages == {name for name in there if not name.startswith("cdc_pipeline.local_kafka")}


def test_nothing_in_the_wheel_imports_the_broker() -> None:
    sources = [path for path in (_ROOT / "cdc_pipeline").rglob("*.py") if "local_kafka" not in path.parts]
    assert [path for path in sources if any("local_kafka" in name for name in imported(path))] == []
