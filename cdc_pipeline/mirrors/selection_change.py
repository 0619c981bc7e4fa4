"""What becomes of the mirrors when a pipeline's selection is another one than that of the cut before.

A mirror whose table is no longer in is set aside: it would stay as it was and look alive. One whose table has another name
now is renamed. A table that is in now and was not starts with what comes, and says what it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.state import MirrorState
from cdc_pipeline.mirrors.steps import DropMirror, RenameMirror
from cdc_pipeline.schemas.table import TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdc_pipeline.mirrors.plan_book import PlanBook
    from cdc_pipeline.mirrors.policy import HeldTable
    from cdc_pipeline.mirrors.selection import TableSelection
    from cdc_pipeline.schemas.table import TableName


@dataclass(frozen=True)
class SelectionChange:
    """`leaving` are mirrors that are set aside, with the reason; `moving` those that are renamed, in an order in which each
    name is free; `starting` are tables, by upstream's names, of which there is no mirror yet."""

    leaving: Mapping[TableName, str]
    moving: Mapping[TableName, TableName]
    starting: tuple[TableName, ...] = ()

    @staticmethod
    def between(
        sources: Mapping[TableName, TableName],
        existing: Iterable[TableName],
        before: TableSelection,
        now: TableSelection,
    ) -> SelectionChange:
        """`sources` are the mirrors of the cut before with upstream's tables, `existing` upstream's tables then."""
        leaving = {
            mirror: f"{source} is not included any more" for mirror, source in sources.items() if not now.is_in(source)
        }
        targets = {mirror: now.routed(source) for mirror, source in sources.items() if mirror not in leaving}
        taken = set(targets)
        targets = {mirror: target for mirror, target in sorted(targets.items()) if target != mirror}
        moving: dict[TableName, TableName] = {}
        while free := next((mirror for mirror, target in targets.items() if target not in taken), None):
            moving[free] = targets.pop(free)
            taken = (taken - {free}) | {moving[free]}
        # those that are left change their names in a ring
        leaving.update({mirror: f"{sources[mirror]} is mirrored as {target} now" for mirror, target in targets.items()})
        starting = [name for name in existing if now.is_in(name) and not before.is_in(name)]
        return SelectionChange(leaving, moving, (*sorted(starting), *(sources[mirror] for mirror in targets)))

    def words(self, now: TableSelection) -> tuple[str, ...]:
        """Line by line what the change does."""
        return (
            *(f"mirror {mirror} is set aside: {reason}" for mirror, reason in self.leaving.items()),
            *(f"mirror {mirror} is called {target} now" for mirror, target in self.moving.items()),
            *(f"{name} is included now: mirror {now.routed(name)} starts without its rows" for name in self.starting),
        )

    def held(self, tables: Iterable[HeldTable]) -> tuple[HeldTable, ...]:
        """Those of the tables that wait still, by their names now."""
        stay = (table for table in tables if table.name not in self.leaving)
        return tuple(replace(table, name=self.moving.get(table.name, table.name)) for table in stay)

    def held_rows_left_out(self, tables: Iterable[HeldTable]) -> int:
        """The row changes that waited with tables that are not included any more."""
        return sum(table.rows for table in tables if table.name in self.leaving)

    def plan(
        self,
        book: PlanBook,
        cut_id: int,
        now: TableSelection,
        definition: Callable[[TableName], MirrorState | None],
    ) -> None:
        """Adds the steps to an empty book."""
        for mirror in self.leaving:
            if (state := book.state(mirror)) is not None:
                book.steps.append(DropMirror(state, f"not-included-{cut_id}"))
                book.remove(mirror)
        for mirror, target in self.moving.items():
            if (state := book.state(mirror)) is not None:
                renamed = replace(state, name=target)
                book.steps.append(RenameMirror(state, renamed))
                book.remove(mirror)
                book.put(renamed)
        for source in self.starting:
            name, known = now.routed(source), definition(source)
            schema = TableSchema(()) if known is None else known.schema
            state = MirrorState(name, f"{name}@cut{cut_id}.{len(book.steps)}", schema, inferred=known is None)
            gap = f"it was not included before cut {cut_id}: rows from before are not here; a rebuild takes them in"
            book.create(state.with_gaps(*(() if known is None else known.gaps), gap))
