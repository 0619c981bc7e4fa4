"""Answers of queries over whole tables, kept by a process that ingests several batches while the tables do not change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.lake.lake import Lake

_Answer = TypeVar("_Answer")


@dataclass
class RecentAnswers:
    """The newest answer to each question. A question is asked again when its table has another version."""

    _answers: dict[str, tuple[int | None, object, Any]] = field(default_factory=dict)
    """Question → version of the table, further arguments, answer."""
    passed_batch: int | None = None
    """The newest batch at which the blocking checks of decoding have passed, with those before; None if not known."""

    def ask(self, lake: Lake, table: str, question: Callable[[], _Answer], arguments: object = None) -> _Answer:
        """The result of `question`, which depends on one of the lake's own tables and on `arguments` only."""
        state = lake.state(table)
        version = None if state is None else state.version
        name = question.__qualname__
        stored = self._answers.get(name)
        if stored is None or stored[:2] != (version, arguments):
            stored = self._answers[name] = version, arguments, question()
        answer: _Answer = stored[2]
        return answer
