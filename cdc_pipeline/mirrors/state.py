"""What a mirror is at one moment: its name, its upstream schema, and what is known to be missing.

The state is kept in the mirror's own Delta properties, written in the commits that change it, so that a mirror and
what is said of it cannot disagree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from cdc_pipeline.schemas.spark_types import row_type
from cdc_pipeline.schemas.table import TableName, TableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.resources.delta import TableState

_ROW_GAPS = "cdc.row_gaps"

# The columns of promise 8: from any row back to the message that wrote it.
TRACE = StructType(
    [
        StructField("_commit_ts", LongType()),
        StructField("_topic", StringType()),
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
    ]
)


@dataclass(frozen=True)
class MirrorState:
    """One mirror. `mirror_id` stays the same through renames and tells a table from a later one of the same name.

    `inferred` is true while no CREATE TABLE was seen and the schema comes from the rows' own types. `gaps` are the
    reasons why the mirror may differ from upstream; empty where it does not. `since` is the `commit_ts` of the first row
    from which an inferred mirror was made.
    """

    name: TableName
    mirror_id: str
    schema: TableSchema
    inferred: bool = False
    gaps: tuple[str, ...] = ()
    since: int | None = None

    def spark_schema(self) -> StructType:
        """The mirror's columns: upstream's own, then the underscored ones."""
        return StructType([*row_type(self.schema).fields, *TRACE.fields])

    def with_gaps(self, *reasons: str) -> MirrorState:
        return replace(self, gaps=tuple(dict.fromkeys((*self.gaps, *reasons))))

    def properties(self) -> dict[str, str]:
        """The Delta properties that hold this state."""
        return {
            "cdc.database": self.name.database,
            "cdc.table": self.name.table,
            "cdc.mirror_id": self.mirror_id,
            "cdc.schema": self.schema.to_json(),
            "cdc.inferred": json.dumps(self.inferred),
            "cdc.gaps": json.dumps(self.gaps, ensure_ascii=False),
            "cdc.since": json.dumps(self.since),
        }

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> MirrorState:
        return MirrorState(
            name=TableName(properties["cdc.database"], properties["cdc.table"]),
            mirror_id=properties["cdc.mirror_id"],
            schema=TableSchema.from_json(properties["cdc.schema"]),
            inferred=json.loads(properties["cdc.inferred"]),
            since=json.loads(properties.get("cdc.since", "null")),
            gaps=tuple(dict.fromkeys(json.loads(properties["cdc.gaps"]) + json.loads(properties.get(_ROW_GAPS, "[]")))),
        )


def row_gaps(table: TableState, *reasons: str) -> dict[str, str]:
    """The property for gaps found while rows were written. It is apart from the state's own, which the planner makes
    before a row is read and which later steps write again."""
    known = json.loads(table.properties.get(_ROW_GAPS, "[]"))
    return {_ROW_GAPS: json.dumps(list(dict.fromkeys([*known, *reasons])), ensure_ascii=False)}
