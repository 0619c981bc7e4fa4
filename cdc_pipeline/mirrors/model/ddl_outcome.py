"""The outcome of a DDL event, stored in `ddl_history` and reported by the check `ddl_applied`."""

from __future__ import annotations

from dataclasses import dataclass, field

from cdc_pipeline.mirrors.model.state import MirrorState


@dataclass
class DdlOutcome:
    status: str
    effects: list[str] = field(default_factory=list)
    """What was done, one phrase per effect."""
    tables: list[MirrorState] = field(default_factory=list)
    """States of the affected mirrors after the event."""

    @property
    def effect(self) -> str:
        return "; ".join(self.effects)
