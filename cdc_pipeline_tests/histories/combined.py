"""Several histories in one run of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.histories.delivery import Record, resolved_tso
from cdc_pipeline_tests.histories.encoders import has_watermarks
from cdc_pipeline_tests.histories.history import History
from cdc_pipeline_tests.histories.shapes import State


@dataclass(frozen=True, repr=False)
class Combined:
    """Histories for one run of the pipeline, each with its own topic and databases.

    Either all have watermarks or none has. Mirrors stop at the smallest resolved TSO of all topics.
    """

    histories: tuple[History, ...]

    def __post_init__(self) -> None:
        assert len({has_watermarks(history.mode) for history in self.histories}) == 1
        assert len({history.name for history in self.histories}) == len(self.histories)

    def __repr__(self) -> str:
        return f"<Combined {list(self.histories)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def watermarks(self) -> bool:
        return has_watermarks(self.histories[0].mode)

    def name_in_truth(self, name: TableName) -> TableName:
        """A mirror's name as the model has it: with `lower_case_table_names=1` a mirror is named as in its definition."""
        typed = [history for history in self.histories if history.settings.recased and history.mode == "canal"]
        return folded(name) if any(name.database.lower().startswith(f"{one.name}_") for one in typed) else name

    @cached_property
    def slices(self) -> tuple[tuple[Record, ...], ...]:
        count = max(len(history.slices) for history in self.histories)
        return tuple(
            tuple(record for history in self.histories for part in history.slices[n : n + 1] for record in part.records)
            for n in range(count)
        )

    def files(self) -> list[list[str]]:
        return [[record.line() for record in part] for part in self.slices]

    def resolved_after(self, slice_index: int) -> int | None:
        found: int | None = None
        for number in range(slice_index + 1):
            found = resolved_tso(chain.from_iterable(self.slices[: number + 1]), found)
        return found if self.watermarks else None

    def truth_after(self, slice_index: int) -> State | None:
        """The tables whose state after this file is known. None if no state is known."""
        resolved = self.resolved_after(slice_index)
        if self.watermarks:
            return None if resolved is None else self.state_at(resolved - 1)
        found: State = {}
        for history in self.histories:
            found |= history.truth_after(min(slice_index, len(history.slices) - 1)) or {}
        return found or None

    def state_at(self, tso: int) -> State:
        found: State = {}
        for history in self.histories:
            found |= history.upstream.state_at(tso)
        return found

    def final_truth(self) -> State:
        return self.truth_after(len(self.slices) - 1) or {}


def combined(histories: Sequence[History]) -> Combined:
    return Combined(tuple(histories))
