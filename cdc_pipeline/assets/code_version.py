"""Detects that the code or the declaration of a pipeline was replaced since a process loaded it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

_PACKAGE = Path(__file__).parents[1]
_States: TypeAlias = "dict[Path, tuple[int, int]]"


@dataclass(frozen=True)
class LoadedCode:
    """The files of the package and `declaration`, as they were when this value was created.

    A new image of a container is not detected: it has files of its own.
    """

    declaration: Path | None = None
    """The YAML file of the pipeline; None if it is declared in Python."""
    _states: _States = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_states", self._read())

    @property
    def has_changed(self) -> bool:
        return self._read() != self._states

    def _read(self) -> _States:
        """Size and modification time of each file. A file that is replaced meanwhile is left out."""
        states = {}
        for path in (*_PACKAGE.rglob("*.py"), *([self.declaration] if self.declaration else [])):
            try:
                state = path.stat()
            except OSError:
                continue
            states[path] = state.st_size, state.st_mtime_ns
        return states
