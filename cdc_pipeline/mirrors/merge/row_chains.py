"""Row chains: whether each change of a key found the row that the change before it left, or the mirror.

An UPDATE or DELETE says what the row was (`before`), and an INSERT that there was none. A change that never arrived shows in
the next one about its row. Values are compared, not texts, and only those that both sides have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.mirrors.changes.deliveries import images_hash
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column as UpstreamColumn
from cdc_pipeline.mysql.types.spark_types import spark_type
from cdc_pipeline.mysql.types.wire_values import Encodings, encodings_of, typed_cell
from cdc_pipeline.positions import POSITION, Position

_MANY_SPELLINGS = ("float", "vector")
"""Types whose values have several texts: encoders print FLOAT with six digits or more."""
_SOFT_DELETE = "_tidb_softdelete_time"
"""TiDB's column with the time when a row was soft-deleted. TiCDC sends that as a DELETE, and the way back as an UPDATE."""
_CONSUMES, _PRODUCES = -1, 1
_PROVED, _CONTRADICTED, _UNKNOWN = "proved", "contradicted", "unknown"


@dataclass(frozen=True)
class Chains:
    """What the changes of one table say of each other."""

    proved: int
    """Those that found what the mirror had."""
    contradicted: int = 0
    columns: tuple[str, ...] = ()
    """The columns with other values; empty if rows were missing, or there already."""
    first: Position | None = None
    """The first contradicted change."""


@dataclass(frozen=True)
class ChainTable:
    """A table whose changes have one definition."""

    state: MirrorState
    key: tuple[str, ...]
    encodings: Encodings
    time_zone: str
    """The zone in which the encoder prints TIMESTAMP."""
    spelled: Mapping[str, str]
    """Column → its name in the messages."""

    @property
    def columns(self) -> list[UpstreamColumn]:
        """The columns to compare: without those that a gap names."""
        doubtful = {gap.column for gap in self.state.gaps}
        return [
            column
            for column in self.state.schema.columns
            if column.name not in doubtful and column.type.base not in _MANY_SPELLINGS
        ]

    @property
    def has_plain_key(self) -> bool:
        """Whether keys can be compared: also with those of the mirror."""
        names = {column.name for column in self.columns} - dict(self.state.masks).keys()
        return bool(self.key) and names.issuperset(self.key)


def check_chains(
    changes: DataFrame, earlier: DataFrame, table: ChainTable, mirror: DataFrame | None, *, is_complete: bool
) -> Chains:
    """Compares the changes with one another, and the first one of each key with `mirror`, the rows before all of them.

    `changes`: rows of `change_log` of one table. `earlier`: those before them that may have been sent again. `is_complete`:
    `mirror` had all rows of upstream; None: upstream had none. Else a row that it lacks says nothing.
    """
    events = (
        _with_repeats(changes, earlier)
        .select(
            *("commit_ts", "at", "exact_ts", "dialect", "batch_id", *POSITION, "row", "repeats"),
            F.col("before")[_SOFT_DELETE].isNotNull().alias("may_lack_row"),
            F.explode(F.array_compact(F.array(*_events(table)))).alias("event"),
        )
        .select("*", "event.*")
    )
    if mirror is not None:
        keys = events.select("key").distinct()
        events = events.unionByName(_rows_of(mirror, table).join(keys, "key", "left_semi"), allowMissingColumns=True)
    return _counted(_with_verdicts(events, table, is_complete=is_complete))


def _with_repeats(changes: DataFrame, earlier: DataFrame) -> DataFrame:
    """Adds `repeats`: an equal change came before. Canal sends a batch again under the next number (canal-facts 50), and the
    cut does not always know it for a copy, which changes no row of a table with a key."""
    same = ["commit_ts", "op", "images"]
    # a TSO shows copies without a look at the images
    images = F.when(~F.coalesce("exact_ts", F.lit(False)), images_hash())
    rows, before = (frame.withColumn("images", images) for frame in (changes, earlier))
    before = before.select(*same, F.lit(True).alias("known")).distinct()
    number = F.row_number().over(Over.partitionBy(*same).orderBy("batch_id", *POSITION, "row"))
    rows = rows.withColumn("number", number).join(before, same, "left")
    return rows.withColumn("repeats", (F.col("number") > 1) | F.col("known").isNotNull()).drop(
        "images", "number", "known"
    )


def _events(table: ChainTable) -> list[Column]:
    """A change as what it takes away and what it puts there."""
    # a column that `before` lacks did not change, or was NULL (world-canal-nulls-left-out), which no key is
    is_update = F.col("op") == "UPDATE"
    unchanged = is_update & ~has_trait(Trait.OMITS_NULLS)
    images = {}
    for side in ("before", "after"):
        texts, sent = {}, {}
        for column in table.columns:
            name = F.lit(table.spelled.get(column.name, column.name))
            has = F.coalesce(F.map_contains_key(side, name), F.lit(False))
            text = F.col(side)[name]
            if side == "before":
                kept = is_update if column.name in table.key else unchanged
                stays = ~has & kept & F.coalesce(F.map_contains_key("after", name), F.lit(False))
                has, text = has | stays, F.when(stays, F.col("after")[name]).otherwise(text)
            cell = typed_cell(text, column.type, table.time_zone, encodings_of(column.name, table.encodings))
            texts[column.name], sent[column.name] = cell, has
        images[side] = texts, sent
    keys = {side: _numbered(texts[name] for name in table.key) for side, (texts, _) in images.items()}
    moves = is_update & ~keys["before"].eqNullSafe(keys["after"])
    is_insert = F.col("op") == "INSERT"
    # deletes first, as in `row_entries`
    consumed = F.when(is_update & ~moves, 1).otherwise(0)
    produced = F.when(is_insert, 2).otherwise(1)
    return [
        F.when(F.col(side).isNotNull(), _event(sign, rank, checked, keys[side], *images[side]))
        for side, sign, rank, checked in (
            ("before", _CONSUMES, consumed, F.lit(True)),
            ("after", _PRODUCES, produced, is_insert),
        )
    ]


