"""What became of a DDL event: noted in `ddl_history`, and shown by the check `ddl_applied`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdc_pipeline.mirrors.model.state import MirrorState


@dataclass
class DdlOutcome:
    """A status, what was done in words, and the tables' states after it."""

    status: str
    effects: list[str] = field(default_factory=list)
    tables: list[MirrorState] = field(default_factory=list)

    @property
    def effect(self) -> str:
        return "; ".join(self.effects)
