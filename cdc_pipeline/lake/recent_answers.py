"""Results of queries over whole tables, kept by a process that ingests several batches while the tables do not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

_Result = TypeVar("_Result")


@dataclass
class RecentAnswers:
    """The newest result of each query."""

    _results: dict[str, tuple[object, Any]] = field(default_factory=dict)
    """Query → version of its table, result."""
    passed_batch: int | None = None
    """The newest batch at which the blocking checks of decoding have passed, with those before; None if not known."""

    def cached_query(self, name: str, table_version: object, query: Callable[[], _Result]) -> _Result:
        """The result of `query`, which runs if the call before with this name had another `table_version`.

        `table_version`: what the result depends on, such as `Lake.state` of its table. Compared by equality.
        """
        cached = self._results.get(name)
        if cached is None or cached[0] != table_version:
            cached = self._results[name] = table_version, query()
        result: _Result = cached[1]
        return result
