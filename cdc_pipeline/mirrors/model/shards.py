"""Tables of upstream that are merged into one mirror: what a mirror knows of each, and by what it tells their rows apart."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.model.masks import without_values
from cdc_pipeline.mysql.ddl.stored_schema import schema_of_json
from cdc_pipeline.mysql.expressions.partition_rows import SparkCondition
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import DataFrame

SOURCE_DATABASE, SOURCE_TABLE = "_source_database", "_source_table"
SOURCE_NAMES = (SOURCE_DATABASE, SOURCE_TABLE)
SOURCE_OF_CHANGE = ("source_database", "source_table")
"""The columns of row changes that have the names of a merged table, and "" for others (`TableSelection.selected`)."""
_NAME = MySqlType("varchar", (64,), charset="utf8mb4")
SOURCE_COLUMNS = tuple(Column(name, _NAME, nullable=False) for name in SOURCE_NAMES)
"""The columns that a merged mirror has before upstream's, and its rows' key before upstream's key."""


@dataclass(frozen=True, order=True)
class ShardName:
    """One of the tables of a merged mirror: `source` is upstream's name for it."""

    mirror: TableName
    source: TableName


@dataclass(frozen=True)
class Shard:
    """What a merged mirror knows of one of its tables: upstream's name, and its definition. `inferred` and `since` are as
    those of `state.MirrorState`: rows have told of it, the first of them at that `commit_ts`."""

    name: TableName
    schema: TableSchema
    inferred: bool = False
    since: int | None = None


def source_rows(name: TableName) -> SparkCondition:
    """The rows of a merged mirror that are of this table."""
    database, table = (f"decode(X'{part.encode().hex()}', 'UTF-8')" for part in (name.database, name.table))
    return SparkCondition(f"(`{SOURCE_DATABASE}` <=> {database} AND `{SOURCE_TABLE}` <=> {table})")


def those_of(name: TableName, rows: SparkCondition) -> SparkCondition:
    """Those of the rows that are of this table."""
    own = source_rows(name).sql
    doubtful = None if rows.doubtful is None else f"({own} AND ({rows.doubtful}))"
    return SparkCondition(f"({own} AND ({rows.sql}))", doubtful)


def own_source_columns(columns: Iterable[str]) -> list[str]:
    """Those of a table's columns that have names which merged mirrors need for themselves."""
    return [column for column in columns if column.casefold() in SOURCE_NAMES]


def source_columns(changes: DataFrame) -> tuple[str, ...]:
    """`SOURCE_OF_CHANGE` where the changes have them: only with merged tables they do."""
    return SOURCE_OF_CHANGE if set(SOURCE_OF_CHANGE) <= set(changes.columns) else ()


def with_shard(shards: Iterable[Shard], shard: Shard) -> tuple[Shard, ...]:
    """The shards with this one as it is now, in the first place: its definition leads."""
    return (shard, *(other for other in shards if other.name != shard.name))


def hidden_values(shards: tuple[Shard, ...], masks: Collection[str]) -> tuple[Shard, ...]:
    """The shards without what their definitions would tell of masked columns."""
    # by identity: a thousand of them may have one definition
    shown = {id(shard.schema): shard.schema for shard in shards}
    hidden = {place: without_values(schema, masks) for place, schema in shown.items()}
    if all(hidden[place] == schema for place, schema in shown.items()):
        return shards
    return tuple(replace(shard, schema=hidden[id(shard.schema)]) for shard in shards)


def shards_text(shards: Iterable[Shard]) -> str:
    """As JSON that `shards_of_text` reads back to equal shards; those of one definition share it."""
    definitions: dict[str, int] = {}
    texts: dict[int, str] = {}  # by identity: a thousand of them may have one definition
    found = []
    for shard in shards:
        text = texts.get(id(shard.schema)) or shard.schema.to_json()
        texts[id(shard.schema)] = text
        place = definitions.setdefault(text, len(definitions))
        found.append([shard.name.database, shard.name.table, place, shard.inferred, shard.since])
    plain = {"definitions": [json.loads(text) for text in definitions], "shards": found}
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def shards_of_text(text: str) -> tuple[Shard, ...]:
    plain = json.loads(text)
    definitions = [schema_of_json(json.dumps(item)) for item in plain["definitions"]]
    return tuple(
        Shard(TableName(database, table), definitions[place], inferred, since)
        for database, table, place, inferred, since in plain["shards"]
    )


def as_upstream(shards: Iterable[Shard], name: TableName, new_name: TableName) -> tuple[Shard, ...]:
    """The shards after one of them has got another name."""
    return tuple(replace(shard, name=new_name) if shard.name == name else shard for shard in shards)
