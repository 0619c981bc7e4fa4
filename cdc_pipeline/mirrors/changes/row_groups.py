"""Row groups: rows with the same columns, counted before a cut is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.claims import read_claims
from cdc_pipeline.dialects.contents import read_raw_batches
from cdc_pipeline.dialects.message_types import MessageTypes, read_message_types
from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, trait_sql
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.model.source_tables import SPELLED, source_columns
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.model.table import MySqlType, TableName
from cdc_pipeline.positions import BATCH_POSITION, BatchPosition
from cdc_pipeline.spark.small_frames import small_frame


@dataclass(frozen=True)
class RowGroup:
    """Row changes of one table and segment whose images have the same columns."""

    name: TableName
    """The mirror's key."""
    segment: int
    columns: tuple[str, ...]
    key_names: tuple[str, ...]
    changes: int
    """How many there are."""
    dialect: str
    has_after: bool
    """Whether they have an after image: False for deletes."""
    position: BatchPosition
    """The position of the first one."""
    last_position: BatchPosition | None = None
    is_insert: bool = False
    """Whether they are INSERTs."""
    handle_key_only: bool = False
    """Whether the images have the handle key only, because the row was too large for a message."""
    bare_updates: int = 0
    """UPDATEs without a before image."""
    unsure_updates: int = 0
    """UPDATEs whose before image is not certain, because the encoder may omit NULL columns."""
    types: MessageTypes = field(default_factory=MessageTypes)
    """The column types that the message at `position` names; empty unless `with_types` needed them."""
    sent_types: tuple[MessageTypes, ...] = ()
    """What the messages at `position` and `last_position` name, if `with_types` read them."""
    all_keys: frozenset[tuple[str, ...]] = frozenset()
    """All `key_names` that messages of the group have. Empty: no message names a key that its rows have."""
    source: TableName | None = None
    """The source table; None unless the mirror is merged."""
    newest: datetime | None = None
    """Kafka's timestamp of the newest record, in the time zone of this process."""
    text_bytes: int = 0
    """The size of their images' texts, if asked for."""
    spelled: tuple[TableName, ...] = ()
    """Upstream's name of the table, as the messages spell it, the first one first."""
    oldest_es: int = 0
    """The lowest `es`, in ms."""


# a column that `before` lacks and `after` has a value of: it did not change, or it was NULL
_IS_UNSURE = (
    f"op = 'UPDATE' AND size(key_names) = 0 AND {trait_sql(Trait.OMITS_NULLS)} AND before IS NOT NULL "
    "AND exists(map_keys(after), name -> after[name] IS NOT NULL AND NOT map_contains_key(before, name))"
)


_AS_QUERIED = (
    *("segment", "changes", "dialect", "has_after", "is_insert", "handle_key_only", "bare_updates", "unsure_updates"),
    *("newest", "text_bytes", "oldest_es"),
)
"""Fields of RowGroup that have their value in the query."""


def text_bytes(image: str) -> str:
    """SQL: the size of the texts of an image, 0 if it is NULL."""
    return f"coalesce(aggregate(map_values({image}), 0L, (n, text) -> n + coalesce(octet_length(text), 0)), 0L)"


def row_groups(changes: DataFrame, *, with_text_bytes: bool = False) -> list[RowGroup]:
    """Groups the rows, in the order of their first row."""
    size = F.expr("0L")
    if with_text_bytes:
        size = F.sum(F.expr(f"{text_bytes('after')} + {text_bytes('before')}"))
    image = F.coalesce("after", "before")
    source = source_columns(changes)
    keys = F.collect_set("key_names")
    place = F.struct("commit_ts", *BATCH_POSITION)
    rows = (
        changes.groupBy(
            "database",
            "table",
            "segment",
            *source,
            "dialect",
            F.col("after").isNotNull().alias("has_after"),
            (F.col("op") == "INSERT").alias("is_insert"),
            F.col("only_key").alias("handle_key_only"),
            F.map_keys(image).alias("columns"),
        )
        .agg(
            F.count("*").alias("changes"),
            # any one of them: `collect_set` lets Spark aggregate by hash, where `min` of an array would sort all rows
            F.array_max(keys).alias("key_names"),
            keys.alias("all_keys"),
            F.count_if((F.col("op") == "UPDATE") & F.col("before").isNull()).alias("bare_updates"),
            F.count_if(F.expr(_IS_UNSURE)).alias("unsure_updates"),
            F.min(place).alias("first"),
            F.max(place).alias("last"),
            F.min_by(SPELLED, place).alias("first_spelled"),
            F.collect_set(SPELLED).alias("spelled"),
            F.max("timestamp").alias("newest"),
            F.coalesce(F.min("es"), F.lit(0)).alias("oldest_es"),
            size.alias("text_bytes"),
        )
        .orderBy("database", "table", "segment", "first", F.desc("has_after"), F.desc("is_insert"))
        .collect()
    )
    return [
        RowGroup(
            name=TableName(row["database"], row["table"]),
            columns=tuple(row["columns"]),
            key_names=tuple(row["key_names"] or ()),
            all_keys=frozenset(map(tuple, row["all_keys"])),
            position=tuple(row["first"][1:]),
            last_position=tuple(row["last"][1:]),
            source=TableName(*(row[name] for name in source)) if source and row[source[1]] else None,
            spelled=tuple(dict.fromkeys(TableName(*name) for name in (row["first_spelled"], *row["spelled"]))),
            **{name: row[name] for name in _AS_QUERIED},
        )
        for row in rows
    ]


