"""What lakes of format 2 have of a cut that was begun: its window and what its plan is to be made of anew, no steps."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.dropped_tables import EndedTable
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from pyspark.sql import Row

    from cdc_pipeline.mirrors.settings.ddl_policy import StatementPosition


@dataclass(frozen=True)
class EarlierPlan:
    """A cut that was begun and not published: its window, the mirrors as they were then, the tables that had ended by
    then (by database), the statements that were approved by then, and the selection and the rules for columns that it is
    made with."""

    window: Window
    mirrors: dict[TableName, MirrorState | None]
    ended: dict[str, tuple[EndedTable, ...]]
    approved: frozenset[StatementPosition]
    selection: TableSelection
    columns: ColumnRules


def earlier_plan(row: Row, salt: str) -> EarlierPlan:
    """The plan of a row of `cut_plans`. Raises MaskSaltError where it was begun with another salt."""
    window = Window(row["cut_id"], row["after_tso"], row["resolved_tso"], row["after_batch"], row["last_batch"])
    inputs = json.loads(row["inputs"])
    mirrors = {
        TableName(database, table): None if properties is None else MirrorState.from_properties(properties)
        for database, table, properties in inputs["mirrors"]
    }
    ended = {
        database: tuple(EndedTable.from_plain(plain) for plain in tables)
        for database, tables in inputs["ended"].items()
    }
    approved = frozenset((topic, partition, offset) for topic, partition, offset in inputs["approved"])
    columns = ColumnRules.from_plain(inputs["columns"], salt) if "columns" in inputs else ColumnRules()
    return EarlierPlan(window, mirrors, ended, approved, TableSelection.from_json(inputs["selection"]), columns)
