"""Reads a module's imports from its text, without running it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imported(file: Path) -> frozenset[str]:
    """All modules that a module imports, anywhere in its text, and the imported names as `module.name`."""
    found = set[str]()
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return frozenset(found)