def _event(
    sign: int, rank: Column, checked: Column, key: Column, values: Mapping[str, Column], sent: Mapping[str, Column]
) -> Column:
    return F.struct(
        F.lit(sign).alias("sign"),
        rank.alias("rank"),
        checked.alias("checked"),
        key.alias("key"),
        _numbered(values.values()).alias("values"),
        F.array(*sent.values()).alias("sent"),
    )


def _numbered(values: Iterable[Column]) -> Column:
    """A struct with the fields `v0`, `v1`, …"""
    return F.struct(*(value.alias(f"v{number}") for number, value in enumerate(values)))


def _rows_of(mirror: DataFrame, table: ChainTable) -> DataFrame:
    masked, values = dict(table.state.masks), dict[str, Column]()
    for column in table.columns:
        own = F.col(quoted(column.name)) if column.name not in masked else F.lit(None).cast(spark_type(column.type))
        values[column.name] = own
    sent = {name: F.lit(name not in masked) for name in values}
    key = _numbered(values[name] for name in table.key)
    event = _event(_PRODUCES, F.lit(0), F.lit(False), key, values, sent)
    return mirror.select(event.alias("event")).select("event.*")


def _with_verdicts(events: DataFrame, table: ChainTable, *, is_complete: bool) -> DataFrame:
    exact, numbered = F.coalesce("exact_ts", F.lit(False)), F.coalesce(has_trait(Trait.NUMBERS_CHANGES), F.lit(False))
    time = F.when(~has_trait(Trait.IN_LOG_ORDER), F.col("commit_ts"))
    rank = F.when(exact | numbered, F.col("rank"))
    # copies of one change lie side by side
    sign, batch = F.when(exact, F.col("sign")), F.when(exact, F.col("batch_id"))
    # NULLs first: the rows of the mirror
    order = (F.col("at").isNotNull(), time, rank, sign, batch, *POSITION, "row", "sign")
    one_key, by_time = Over.partitionBy("key"), Over.partitionBy("key").orderBy(*order)
    partition = F.when(~exact & ~numbered & F.col("at").isNotNull(), F.xxhash64("topic", "partition"))
    events = events.withColumns(
        {
            "previous": F.lag(F.struct("sign", "values", "sent", "commit_ts", "rank")).over(by_time),
            # without TSOs the order of partitions is unknown
            "contested": F.coalesce(F.min(partition).over(one_key) != F.max(partition).over(one_key), F.lit(False)),
        }
    )
    previous = F.col("previous")
    is_copy = exact & (previous["sign"] == F.col("sign")) & (previous["rank"] == F.col("rank"))
    is_copy &= previous["commit_ts"] == F.col("commit_ts")
    both, differs = [], []
    for number, column in enumerate(table.columns):
        both.append(F.col("sent")[number] & previous["sent"][number])
        same = F.col("values")[f"v{number}"].eqNullSafe(previous["values"][f"v{number}"])
        differs.append(F.when(both[-1] & ~same, F.lit(column.name)))
    return events.withColumns(
        {
            "copy": F.coalesce(is_copy, F.lit(False)),
            "differs": F.array_compact(F.array(*differs)),
            "compared": F.exists(F.array(*both), lambda has: has),
        }
    ).withColumn("verdict", _verdict(is_complete=is_complete))


def _verdict(*, is_complete: bool) -> Column:
    exists = F.coalesce(F.col("previous.sign") == _PRODUCES, F.lit(False))
    is_known = F.col("previous").isNotNull() | F.lit(is_complete)
    differs, inserts = F.size("differs") > 0, F.col("sign") == _PRODUCES
    return (
        F.when(F.col("contested") | ~is_known, _UNKNOWN)
        .when(F.col("repeats") & ~F.col("exact_ts") & (differs | (inserts == exists)), _UNKNOWN)
        # an INSERT of an equal row may be a copy
        .when(inserts & exists, F.when(differs, _CONTRADICTED).otherwise(_UNKNOWN))
        .when(inserts, _PROVED)
        .when(~exists & F.col("may_lack_row"), _UNKNOWN)
        .when(~exists | differs, _CONTRADICTED)
        .when(F.col("compared"), _PROVED)
        .otherwise(_UNKNOWN)
    )


def _counted(events: DataFrame) -> Chains:
    contradicted = F.col("verdict") == _CONTRADICTED
    place = F.when(contradicted, F.struct("commit_ts", *POSITION))
    row = (
        events.where("checked AND NOT copy")
        .agg(
            F.count_if(F.col("verdict") == _PROVED).alias("proved"),
            F.count_if(contradicted).alias("contradicted"),
            F.array_distinct(F.flatten(F.collect_set(F.when(contradicted, F.col("differs"))))).alias("columns"),
            F.min(place).alias("first"),
        )
        .first()
    )
    assert row is not None
    first = None if row["first"] is None else Position(*(row["first"][name] for name in POSITION))
    return Chains(row["proved"], row["contradicted"], tuple(sorted(row["columns"])), first)
