"""Both ends of the version ranges in pyproject.toml: an environment of their own each, and tests of every stage in it.

requirements.lock has the newest of each package, except that it has the older minor version of Spark.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from cdc_pipeline_tests.support.toml import read_toml

_ROOT = Path(__file__).parents[1]
_ENDS = {
    "oldest": ["--resolution", "lowest-direct"],
    "Spark 4.1": [],
}
_CONSTRAINTS = {"oldest": "", "Spark 4.1": "pyspark>=4.1,<4.2\n"}
_TOOLS = [
    "cryptography>=42",
    "pytest<9.2",
    "pytest-timeout",
    "pytest-xdist",
    "hypothesis",
    "websockets",
    "setuptools>=77",
]
_TESTS = [
    "cli",
    "component",
    "contracts/test_agreement.py",
    "integration/test_dg.py",
    "integration/test_follow.py",
    "lake",
    "mysql/ddl",
    "sensors",
]


@pytest.mark.long
@pytest.mark.jvm
@pytest.mark.parametrize("end", _ENDS)
def test_an_end_of_the_ranges(end: str, tmp_path: Path) -> None:
    environment = tmp_path / "venv"
    _run([sys.executable, "-m", "venv", str(tmp_path / "tools")])
    _run([str(tmp_path / "tools/bin/pip"), "install", "--quiet", "uv"])
    uv = str(tmp_path / "tools/bin/uv")
    (tmp_path / "constraints").write_text(_CONSTRAINTS[end])
    wanted = tmp_path / "requirements.txt"
    extras = ["--extra", "kafka", "--extra", "notify", "--extra", "ui"]
    _run(
        [
            *(uv, "pip", "compile", "--quiet", str(_ROOT / "pyproject.toml"), *extras, *_ENDS[end]),
            *("--constraint", str(tmp_path / "constraints"), "--python", sys.executable, "-o", str(wanted)),
        ]
    )
    _run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)])
    python = str(environment / "bin" / "python")
    _run([uv, "pip", "install", "--quiet", "--python", python, "-r", str(wanted), *_TOOLS])
    _run([uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "--editable", str(_ROOT)])
    # warnings are errors with the versions of the lock only: other ones may deprecate what these do not
    paths = [str(_ROOT / "cdc_pipeline_tests" / name) for name in _TESTS]
    _run([python, "-m", "pytest", "-q", "-x", "-W", "default", "-m", "not long", *paths], timeout=2400)


def _run(command: Sequence[str], timeout: float = 900) -> None:
    """Runs a command that has to succeed."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={name: value for name, value in os.environ.items() if name not in hidden},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_every_dependency_has_a_lower_bound() -> None:
    declared = read_toml(_ROOT / "pyproject.toml")["project"]
    extras = declared["optional-dependencies"]
    optional = [found for extra in ("kafka", "notify", "ui") for found in extras[extra]]
    assert [found for found in (*declared["dependencies"], *optional) if ">=" not in found] == []
