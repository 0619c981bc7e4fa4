"""Planning where it has failed: one statement, or the rows of one table, must not stop the plan of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.mirrors.model.ddl_events import touched_names
from cdc_pipeline.mirrors.planning.outcomes import refuse
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.ddl_policy import NO_STATEMENT, HeldTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
    from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
    from cdc_pipeline.mysql.model.schema_changes import SchemaChange
    from cdc_pipeline.mysql.model.table import TableName

_LONGEST = 300


class GuardedPlanner(Planner):
    """Plans as `Planner` does. A statement at which that fails, by a fault of ours, is not applied, and its tables have a
    gap; a table at whose rows it fails is put aside (`quarantine`). Errors that say what is wrong with the pipeline are
    raised.

    It keeps a copy of the book for each statement: make the plan without it first.
    """

    def _permit(self, change: SchemaChange, event: DdlEvent, outcome: DdlOutcome) -> None:
        status, effects, tables = outcome.status, list(outcome.effects), list(outcome.tables)

        def refused(error: Exception) -> None:
            outcome.status, outcome.effects, outcome.tables = status, effects, tables
            for name in touched_names(change):
                self._refuse(name, error, event, outcome)
            if not touched_names(change):
                refuse(self._book, None, _words(error), event, outcome)

        self._tried(lambda: super(GuardedPlanner, self)._permit(change, event, outcome), refused)

    def _refuse(self, name: TableName, error: Exception, event: DdlEvent, outcome: DdlOutcome) -> None:
        self._tried(
            lambda: refuse(self._book, name, _words(error), event, outcome),
            lambda again: self._put_aside(name, event.commit_ts, again),
        )

    def _let_all_rows_in(self) -> None:
        for name in self._book.waiting():
            self._let_rows_in(name)

    def _let_rows_in(self, name: TableName) -> None:
        self._tried(
            lambda: self._book.let_rows_in(name, everything=True), lambda error: self._put_aside(name, 0, error)
        )

    def _tried(self, work: Callable[[], None], otherwise: Callable[[Exception], None]) -> None:
        """The work; where it fails, all is as it was before, and the other is done."""
        book, ended = self._book.saved(), self._recovery.saved()
        held, held_from = dict(self._held), dict(self._held_from)
        try:
            work()
        except CdcError:
            raise
        except Exception as error:
            self._book.taken_back(book)
            self._recovery.taken_back(ended)
            # the same dictionaries: others may have them, too
            for now, before in ((self._held, held), (self._held_from, held_from)):
                now.clear()
                now.update(before)  # type: ignore[arg-type]
            otherwise(error)

    def _put_aside(self, name: TableName, commit_ts: int, error: Exception) -> None:
        if name in self._held:
            return
        words = _words(error, hidden=self._book.hides(name))
        self._held[name] = HeldTable(name, NO_STATEMENT, commit_ts, "", error=words)
        self._held_from[name] = self._book.waiting().get(name, self._book.passed(name))
        self._book.drop_rows(name, everything=True)


def _words(error: Exception, *, hidden: bool = False) -> str:
    """`hidden`: without what the error says, which may quote a value."""
    said = type(error).__name__ if hidden else f"{type(error).__name__}: {first_line(error)}"
    return f"it could not be planned ({said})"[:_LONGEST]
