"""Reads TOML files, also on Python 3.10, which has no TOML library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")


def read_toml(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found