def with_types(
    groups: list[RowGroup], lake: Lake, changes: DataFrame, lookup: Callable[[TableName], MirrorState | None]
) -> list[RowGroup]:
    """Adds the column types that messages name to the groups whose mirror does not define all of them.

    Those are groups without a definition from DDL, with a new column, or with values that cannot be read without the type
    (DataWorks), and all groups of dialects that name types twice. A DECIMAL without precision and scale gets those that its
    values need. `lookup` returns a mirror as the last cut left it.
    """
    asked = {group.position: group.dialect for group in groups if _needs_types(group, lookup(group.name))}
    asked |= {
        group.last_position: group.dialect for group in groups if group.last_position and _names_types_twice(group)
    }
    found = read_message_types(partial(read_raw_batches, lake), asked, partial(read_claims, lake))

    def typed(group: RowGroup) -> RowGroup:
        sent = (found[place] for place in (group.position, group.last_position) if place in found)
        return replace(group, types=found.get(group.position, group.types), sent_types=tuple(sent))

    return _with_decimal_digits(list(map(typed, groups)), changes)


def encodings_of_groups(groups: Iterable[RowGroup]) -> tuple[tuple[str, dict[str, str]], ...]:
    """The encodings of the columns of each dialect. A message does not name the columns that its rows do not have."""
    found: dict[str, dict[str, str]] = {}
    for group in groups:
        found.setdefault(group.dialect, {}).update(group.types.encodings)
    return tuple(sorted(found.items()))


def contradiction_gaps(groups: Iterable[RowGroup]) -> Iterator[tuple[TableName, Gap]]:
    """The gaps of tables whose messages name two types of a column that contradict each other.

    All columns are in doubt: an encoder with an outdated table definition shifts the values of a row.
    """
    for group in groups:
        if found := next((types.contradictions for types in group.sent_types if types.contradictions), ()):
            columns = ", ".join(found)
            detail = (
                f"sqlType contradicts mysqlType in some messages ({columns}): values may be under wrong column names"
            )
            yield group.name, Gap(GapKind.CONTRADICTORY_TYPES, detail)


def _needs_types(group: RowGroup, state: MirrorState | None) -> bool:
    if state is None or state.inferred or _names_types_twice(group):
        return True
    if dialect_has_trait(group.dialect, Trait.NEEDS_TYPES):
        return True
    return any(state.schema.find(name) is None for name in group.columns)


def _names_types_twice(group: RowGroup) -> bool:
    return dialect_has_trait(group.dialect, Trait.NAMES_TYPES_TWICE)


def _with_decimal_digits(groups: list[RowGroup], changes: DataFrame) -> list[RowGroup]:
    wanted = {
        (group.name.database, group.name.table, group.segment, name)
        for group in groups
        for name, text in group.types.mysql_types.items()
        if type_or_text(text) == MySqlType("decimal", unsigned="unsigned" in text.lower())
    }
    if not wanted:
        return groups
    place = ["database", "table", "segment"]
    columns = small_frame(
        changes.sparkSession, sorted(wanted), "`database` STRING, `table` STRING, segment INT, `column` STRING"
    )
    parts = F.split(F.regexp_replace(F.col("after")[F.col("column")], r"^[-+]?0*", ""), r"\.")
    digits, scale = (F.coalesce(F.max(F.length(F.get(parts, F.lit(index)))), F.lit(0)) for index in (0, 1))
    seen = changes.join(F.broadcast(columns), place).groupBy(*place, "column").agg(digits, scale).collect()
    types = {tuple(row[:4]): f"decimal({max(row[4] + row[5], 1)},{row[5]})" for row in seen}

    def sized(group: RowGroup) -> RowGroup:
        place = group.name.database, group.name.table, group.segment
        own = {name: types.get((*place, name), text) for name, text in group.types.mysql_types.items()}
        return replace(group, types=replace(group.types, mysql_types=own))

    return list(map(sized, groups))
