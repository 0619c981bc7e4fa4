"""Planning where it has failed: one statement, or the rows of one table, must not stop the plan of all others."""

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
    """Plans as `Planner` does. A statement at which that fails, by a fault of ours, is not applied, and its tables have a
    gap; a table at whose rows it fails is put aside (`quarantine`). Errors that say what is wrong with the pipeline are
    raised.

    It keeps a copy of the draft for each statement: make the plan without it first.
    """

    def _permit(self, change: SchemaChange, event: DdlEvent, outcome: DdlOutcome) -> None:
        status, effects, tables = outcome.status, list(outcome.effects), list(outcome.tables)

        def refused(error: Exception) -> None:
            outcome.status, outcome.effects, outcome.tables = status, effects, tables
            names = change.names().touched
            for name in names:
                self._refuse(name, error, event, outcome)
            if not names:
                refuse(self._draft, None, _words(error), event, outcome)

        self._tried(lambda: super(GuardedPlanner, self)._permit(change, event, outcome), refused)

    def _refuse(self, name: TableName, error: Exception, event: DdlEvent, outcome: DdlOutcome) -> None:
        self._tried(
            lambda: refuse(self._draft, name, _words(error), event, outcome),
            lambda again: self._put_aside(name, event.commit_ts, again),
        )

    def _flush_all_rows(self) -> None:
        for name in self._draft.first_pending_segments():
            self._flush_rows(name)

    def _flush_rows(self, name: TableName) -> None:
        self._tried(
            lambda: self._draft.flush_rows(name, everything=True), lambda error: self._put_aside(name, 0, error)
        )

    def _tried(self, work: Callable[[], None], otherwise: Callable[[Exception], None]) -> None:
        """The work; where it fails, all is as it was before, and the other is done."""
        draft, ended = self._draft.snapshot(), self._recovery.snapshot()
        held, held_from = dict(self._held), dict(self._held_from)
        try:
            work()
        except CdcError:
            raise
        except Exception as error:
            self._draft.restore(draft)
            self._recovery.restore(ended)
            # the same dictionaries: others may have them, too
            for now, before in ((self._held, held), (self._held_from, held_from)):
                now.clear()
                now.update(before)  # type: ignore[arg-type]
            otherwise(error)

    def _put_aside(self, name: TableName, commit_ts: int, error: Exception) -> None:
        if name in self._held:
            return
        words = _words(error, hidden=self._draft.has_masks(name))
        self._held[name] = HeldTable(name, NO_STATEMENT, commit_ts, "", error=words)
        self._held_from[name] = self._draft.first_pending_segments().get(name, self._draft.passed_events(name))
        self._draft.discard_rows(name, everything=True)


def _words(error: Exception, *, hidden: bool = False) -> str:
    """`hidden`: without what the error says, which may quote a value."""
    said = type(error).__name__ if hidden else f"{type(error).__name__}: {first_line(error)}"
    return f"it could not be planned ({said})"[:_LONGEST]
