"""Finds rows that a foreign key has changed below the binlog, after the steps of a cut.

InnoDB carries out ON DELETE and ON UPDATE itself. Up to MySQL 9.5 and in MariaDB, the binlog has the change of the
referenced row only; from 9.6 it has all, and no message shows the version. A row that still references a lost key, and that
no later message has written, shows that its change did not arrive. Its mirror gets a gap, and so do those that change with
it. One pass over the changes of a cut decides whether a mirror must be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.lake.faults import affects_all_tables
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import PublishedCut
from cdc_pipeline.mirrors.merge.row_entries import RowSet, row_entries
from cdc_pipeline.mirrors.merge.row_identity import Identity, canonical_text
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.merge.step_context import add_row_gaps
from cdc_pipeline.mirrors.model.state import MirrorState, cascade_gap, mirror_state
from cdc_pipeline.mirrors.model.step_commits import CutCommits
from cdc_pipeline.mirrors.model.steps import ApplyRows, DropMirror, Step
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.model.table import ForeignKey, TableName
from cdc_pipeline.positions import POSITION

_STALE = "rows reference a row that was deleted or has another key now"
_WITH_OTHERS = "they follow those of the referenced table, which the binlog may lack"
_IS_STALE = "written IS NULL OR NOT if(_topic = topic AND _partition = partition, _offset > offset, written > at)"
"""Whether a row is older than the loss of the key that it references. `written`: the `at` of its message in this cut."""


class _Child(NamedTuple):
    """A mirror with a foreign key."""

    path: str
    state: MirrorState
    key: ForeignKey


@dataclass(frozen=True)
class Cascades:
    """The foreign keys whose referenced rows a cut has changed."""

    lake: Lake
    steps: Sequence[Step]
    changes: DataFrame
    """The row changes of the cut, with `segment`."""
    time_zone: str
    """The zone in which the encoder prints TIMESTAMP."""
    published: PublishedCut
    """The cut before."""
    commits: CutCommits
    quarantined: frozenset[TableName] = frozenset()
    """These mirrors may be unreadable, and have their own gap."""
    _marked: dict[tuple[TableName, str], MirrorState] = field(default_factory=dict)

    def add_gaps(self) -> list[MirrorState]:
        """Adds a gap to each mirror that lacks changes. Returns these mirrors. Can be repeated."""
        keys = [(parent, *reference) for parent in self._final.values() for reference in parent.referencing]
        sets = [
            RowSet(number, step.source, step.segments, identity, spellings=step.spellings)
            for number, (parent, _, key) in enumerate(keys)
            for step in self.steps
            if isinstance(step, ApplyRows) and step.state.mirror_id == parent.mirror_id
            for identity in [
                Identity.for_columns(_referenced(parent, key), step.encodings, self.time_zone, keyless=False)
            ]
        ]
        if sets:
            deleting, updating = (
                F.col("step").isin([number for number, (*_, key) in enumerate(keys) if event in key.actions])
                for event in ("ON DELETE", "ON UPDATE")
            )
            # an UPDATE in two messages (DataWorks) does not show whether it changes the key
            is_lost = F.when(F.col("op") == "DELETE", deleting).when(F.col("after").isNotNull(), updating)
            lost = row_entries(self.changes, sets).where("entry.sign < 0").where(is_lost)
            for row in lost.select("step").distinct().collect():
                parent, name, key = keys[row["step"]]
                child, own = self._child(name, key), lost.where(F.col("step") == row["step"])
                if child is not None and (reason := self._reason(parent, child, own)):
                    self._add_gap(child, reason)
        return list(self._marked.values())

    @cached_property
    def _final(self) -> dict[TableName, MirrorState]:
        """The mirrors after the last of their steps."""
        last = {step.state.mirror_id: step for step in self.steps}
        return {step.state.name: step.state for step in last.values() if not isinstance(step, DropMirror)}

    def _child(self, name: TableName, key: ForeignKey) -> _Child | None:
        """The mirror with the foreign key, with the present names of its columns; None if it or the key was dropped."""
        if name in self.quarantined:
            return None
        final, paths = self._final.get(name), self.lake.paths
        path = self.published.mirror_folder(name, paths) if final is None else final.folder(paths)
        if (state := mirror_state(self.lake.spark, path)) is None:
            return None
        found = (own for own in state.schema.foreign_keys if own.name == key.name)
        return next((_Child(path, state, replace(key, columns=own.columns)) for own in found), None)

    def _add_gap(self, child: _Child, reason: str) -> None:
        """Adds the gap of a foreign key, and those of keys that reference the rows that it removes or renumbers."""
        place, gap, known = (child.state.name, child.key.name), cascade_gap(child.key, reason), child.state.gaps
        if place in self._marked:
            return
        self._marked[place] = child.state
        if gap not in known:
            # after all steps; a further gap of the mirror gets a higher version
            add_row_gaps(self.lake.spark, child.path, [gap], self.commits.step(len(self.steps))(len(known)))
        for reference in child.state.referencing if "CASCADE" in child.key.actions else ():
            if (other := self._child(*reference)) is not None:
                self._add_gap(other, _WITH_OTHERS)

    # ---- one foreign key

    def _reason(self, parent: MirrorState, child: _Child, lost: DataFrame) -> str | None:
        """Why the mirror may lack changes after the referenced table has lost keys; None if it does not."""
        try:
            if cascade_gap(child.key, _STALE) in child.state.gaps or self._has_stale_rows(parent, child, lost):
                return _STALE
        except Exception as error:
            if affects_all_tables(error):
                raise
            return f"they could not be looked up ({type(error).__name__})"
        return None

    def _has_stale_rows(self, parent: MirrorState, child: _Child, lost: DataFrame) -> bool:
        """Whether rows reference a lost key, and no message has written them since. True if it cannot be decided: a column
        is masked, or that of the referenced table was renamed."""
        own = [column for name in child.key.columns if (column := child.state.shown_schema.find(name)) is not None]
        if not len(child.key.columns) == len(own) == len(_referenced(parent, child.key)):
            return True
        lost = lost.select(_comparable(F.col("entry.identity")).alias("key"), "at", *POSITION)
        metadata = [f"_{name}" for name in POSITION if f"_{name}" in child.state.metadata]
        values = F.array(*(canonical_text(F.col(quoted(column.name)), column) for column in own))
        mirror = live_rows(self.lake.read_path(child.path), keeps_deleted=child.state.has_soft_delete)
        rows = mirror.select(_comparable(values).alias("key"), *metadata).where("NOT exists(key, part -> part IS NULL)")
        stale = rows.join(F.broadcast(lost), "key")
        if len(metadata) == len(POSITION):
            written = [F.col("at").alias("written"), *(F.col(name).alias(f"_{name}") for name in POSITION)]
            stale = stale.join(self.changes.select(*written), metadata, "left").where(_IS_STALE)
        return not stale.isEmpty()


def _referenced(parent: MirrorState, key: ForeignKey) -> tuple[UpstreamColumn, ...]:
    """The columns that the foreign key references, without those that the table does not have any more."""
    found = map(parent.schema.find, key.referenced or parent.schema.row_key)
    return tuple(column for column in found if column is not None)


def _comparable(texts: Column) -> Column:
    """The texts without what collations may ignore: case and trailing spaces."""
    return F.transform(texts, lambda text: F.lower(F.rtrim(text)))
