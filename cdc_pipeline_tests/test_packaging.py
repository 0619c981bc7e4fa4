"""Contents of the wheel according to pyproject.toml."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from setuptools import find_packages

from cdc_pipeline_tests.support.imports import imported
from cdc_pipeline_tests.support.toml import read_toml
from cdc_pipeline_tests.support.wheels import build_wheel

_ROOT = Path(__file__).parents[1]


def _packages() -> set[str]:
    found = read_toml(_ROOT / "pyproject.toml")["tool"]["setuptools"]["packages"]
    return set(find_packages(str(_ROOT), include=found["find"]["include"], exclude=found["find"]["exclude"]))


def test_wheel_contains_the_package_and_no_tests() -> None:
    folders = [path.parent for path in (_ROOT / "cdc_pipeline").rglob("__init__.py")]
    assert _packages() == {".".join(folder.relative_to(_ROOT).parts) for folder in folders}


def test_package_imports_no_tests() -> None:
    modules = (_ROOT / "cdc_pipeline").rglob("*.py")
    assert [path for path in modules if any(name.startswith("cdc_pipeline_tests") for name in imported(path))] == []


_WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import cdc_pipeline.cli.main
"""


def test_the_package_loads_without_its_extras() -> None:
    extras = ("apprise", "boto3", "confluent_kafka", "dagster_k8s", "dagster_postgres", "dagster_webserver", "obstore")
    subprocess.run([sys.executable, "-c", f"EXTRAS = {extras}\n{_WITHOUT}"], cwd=_ROOT, check=True, timeout=300)


def test_the_built_wheel(tmp_path: Path) -> None:
    """Without the demo's pipeline, tests and the local broker; with license, command component and pages."""
    wheel = build_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as built:
        names = built.namelist()
        (entry_points,) = [built.read(name).decode() for name in names if name.endswith("entry_points.txt")]
    assert not [name for name in names if name.startswith(("cdc_pipeline/defs/", "cdc_pipeline_tests/"))]
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert "cdc_pipeline/py.typed" in names
    pages = {Path(name).name for name in names if "/data/share/doc/cdc_pipeline/" in name}
    assert pages == {page.name for page in (_ROOT / "docs").glob("*.md")}
    assert "cdc-pipeline = cdc_pipeline.cli.main:main" in entry_points
    assert "[dagster_dg_cli.registry_modules]" in entry_points
