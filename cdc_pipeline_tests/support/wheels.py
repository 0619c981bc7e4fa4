"""Builds the wheel as an index would have it: from the sdist of a clean checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "cdc_pipeline", "cdc_pipeline_tests", "docs")


def build_wheel(place: Path) -> Path:
    """The wheel, built in the folder `place`. Needs no network: setuptools is in the environment."""
    source = place / "source"
    source.mkdir()
    for name in _SOURCES:
        copy = shutil.copytree if (_ROOT / name).is_dir() else shutil.copy
        copy(_ROOT / name, source / name)
    (source / "dist").mkdir()
    build = "import setuptools.build_meta as backend; backend.build_sdist('dist')"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True, timeout=300)
    (sdist,) = (source / "dist").glob("*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(place), str(sdist)], check=True, capture_output=True, timeout=300)
    (wheel,) = place.glob("*.whl")
    return wheel
