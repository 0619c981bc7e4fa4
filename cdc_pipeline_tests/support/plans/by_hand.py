"""Builds inputs of the planner."""

from __future__ import annotations

from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema
from cdc_pipeline_tests.support.messages import tso

_SCHEMA = TableSchema((Column("id", MySqlType("int"), nullable=False),), ("id",))


def mirror_state(name: str) -> MirrorState:
    return MirrorState(TableName("db", name), f"{name}@1", _SCHEMA)


def ddl_event(place: int, sql: str) -> DdlEvent:
    return DdlEvent(
        *("t", 0, place, "db", "", tso(place), True, tso(place) >> 18, None, sql, event_changes("ddl", "db", "", sql))
    )


def row_group(name: TableName, segment: int) -> RowGroup:
    place = (1, "t", 0, segment)
    return RowGroup(name, segment, ("id",), ("id",), 1, "ticdc", True, place, True)
