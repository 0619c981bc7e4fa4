"""Plans a change of the pipeline's selection since the last cut.

The mirror of a newly excluded table is dropped, because it would no longer change and look live. The mirror of a table with
another route is renamed. A newly included table starts with its next rows, which define its columns, and has a gap for the
earlier ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import DropMirror
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName, TableSchema


@dataclass(frozen=True)
class SelectionChange:
    """The mirrors that the new selection drops, renames and creates, by key."""

    dropped: Mapping[TableName, str] = field(default_factory=dict)
    """Mirror → the reason."""
    renamed: Mapping[TableName, TableName] = field(default_factory=dict)
    """Mirror → upstream's name of its table, in an order in which each new name is free."""
    created: tuple[TableName, ...] = ()
    """Tables, by upstream's names, whose mirrors start without earlier rows."""

    @staticmethod
    def from_selections(
        tables: Mapping[TableName, tuple[TableName, ...]],
        existing: Collection[TableName],
        before: TableSelection,
        now: TableSelection,
    ) -> SelectionChange:
        """The change from the selection `before` to `now`.

        tables: the mirrors of the last cut, each with its upstream tables.
        existing: the tables with rows before this cut, by upstream's names.
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
            renamed[free] = sources[free]
            taken = (taken - {free}) | {targets.pop(free)}
        # the remaining mirrors exchange their names in a ring
        dropped.update({mirror: f"{sources[mirror]} is now mirrored as {target}" for mirror, target in targets.items()})
        starting = {name for name in existing if now.includes(name) and not before.includes(name)}
        starting |= {source for found in rebuilt.values() for source in found if now.includes(source)}
        return SelectionChange(dropped, renamed, (*sorted(starting), *(sources[mirror] for mirror in targets)))

    def descriptions(self, now: TableSelection) -> tuple[str, ...]:
        """One line per mirror that changes."""
        return (
            *(f"mirror {mirror} is dropped: {reason}" for mirror, reason in self.dropped.items()),
            *(f"mirror {mirror} is renamed to {now.mirror_key(source)}" for mirror, source in self.renamed.items()),
            *(
                f"{name} is newly included: mirror {now.mirror_name(name)} starts without earlier rows"
                for name in self.created
            ),
        )

    def still_held(self, tables: Iterable[HeldTable], now: TableSelection) -> tuple[HeldTable, ...]:
        """The held tables that stay included, under their current keys."""
        held = {now.key(table.name): table for table in tables}
        keys = {name: now.mirror_key(self.renamed[name]) if name in self.renamed else name for name in held}
        return tuple(replace(table, name=keys[name]) for name, table in held.items() if name not in self.dropped)

    def plan(self, draft: PlanDraft, cut_id: int, now: TableSelection) -> None:
        """Adds the steps to an empty draft."""
        for mirror in self.dropped:
            if (state := draft.state(mirror)) is not None:
                draft.add(DropMirror(state, f"not-included-{cut_id}"))
        for mirror, source in self.renamed.items():
            if (state := draft.state(mirror)) is not None:
                draft.apply_name_rules(draft.rename(state, now.mirror_key(source), source))
        for source in self.created:
            name = now.mirror_key(source)
            detail = f"{source} was not included before cut {cut_id}: earlier rows are missing; rebuild to add them"
            gap = Gap(GapKind.NOT_INCLUDED_BEFORE, detail)
            draft.name_tables([(name, source)])
            draft.require_same_table(name)
            if draft.state(name) is not None:
                draft.add_gaps(name, gap)
                continue
            sources = () if now.merges(source) else None
            mirror_id = f"{name}@cut{cut_id}.{len(draft.steps)}"
            state = MirrorState(name, mirror_id, TableSchema(()), inferred=True, source_tables=sources)
            draft.create(state.with_gaps(gap))


def _stays(mirror: TableName, found: Iterable[TableName], before: TableSelection, now: TableSelection) -> bool:
    """Whether the mirror merges these tables before and after."""
    return all(before.merges(source) and now.merges(source) and now.mirror_key(source) == mirror for source in found)
