"""What becomes of the mirrors when a pipeline's selection is another one than that of the cut before.

A mirror whose table is no longer in is set aside: it would stay as it was and look alive. One whose table has another name
now is renamed. A table that is in now and was not starts with what comes, and says what it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.shards import Shard
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DropMirror, RenameMirror
from cdc_pipeline.mirrors.planning.shard_definitions import with_shards
from cdc_pipeline.mysql.model.table import TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mirrors.settings.selection import Sources, TableSelection
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class SelectionChange:
    """`leaving` are mirrors that are set aside, with the reason; `moving` those that are renamed, in an order in which each
    name is free; `starting` are tables, by upstream's names, of which there is no mirror yet."""

    leaving: Mapping[TableName, str]
    moving: Mapping[TableName, TableName]
    starting: tuple[TableName, ...] = ()

    @staticmethod
    def between(
        tables: Sources,
        existing: Collection[TableName],
        before: TableSelection,
        now: TableSelection,
    ) -> SelectionChange:
        """`tables` are the mirrors of the cut before with upstream's tables, `existing` upstream's tables then."""
        merged = {
            mirror: [source for source in found if source in existing] or list(found)
            for mirror, found in tables.items()
            if any(before.merges(source) or now.merges(source) for source in found)
        }
        sources = {mirror: found[0] for mirror, found in tables.items() if mirror not in merged}
        leaving = {
            mirror: f"{source} is not included any more" for mirror, source in sources.items() if not now.is_in(source)
        }
        targets = {mirror: now.routed(source) for mirror, source in sources.items() if mirror not in leaving}
        # of rows that are merged already, or are not yet, none go from mirror to mirror
        anew = {mirror: found for mirror, found in merged.items() if not _stays(mirror, found, before, now)}
        leaving.update(dict.fromkeys(anew, "its tables are merged otherwise now"))
        taken = set(targets) | (set(merged) - set(anew))
        targets = {mirror: target for mirror, target in sorted(targets.items()) if target != mirror}
        moving: dict[TableName, TableName] = {}
        while free := next((mirror for mirror, target in targets.items() if target not in taken), None):
            moving[free] = targets.pop(free)
            taken = (taken - {free}) | {moving[free]}
        # those that are left change their names in a ring
        leaving.update({mirror: f"{sources[mirror]} is mirrored as {target} now" for mirror, target in targets.items()})
        starting = {name for name in existing if now.is_in(name) and not before.is_in(name)}
        starting |= {source for found in anew.values() for source in found if now.is_in(source)}
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
        draft: PlanDraft,
        cut_id: int,
        now: TableSelection,
        definition: Callable[[TableName], MirrorState | None],
    ) -> None:
        """Adds the steps to an empty draft."""
        for mirror in self.leaving:
            if (state := draft.state(mirror)) is not None:
                draft.steps.append(DropMirror(state, f"not-included-{cut_id}"))
                draft.remove(mirror)
        for mirror, target in self.moving.items():
            if (state := draft.state(mirror)) is not None:
                renamed = replace(state, name=target)
                draft.steps.append(RenameMirror(state, renamed))
                draft.remove(mirror)
                draft.set_state(renamed)
        for source in self.starting:
            name, known = now.routed(source), definition(source)
            if now.merges(source):
                _start_merged(draft, name, source, known, cut_id)
                continue
            schema = TableSchema(()) if known is None else known.schema
            state = MirrorState(name, f"{name}@cut{cut_id}.{len(draft.steps)}", schema, inferred=known is None)
            gap = _not_included("it", cut_id)
            draft.create(state.with_gaps(*(() if known is None else known.gaps), gap))


def _stays(mirror: TableName, found: Iterable[TableName], before: TableSelection, now: TableSelection) -> bool:
    """Whether a mirror is of these tables before and after, merged."""
    return all(before.merges(source) and now.merges(source) and now.routed(source) == mirror for source in found)


def _not_included(which: str, cut_id: int) -> Gap:
    words = f"{which} was not included before cut {cut_id}: rows from before are not here; a rebuild takes them in"
    return Gap(GapKind.NOT_INCLUDED_BEFORE, words)


def _start_merged(
    draft: PlanDraft, mirror: TableName, source: TableName, known: MirrorState | None, cut_id: int
) -> None:
    """One more of the tables of a merged mirror, which is perhaps not there yet."""
    gap = _not_included(str(source), cut_id)
    state = draft.state(mirror)
    before = state or MirrorState(mirror, f"{mirror}@cut{cut_id}.{len(draft.steps)}", TableSchema(()), shards=())
    after = before.with_gaps(gap)
    if known is not None:
        after = with_shards(after, (*(after.shards or ()), Shard(source, known.schema))).with_gaps(*known.gaps)
    if state is None:
        draft.create(replace(after, inferred=after.inferred or known is None))
    else:
        draft.change_merged(before, after)
