"""`MirrorState`: name, schema, column settings and known gaps of a mirror at one moment.

The state is stored in the Delta properties of the mirror, in the commits that change the mirror. So the two always agree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, DataType, IntegerType, LongType, StringType, StructField, StructType

from cdc_pipeline.gaps import GAPS_JSON, Gap, GapKind, gaps_after_alter, merge_gaps
from cdc_pipeline.lake.delta import TableState, table_state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn
from cdc_pipeline.mirrors.model.masks import HASH, Mask, redacted_schema
from cdc_pipeline.mirrors.model.source_tables import (
    SOURCE_NAMES,
    SOURCE_TABLES_JSON,
    SourceTable,
    redacted_source_tables,
)
from cdc_pipeline.mysql.model.table import Column, ForeignKey, TableName, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type
from cdc_pipeline.stored_json import StoredJson, shareable

_ROW_GAPS = "cdc.row_gaps"
UNSEEN_START = Gap(
    GapKind.UNSEEN_START,
    "no CREATE TABLE was seen: rows from before the stream began are missing, and columns are those that messages name",
)
MAY_HAVE_EXISTED = Gap(
    GapKind.UNSEEN_START,
    "CREATE TABLE IF NOT EXISTS does not tell whether the table existed before: earlier rows may be missing",
)
UNSEEN_LOAD = Gap(
    GapKind.UNSEEN_START,
    "no CREATE TABLE was seen, and no message confirms that the initial load was complete: rows may be missing, and "
    "columns are those that messages name",
)


def name_gap(*names: TableName) -> Gap:
    """The gap of a mirror that tables of these names may share."""
    listed = " and ".join(map(str, sorted(set(names))))
    detail = f"{listed} differ in case only; if they are two tables, set case_sensitive: true and rebuild"
    return Gap(GapKind.NAMES_DIFFER_IN_CASE, detail)


def cascade_gap(key: ForeignKey, reason: str) -> Gap:
    """The gap of a mirror whose rows the foreign key may have changed."""
    return Gap(GapKind.CASCADES, f"the binlog may lack row changes of the foreign key {key}: {reason}")


METADATA = StructType(
    [
        StructField("_commit_ts", LongType()),
        StructField("_topic", StringType()),
        StructField("_partition", IntegerType()),
        StructField("_offset", LongType()),
    ]
)
"""The columns that lead from a row to the message that wrote it (`metadata_columns`)."""
METADATA_COLUMNS = tuple(METADATA.names)
RETIRED_MARK = "__dropped_"
"""Precedes the id of the DROP in the name of a mirror that `ddl_policy: keep` keeps."""
DROPPED_BY = "cdc.dropped_by"
"""The property of dropped mirrors that did not move: the id of the DROP. Empty after RECOVER or FLASHBACK."""
DELETED = "_deleted"
"""The column of mirrors with `soft_delete`: whether upstream deleted the row. Never NULL."""


@shareable
@dataclass(frozen=True)
class MirrorState:
    """One mirror at one moment. Upstream's columns win name conflicts with metadata and computed columns."""

    name: TableName
    mirror_id: str
    """Stays the same through renames; a later table of the same name has another one."""
    schema: TableSchema
    """Upstream's definition, without defaults of masked columns."""
    inferred: bool = False
    """The schema comes from the types of rows, because no CREATE TABLE was seen."""
    gaps: tuple[Gap, ...] = ()
    """Why the mirror may differ from upstream."""
    kept_columns: tuple[str, ...] = ()
    """Columns that upstream dropped and the mirror keeps (`ddl_policy: keep`)."""
    retired: str | None = None
    """The id of the DROP after which the mirror is kept under another name (`ddl_policy: keep`); else None."""
    metadata: tuple[str, ...] = METADATA_COLUMNS
    """`metadata_columns` of the mirror."""
    masks: tuple[tuple[str, Mask], ...] = ()
    """Masked columns and how each is masked."""
    mask_key: str = ""
    """Identifies the salt of hashed values (`masks.salt_key`); empty without hashes."""
    source_tables: tuple[SourceTable, ...] | None = None
    """Source tables of a merged mirror, the last changed one first. None: the mirror has one source table."""
    soft_delete_key: tuple[str, ...] | None = None
    """`soft_delete`: no two rows share this key, deleted ones included. None: deletes remove rows. Empty: keys must be made
    unique before the next merge by key."""
    computed: tuple[ComputedColumn, ...] = ()
    """Declared `computed` columns; `computed_shown` are those that the mirror has."""
    upstream: TableName | None = None
    """Upstream's name of the table, if a route gives the mirror another name."""
    exported_until: int = 0
    """When the export that the mirror begins with had certainly ended (`es`, in ms), if it has no TSO: it may have changes
    up to then, and the mirror gets them again."""
    referencing: tuple[tuple[TableName, ForeignKey], ...] = ()
    """The mirrors that change with this one, each with its foreign key. Some may not exist any more."""

    def __post_init__(self) -> None:
        taken = {name.casefold() for name in (*self.schema.column_names, *self.kept_columns)}
        if not taken.isdisjoint(self.metadata):
            object.__setattr__(self, "metadata", tuple(name for name in self.metadata if name not in taken))
        if self.masks:
            object.__setattr__(self, "schema", redacted_schema(self.schema, dict(self.masks)))
            if self.source_tables is not None:
                object.__setattr__(self, "source_tables", redacted_source_tables(self.source_tables, dict(self.masks)))

    def spark_schema(self) -> StructType:
        """The mirror's columns: upstream's (without `kept_columns`), then computed, then metadata and `_deleted`."""
        own = [StructField(column.name, self.column_type(column)) for column in self.schema.columns]
        return StructType([*own, *self.computed_fields, *self.own_fields])

    def column_type(self, column: Column) -> DataType:
        """The Spark type of one of the schema's columns in the mirror."""
        return StringType() if dict(self.masks).get(column.name) == HASH else spark_type(column.type)

    def folder(self, paths: LakePaths) -> str:
        return paths.mirror_folder(self.name, self.mirror_id)

    @property
    def shown_schema(self) -> TableSchema:
        """The schema without masked columns."""
        masked = dict(self.masks)
        return self.schema.with_columns(tuple(column for column in self.schema.columns if column.name not in masked))

    def key_columns(self, declared: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        """The key from the table's definition, else the one `declared` by `database.table`, in lower case or as the mirror
        is spelled; empty for a keyless table.

        The key of a merged mirror starts with the source columns.
        """
        if self.schema.row_key:
            return self.schema.row_key
        name = str(self.name)
        columns = [self.schema.find(column) for column in declared.get(name) or declared.get(name.lower(), ())]
        # a declared key with columns that the table lacks is ignored
        own = tuple(column.name for column in columns if column is not None) if all(columns) else ()
        return (*SOURCE_NAMES, *own) if own and self.source_tables is not None else own

    def source_table(self, name: TableName) -> SourceTable | None:
        """The source table of upstream's name; None if the mirror does not have it."""
        return next((source for source in self.source_tables or () if source.name == name), None)

    @property
    def upstream_tables(self) -> tuple[TableName, ...]:
        """The tables that the mirror has: several if it is merged."""
        if self.source_tables is not None:
            return tuple(source.name for source in self.source_tables)
        return (self.upstream or self.former_name,)

    @property
    def computed_shown(self) -> tuple[ComputedColumn, ...]:
        """The computed columns without a name conflict, which are those that the mirror has."""
        if not self.computed:
            return ()
        own = (field.name for field in self.own_fields)
        taken = {name.casefold() for name in (*self.schema.column_names, *self.kept_columns, *own)}
        return tuple(column for column in self.computed if column.name.casefold() not in taken)

    @property
    def computed_fields(self) -> list[StructField]:
        return [StructField(column.name, column.data_type) for column in self.computed_shown]

    @property
    def metadata_fields(self) -> list[StructField]:
        return [field for field in METADATA.fields if field.name in self.metadata]

    @property
    def own_fields(self) -> list[StructField]:
        """Metadata columns and `_deleted`."""
        return [*self.metadata_fields, *([StructField(DELETED, BooleanType())] if self.has_soft_delete else [])]

    @property
    def has_soft_delete(self) -> bool:
        """Whether the mirror has `soft_delete`: deleted rows stay, with `_deleted` true."""
        return self.soft_delete_key is not None

    def with_gaps(self, *gaps: Gap) -> MirrorState:
        return replace(self, gaps=merge_gaps(self.gaps, gaps)) if gaps else self

    def as_retired(self, mark: str) -> MirrorState:
        """The mirror under the name that `ddl_policy: keep` gives it after the DROP with this id."""
        return replace(self, name=replace(self.name, table=f"{self.name.table}{RETIRED_MARK}{mark}"), retired=mark)

    @property
    def former_name(self) -> TableName:
        """The mirror's name before it was retired."""
        return replace(self.name, table=self.name.table.removesuffix(f"{RETIRED_MARK}{self.retired}"))

    def properties(self) -> dict[str, str]:
        """The Delta properties that hold this state: `cdc.` with the name of each field, as JSON except names and ids."""
        plain = _STATE_JSON.to_plain(self, exclude=_NO_JSON)
        return {
            "cdc.database": self.name.database,
            "cdc.table": self.name.table,
            "cdc.mirror_id": self.mirror_id,
            **{f"cdc.{field}": json.dumps(value, ensure_ascii=False) for field, value in plain.items()},
            **(
                {}
                if self.source_tables is None
                else {"cdc.source_tables": SOURCE_TABLES_JSON.to_json(self.source_tables)}
            ),
        }

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> MirrorState:
        """The state of `properties`, with the gaps of `row_gaps`. Raises LakeError if it cannot be read."""
        name = {"database": properties["cdc.database"], "table": properties["cdc.table"]}
        texts = {"name": json.dumps(name), "mirror_id": json.dumps(properties["cdc.mirror_id"])}
        for field in fields(MirrorState):
            if field.name not in _NO_JSON and (text := properties.get(f"cdc.{field.name}")) is not None:
                texts[field.name] = text
        state = _STATE_JSON.from_json(f"{{{','.join(f'{json.dumps(name)}:{text}' for name, text in texts.items())}}}")
        if (sources := properties.get("cdc.source_tables")) is not None:
            state = replace(state, source_tables=SOURCE_TABLES_JSON.from_json(sources))
        return state.with_gaps(*GAPS_JSON.from_json(properties.get(_ROW_GAPS, "[]")))


def mirror_state(spark: SparkSession, path: str) -> MirrorState | None:
    """The state of the mirror at `path` as it is now; None if there is none."""
    table = table_state(spark, path)
    return None if table is None else MirrorState.from_properties(table.properties)


_STATE_JSON = StoredJson(MirrorState)
_NO_JSON = {"name", "mirror_id", "source_tables"}


def row_gaps(table: TableState, *gaps: Gap) -> dict[str, str]:
    """The property for gaps found while writing rows, with these added.

    It is separate from `cdc.gaps`: later steps of the cut overwrite that property with the planned state.
    """
    return {_ROW_GAPS: GAPS_JSON.to_json(merge_gaps(_row_gaps(table), gaps))}


def has_row_gaps(table: TableState) -> bool:
    return bool(_row_gaps(table))


def no_row_gaps() -> dict[str, str]:
    """The property without any row gaps, for a mirror whose rows were all removed."""
    return {_ROW_GAPS: "[]"}


def row_gaps_after_alter(table: TableState, now: Mapping[str, str | None]) -> dict[str, str]:
    """The property after a change of columns (`gaps.gaps_after_alter`); empty if it stays the same."""
    before = _row_gaps(table)
    after = gaps_after_alter(before, now)
    return {} if after == before else {_ROW_GAPS: GAPS_JSON.to_json(after)}


def _row_gaps(table: TableState) -> tuple[Gap, ...]:
    return GAPS_JSON.from_json(table.properties.get(_ROW_GAPS, "[]"))
