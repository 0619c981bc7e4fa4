from __future__ import annotations

from cdc_pipeline.dialects.message_types import MessageTypes
from cdc_pipeline.mirrors.changes.row_groups import RowGroup, contradiction_gaps
from cdc_pipeline.mysql.model.table import TableName

_T, _U = TableName("db", "t"), TableName("db", "u")


def _group(name: TableName, *contradictions: str) -> RowGroup:
    types = (MessageTypes(), MessageTypes(contradictions=contradictions))
    return RowGroup(
        name, 0, ("id", "v"), ("id",), 1, "canal", has_after=True, position=(1, "t", 0, 0), sent_types=types
    )


def test_contradictory_types_are_a_gap_of_their_table() -> None:
    found = [(name, str(gap)) for name, gap in contradiction_gaps([_group(_T, "id", "v"), _group(_U)])]
    text = "sqlType contradicts mysqlType in some messages (id, v): values may be under wrong column names"
    assert found == [(_T, text)]
