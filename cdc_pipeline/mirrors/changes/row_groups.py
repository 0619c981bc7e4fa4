"""Groups of rows that have the same columns: what a cut must know of its rows before it can be planned."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.message_types import MessageTypes, message_types
from cdc_pipeline.dialects.traits import Trait, trait_of
from cdc_pipeline.mirrors.model.shards import source_columns
from cdc_pipeline.mysql.ddl.column_types import type_in_words
from cdc_pipeline.mysql.model.table import MySqlType, TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.model.state import MirrorState
    from cdc_pipeline.sources.places import Place


@dataclass(frozen=True)
class RowGroup:
    """Rows of one name and segment whose images have the same columns.

    `place` is one of their messages; `types` are what that one names, where they were asked for. `images` is False
    for rows that are only taken away, `inserts` True for those that INSERT, `only_key` for those whose images have no more
    than the handle key because the row was too large. `first_ts` is the smallest `commit_ts`. `source` is upstream's name
    of their table where that is merged with others.
    """

    name: TableName
    segment: int
    columns: tuple[str, ...]
    key_names: tuple[str, ...]
    changes: int
    dialect: str
    images: bool
    place: Place
    inserts: bool = False
    only_key: bool = False
    first_ts: int | None = None
    types: MessageTypes = field(default_factory=MessageTypes)
    source: TableName | None = None


def row_groups(changes: DataFrame) -> list[RowGroup]:
    """What the planner needs of the rows: for each table, segment and set of columns, how many and of which kind.

    Those that an earlier cut has taken in (`fresh` false) are no part of it.
    """
    image = F.coalesce("after", "before")
    source = source_columns(changes)
    rows = (
        changes.where("fresh")
        .groupBy(
            "database",
            "table",
            "segment",
            *source,
            "dialect",
            F.col("after").isNotNull().alias("images"),
            (F.col("op") == "INSERT").alias("inserts"),
            "only_key",
            F.map_keys(image).alias("columns"),
        )
        .agg(
            F.count("*").alias("changes"),
            # all of them, of which one is taken: a set lets Spark aggregate in memory, where it would sort all rows else
            F.get(F.array_sort(F.collect_set("key_names")), F.lit(0)).alias("key_names"),
            F.min(F.struct("commit_ts", "batch_id", "topic", "partition", "offset")).alias("first"),
        )
        .orderBy("database", "table", "segment", "first", F.desc("images"), F.desc("inserts"))
        .collect()
    )
    return [
        RowGroup(
            name=TableName(row["database"], row["table"]),
            segment=row["segment"],
            columns=tuple(row["columns"]),
            key_names=tuple(row["key_names"] or ()),
            changes=row["changes"],
            dialect=row["dialect"],
            images=row["images"],
            inserts=row["inserts"],
            only_key=row["only_key"],
            first_ts=row["first"][0],
            place=tuple(row["first"][1:]),
            source=TableName(*(row[name] for name in source)) if source and row[source[1]] else None,
        )
        for row in rows
    ]


def with_types(
    groups: list[RowGroup],
    raw: DataFrame,
    changes: DataFrame,
    lookup: Callable[[TableName], MirrorState | None],
    claims: Callable[[], DataFrame | None] = lambda: None,
) -> list[RowGroup]:
    """The groups, with the types that their messages name where the mirror's own definition does not do.

    That is where there is no definition from DDL, where a column is new, and where a dialect's values cannot be read
    without (DataWorks; JSON of MariaDB). A DECIMAL without digits and scale gets those that its values need. `claims` gives
    the large messages that the lake keeps (`dialects.claims`).
    """
    asked = [group for group in groups if _needs_types(group, lookup(group.name))]
    found = message_types(raw, {group.place: group.dialect for group in asked}, claims)
    typed = [replace(group, types=found.get(group.place, group.types)) for group in groups]
    return _with_seen_decimals(typed, changes)


def _needs_types(group: RowGroup, state: MirrorState | None) -> bool:
    if state is None or state.inferred or trait_of(group.dialect, Trait.NEEDS_TYPES):
        return True
    known = [state.schema.find(name) for name in group.columns]
    json_too = trait_of(group.dialect, Trait.JSON_NEEDS_TYPES)
    return any(column is None or (json_too and column.type.base == "json") for column in known)


def _with_seen_decimals(groups: list[RowGroup], changes: DataFrame) -> list[RowGroup]:
    bare = [
        (group.name.database, group.name.table, group.segment, name)
        for group in groups
        for name, words in group.types.mysql_types.items()
        if type_in_words(words) == MySqlType("decimal", unsigned="unsigned" in words.lower())
    ]
    if not bare:
        return groups
    wanted = small_frame(
        changes.sparkSession, sorted(set(bare)), "`database` STRING, `table` STRING, segment INT, `column` STRING"
    )
    text = F.regexp_replace(F.col("after")[F.col("column")], r"^[-+]?0*", "")
    parts = F.split(text, r"\.")
    seen = {
        (row["database"], row["table"], row["segment"], row["column"]): (row["digits"], row["scale"])
        for row in changes.where("fresh")
        .join(F.broadcast(wanted), ["database", "table", "segment"])
        .groupBy("database", "table", "segment", "column")
        .agg(
            F.coalesce(F.max(F.length(F.get(parts, F.lit(0)))), F.lit(0)).alias("digits"),
            F.coalesce(F.max(F.length(F.get(parts, F.lit(1)))), F.lit(0)).alias("scale"),
        )
        .collect()
    }
    return [replace(group, types=_with_digits(group, seen)) for group in groups]


def _with_digits(group: RowGroup, seen: dict[tuple[str, str, int, str], tuple[int, int]]) -> MessageTypes:
    types = dict(group.types.mysql_types)
    for name in types:
        place = (group.name.database, group.name.table, group.segment, name)
        if place in seen:
            digits, scale = seen[place]
            types[name] = f"decimal({max(digits + scale, 1)},{scale})"
    return replace(group.types, mysql_types=types)
