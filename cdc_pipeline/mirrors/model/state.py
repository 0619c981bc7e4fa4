"""What a mirror is at one moment: its name, its upstream schema, and what is known to be missing.

The state is kept in the mirror's own Delta properties, written in the commits that change it, so that a mirror and
what is said of it cannot disagree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructField, StructType

from cdc_pipeline.gaps import Gap, GapKind, added, carried
from cdc_pipeline.mirrors.model.computed_columns import DerivedColumn, columns_from_plain
from cdc_pipeline.mirrors.model.masks import HASH, without_values
from cdc_pipeline.mirrors.model.shards import Shard, hidden_values, shards_of_text, shards_text
from cdc_pipeline.mirrors.model.stored_gaps import gaps_of_text, gaps_text
from cdc_pipeline.mysql.ddl.stored_schema import schema_of_json
from cdc_pipeline.mysql.model.table import TableName, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql.types import DataType

    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.mirrors.model.masks import Mask
    from cdc_pipeline.mysql.model.table import Column

_ROW_GAPS = "cdc.row_gaps"
UNSEEN_START = Gap(
    GapKind.UNSEEN_START,
    "no CREATE TABLE was seen: rows from before the stream began are not here, and columns are as messages name them",
)
UNSEEN_LOAD = Gap(
    GapKind.UNSEEN_START,
    "no CREATE TABLE was seen, and no message says that all rows from before the changes were sent: some may not be here, "
    "and columns are as messages name them",
)

# The columns of promise 8: from any row back to the message that wrote it.
TRACE = StructType(
    [
        StructField("_commit_ts", LongType()),
        StructField("_topic", StringType()),
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
    ]
)
TRACE_NAMES = tuple(TRACE.names)
DELETED = "_deleted"
"""The column of mirrors that keep what upstream deletes (`soft_delete`): true of such a row, false of one that is there."""


@dataclass(frozen=True)
class MirrorState:
    """One mirror. `mirror_id` stays the same through renames and tells a table from a later one of the same name.

    `inferred` is true while no CREATE TABLE was seen and the schema comes from the rows' own types. `gaps` are the
    reasons why the mirror may differ from upstream; empty where it does not. `since` is the `commit_ts` of the first row
    from which an inferred mirror was made. `kept` are columns of the mirror that upstream has dropped (`ddl_policy`).
    `retired` is the mark of the DROP of a mirror that is kept under a name of its own. `trace` are the columns of `TRACE`
    that it has (`metadata_columns`), of which those give way whose names upstream's own columns have. `masks` are the
    columns whose values it does not show, each with how (`mirrors.model.masks`),
    and `mask_key` tells with which salt those are hashed that are; of their defaults the schema says nothing. `shards` are
    the tables of a merged mirror (`mirrors.model.shards`), the one that has changed last first; None where it is of one
    table. `soft_key` is None but in a mirror that keeps what upstream deletes (`mirrors.merge.soft_deletes`): there it
    is the key by which no two rows are equal, deleted ones included; empty where that is to be made sure of before rows
    come by a key. `derived` are the columns that it was declared to have of others (`computed`), `derived_shown` those
    that it has.
    """

    name: TableName
    mirror_id: str
    schema: TableSchema
    inferred: bool = False
    gaps: tuple[Gap, ...] = ()
    since: int | None = None
    kept: tuple[str, ...] = ()
    retired: str | None = None
    trace: tuple[str, ...] = TRACE_NAMES
    masks: tuple[tuple[str, Mask], ...] = ()
    mask_key: str = ""
    shards: tuple[Shard, ...] | None = None
    soft_key: tuple[str, ...] | None = None
    derived: tuple[DerivedColumn, ...] = ()

    def __post_init__(self) -> None:
        taken = {name.casefold() for name in (*self.schema.column_names, *self.kept)}
        if not taken.isdisjoint(self.trace):
            # upstream's columns come first: of theirs and ours with one name the mirror has theirs
            object.__setattr__(self, "trace", tuple(name for name in self.trace if name not in taken))
        if self.masks:
            object.__setattr__(self, "schema", without_values(self.schema, dict(self.masks)))
            object.__setattr__(self, "gaps", tuple(gap.hidden for gap in self.gaps))
            if self.shards is not None:
                object.__setattr__(self, "shards", hidden_values(self.shards, dict(self.masks)))

    def spark_schema(self) -> StructType:
        """The mirror's columns: upstream's own, then those derived of them, then the underscored ones."""
        own = [StructField(column.name, self.column_type(column)) for column in self.schema.columns]
        return StructType([*own, *self.derived_fields, *self.own_fields])

    def column_type(self, column: Column) -> DataType:
        """The type that one of the schema's columns has in the mirror."""
        return StringType() if dict(self.masks).get(column.name) == HASH else spark_type(column.type)

    @property
    def shown_schema(self) -> TableSchema:
        """The schema without the columns of which the mirror does not show the values."""
        masked = dict(self.masks)
        return self.schema.with_columns(tuple(column for column in self.schema.columns if column.name not in masked))

    def shard(self, name: TableName) -> Shard | None:
        """What a merged mirror knows of one of upstream's tables; None where that is none of its own."""
        return next((shard for shard in self.shards or () if shard.name == name), None)

    @property
    def derived_shown(self) -> tuple[DerivedColumn, ...]:
        """The derived columns whose names no other column has: those give way."""
        if not self.derived:
            return ()
        own = (field.name for field in self.own_fields)
        taken = {name.casefold() for name in (*self.schema.column_names, *self.kept, *own)}
        return tuple(column for column in self.derived if column.name.casefold() not in taken)

    @property
    def derived_fields(self) -> list[StructField]:
        return [StructField(column.name, column.data_type) for column in self.derived_shown]

    @property
    def trace_fields(self) -> list[StructField]:
        return [field for field in TRACE.fields if field.name in self.trace]

    @property
    def has_own_commit_ts(self) -> bool:
        """Whether upstream's table has a column of that name, so that rows do not say when they were committed."""
        return self.schema.find("_commit_ts") is not None

    @property
    def own_fields(self) -> list[StructField]:
        """The underscored columns, which come after upstream's."""
        return [*self.trace_fields, *([StructField(DELETED, BooleanType())] if self.keeps_deleted else [])]

    @property
    def keeps_deleted(self) -> bool:
        """Whether rows that upstream deletes stay, with `_deleted` true."""
        return self.soft_key is not None

    def with_gaps(self, *gaps: Gap) -> MirrorState:
        return replace(self, gaps=added(self.gaps, gaps)) if gaps else self

    def as_retired(self, mark: str) -> MirrorState:
        """The same mirror under the name that it is kept by after the DROP of this mark."""
        return replace(self, name=replace(self.name, table=f"{self.name.table}__dropped_{mark}"), retired=mark)

    @property
    def name_upstream(self) -> TableName:
        """The name that upstream had for it."""
        return replace(self.name, table=self.name.table.removesuffix(f"__dropped_{self.retired}"))

    def properties(self) -> dict[str, str]:
        """The Delta properties that hold this state."""
        return {
            "cdc.database": self.name.database,
            "cdc.table": self.name.table,
            "cdc.mirror_id": self.mirror_id,
            "cdc.schema": self.schema.to_json(),
            "cdc.inferred": json.dumps(self.inferred),
            "cdc.gaps": gaps_text(self.gaps),
            "cdc.since": json.dumps(self.since),
            "cdc.kept": json.dumps(self.kept, ensure_ascii=False),
            "cdc.retired": json.dumps(self.retired),
            "cdc.trace": json.dumps(self.trace),
            "cdc.masks": json.dumps(self.masks, ensure_ascii=False),
            "cdc.mask_key": self.mask_key,
            **({} if self.shards is None else {"cdc.shards": shards_text(self.shards)}),
            "cdc.soft_delete": json.dumps(self.soft_key, ensure_ascii=False),
            "cdc.computed": json.dumps([column.as_plain() for column in self.derived], ensure_ascii=False),
        }

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> MirrorState:
        soft_key = json.loads(properties.get("cdc.soft_delete", "null"))
        schema = schema_of_json(properties["cdc.schema"])
        kept = tuple(json.loads(properties.get("cdc.kept", "[]")))
        columns = (*schema.column_names, *kept)
        return MirrorState(
            name=TableName(properties["cdc.database"], properties["cdc.table"]),
            mirror_id=properties["cdc.mirror_id"],
            schema=schema,
            inferred=json.loads(properties["cdc.inferred"]),
            since=json.loads(properties.get("cdc.since", "null")),
            kept=kept,
            retired=json.loads(properties.get("cdc.retired", "null")),
            masks=tuple((column, how) for column, how in json.loads(properties.get("cdc.masks", "[]"))),
            mask_key=properties.get("cdc.mask_key", ""),
            shards=shards_of_text(properties["cdc.shards"]) if "cdc.shards" in properties else None,
            soft_key=None if soft_key is None else tuple(soft_key),
            derived=columns_from_plain(json.loads(properties.get("cdc.computed", "[]"))),
            trace=tuple(json.loads(properties["cdc.trace"])) if "cdc.trace" in properties else TRACE_NAMES,
            gaps=added(
                gaps_of_text(properties["cdc.gaps"], columns), gaps_of_text(properties.get(_ROW_GAPS, "[]"), columns)
            ),
        )


def row_gaps(table: TableState, *gaps: Gap) -> dict[str, str]:
    """The property for gaps found while rows were written. It is apart from the state's own, which the planner makes
    before a row is read and which later steps write again."""
    return {_ROW_GAPS: gaps_text(added(_row_gaps(table), gaps))}


def has_row_gaps(table: TableState) -> bool:
    return bool(_row_gaps(table))


def no_row_gaps() -> dict[str, str]:
    """The property that takes those back, where the rows themselves are gone."""
    return {_ROW_GAPS: "[]"}


def row_gaps_carried(table: TableState, now: Mapping[str, str | None], masks: Collection[str]) -> dict[str, str]:
    """The property after columns have changed (`gaps.carried`) and those of `masks` are masked; nothing where it stays."""
    known = _row_gaps(table)
    left = carried(known, now)
    if masks:
        left = tuple(gap.hidden for gap in left)
    return {} if left == known else {_ROW_GAPS: gaps_text(left)}


def _row_gaps(table: TableState) -> tuple[Gap, ...]:
    return gaps_of_text(table.properties.get(_ROW_GAPS, "[]"), table.schema.names)
