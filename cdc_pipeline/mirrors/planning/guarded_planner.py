"""Plans a cut although one statement, or the rows of one table, cannot be planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.paths import first_line
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
    """As `Planner`, but an unexpected error affects only the tables of its statement.

    A statement that cannot be planned is not applied, and its tables get a gap. A table whose rows cannot be planned is
    quarantined. A CdcError is raised: it concerns the pipeline.

    Copies the draft for each statement: try `Planner` first.
    """

    def _permit(self, change: SchemaChange, event: DdlEvent, outcome: DdlOutcome) -> None:
        status, effects, tables = outcome.status, list(outcome.effects), list(outcome.tables)

        def refuse_statement(error: Exception) -> None:
            outcome.status, outcome.effects, outcome.tables = status, effects, tables
            names = change.names().touched
            for name in names:
                self._refuse(name, error, event, outcome)
            if not names:
                refuse(self._draft, None, _message(error), event, outcome)

        self._attempt(lambda: super(GuardedPlanner, self)._permit(change, event, outcome), refuse_statement)

    def _refuse(self, name: TableName, error: Exception, event: DdlEvent, outcome: DdlOutcome) -> None:
        self._attempt(
            lambda: refuse(self._draft, name, _message(error), event, outcome),
            lambda again: self._quarantine(name, event.commit_ts, again),
        )

    def _flush_all_rows(self) -> None:
        for name in self._draft.first_pending_segments():
            self._flush_rows(name)

    def _flush_rows(self, name: TableName) -> None:
        self._attempt(
            lambda: self._draft.flush_rows(name, everything=True), lambda error: self._quarantine(name, 0, error)
        )

    def _attempt(self, work: Callable[[], None], on_error: Callable[[Exception], None]) -> None:
        """Does the work. If it fails, restores all state from before and calls `on_error`."""
        draft, ended = self._draft.snapshot(), self._recovery.snapshot()
        held, held_from = dict(self._held), dict(self._held_from)
        try:
            work()
        except CdcError:
            raise
        except Exception as error:
            self._draft.restore(draft)
            self._recovery.restore(ended)
            # keeps the dictionaries: the plan refers to them
            for current, before in ((self._held, held), (self._held_from, held_from)):
                current.clear()
                current.update(before)  # type: ignore[arg-type]
            on_error(error)

    def _quarantine(self, name: TableName, commit_ts: int, error: Exception) -> None:
        if name in self._held:
            return
        # without the text of the error, which may quote a value
        self._held[name] = HeldTable(name, NO_STATEMENT, commit_ts, error=f"planning failed ({type(error).__name__})")
        self._held_from[name] = self._draft.first_pending_segments().get(name, self._draft.passed_events(name))
        self._draft.discard_rows(name, everything=True)


def _message(error: Exception) -> str:
    return f"planning failed ({type(error).__name__}: {first_line(error)})"[:_LONGEST]
