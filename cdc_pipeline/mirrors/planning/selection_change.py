"""Plans a change of the pipeline's selection since the last cut.

The mirror of a newly excluded table is dropped, because it would no longer change and look live. The mirror of a table with
another route is renamed. A newly included table starts with the next rows and has a gap for the earlier ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.source_tables import SourceTable
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DropMirror
from cdc_pipeline.mirrors.planning.merged_definitions import with_sources
from cdc_pipeline.mysql.model.table import TableSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
    from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
    from cdc_pipeline.mirrors.settings.selection import TableSelection
    from cdc_pipeline.mysql.model.table import TableName


@dataclass(frozen=True)
class SelectionChange:
    """The mirrors that the new selection drops, renames and creates, by key."""

    dropped: Mapping[TableName, str]
    """Mirror → the reason."""
    renamed: Mapping[TableName, TableName]
    """Old → new key, in an order in which each new key is free."""
    created: tuple[TableName, ...] = ()
    """Tables, by upstream's names, without a mirror."""
    names: Mapping[TableName, TableName] = field(default_factory=dict)
    """New key → upstream's name of the renamed mirrors."""

    @staticmethod
    def from_selections(
        tables: Mapping[TableName, tuple[TableName, ...]],
        existing: Collection[TableName],
        before: TableSelection,
        now: TableSelection,
    ) -> SelectionChange:
        """The change from the selection `before` to `now`.

        tables: the mirrors of the last cut, each with its upstream tables.
        existing: upstream's tables at that cut.
        """
        tables = {now.key(mirror): found for mirror, found in tables.items()}
        merged = {
            mirror: found
            for mirror, found in tables.items()
            if any(before.merges(source) or now.merges(source) for source in found)
        }
        sources = {mirror: found[0] for mirror, found in tables.items() if mirror not in merged}
        dropped = {
            mirror: f"{source} is no longer included" for mirror, source in sources.items() if not now.includes(source)
        }
        targets = {mirror: now.mirror_key(source) for mirror, source in sources.items() if mirror not in dropped}
        # rows of merged tables do not move between mirrors
        rebuilt = {mirror: found for mirror, found in merged.items() if not _stays(mirror, found, before, now)}
        dropped.update(dict.fromkeys(rebuilt, "its tables are merged differently"))
        taken = set(targets) | (set(merged) - set(rebuilt))
        targets = {mirror: target for mirror, target in sorted(targets.items()) if target != mirror}
        renamed: dict[TableName, TableName] = {}
        while free := next((mirror for mirror, target in targets.items() if target not in taken), None):
            renamed[free] = targets.pop(free)
            taken = (taken - {free}) | {renamed[free]}
        # the remaining mirrors exchange their names in a ring
        dropped.update({mirror: f"{sources[mirror]} is now mirrored as {target}" for mirror, target in targets.items()})
        starting = {name for name in existing if now.includes(name) and not before.includes(name)}
        starting |= {source for found in rebuilt.values() for source in found if now.includes(source)}
        names = {target: sources[mirror] for mirror, target in renamed.items()}
        return SelectionChange(dropped, renamed, (*sorted(starting), *(sources[mirror] for mirror in targets)), names)

    def descriptions(self, now: TableSelection) -> tuple[str, ...]:
        """One line per mirror that changes."""
        return (
            *(f"mirror {mirror} is dropped: {reason}" for mirror, reason in self.dropped.items()),
            *(f"mirror {mirror} is renamed to {target}" for mirror, target in self.renamed.items()),
            *(
                f"{name} is newly included: mirror {now.mirror_name(name)} starts without earlier rows"
                for name in self.created
            ),
        )

    def still_held(self, tables: Iterable[HeldTable]) -> tuple[HeldTable, ...]:
        """The held tables that stay included, under their new keys."""
        stay = (table for table in tables if table.name not in self.dropped)
        return tuple(replace(table, name=self.renamed.get(table.name, table.name)) for table in stay)

    def plan(
        self,
        draft: PlanDraft,
        cut_id: int,
        now: TableSelection,
        definition: Callable[[TableName], MirrorState | None],
    ) -> None:
        """Adds the steps to an empty draft."""
        for mirror in self.dropped:
            if (state := draft.state(mirror)) is not None:
                draft.steps.append(DropMirror(state, f"not-included-{cut_id}"))
                draft.remove(mirror)
        for mirror, target in self.renamed.items():
            if (state := draft.state(mirror)) is not None:
                draft.name_tables([(target, self.names[target])])
                draft.apply_name_rules(draft.rename(state, target))
        for source in self.created:
            name, known = now.mirror_key(source), definition(source)
            draft.name_tables([(name, source)])
            draft.require_same_table(name)
            if now.merges(source):
                _add_source_table(draft, name, now.key(source), known, cut_id)
                continue
            schema = TableSchema(()) if known is None else known.schema
            state = MirrorState(name, f"{name}@cut{cut_id}.{len(draft.steps)}", schema, inferred=known is None)
            gap = _not_included("the table", cut_id)
            draft.create(state.with_gaps(*(() if known is None else known.gaps), gap))


def _stays(mirror: TableName, found: Iterable[TableName], before: TableSelection, now: TableSelection) -> bool:
    """Whether the mirror merges these tables before and after."""
    return all(before.merges(source) and now.merges(source) and now.mirror_key(source) == mirror for source in found)


def _not_included(which: str, cut_id: int) -> Gap:
    detail = f"{which} was not included before cut {cut_id}: earlier rows are missing; rebuild to add them"
    return Gap(GapKind.NOT_INCLUDED_BEFORE, detail)


def _add_source_table(
    draft: PlanDraft, mirror: TableName, source: TableName, known: MirrorState | None, cut_id: int
) -> None:
    """Adds a source table to a merged mirror, and creates the mirror if it does not exist."""
    gap = _not_included(str(source), cut_id)
    state = draft.state(mirror)
    before = state or MirrorState(mirror, f"{mirror}@cut{cut_id}.{len(draft.steps)}", TableSchema(()), source_tables=())
    after = before.with_gaps(gap)
    if known is not None:
        after = with_sources(after, (*(after.source_tables or ()), SourceTable(source, known.schema))).with_gaps(
            *known.gaps
        )
    if state is None:
        draft.create(replace(after, inferred=after.inferred or known is None))
    else:
        draft.change_merged(before, after)
