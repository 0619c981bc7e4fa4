"""Large messages that TiCDC put into a claim store: what their files hold is kept in the lake, and parsed in place of the
reference.

`<lake>/<pipeline>/claims` has one row per reference whose file was found: the record (batch_id, topic, partition, offset),
`location` as the record has it, and `content`, the file's bytes. Only what stands there counts, so that a rebuild gives
the same when the store was cleaned meanwhile. A batch takes its files in one commit, before its rows go anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects.claim_files import FILE_NAME, LONGEST_LOCATION, ClaimStore, file_name
from cdc_pipeline.lake.delta import Commit, append_once, table_state
from cdc_pipeline.sources.compressed_values import may_be_packed, opened
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths

CLAIMS = "claims"
CONTENT, PROBLEM = "content", "claim_problem"
"""Columns beside those of a raw record: the bytes to parse, and why a reference could not be resolved (null: none)."""
_POSITION = ("topic", "partition", "offset")
_REFERENCE = "_tidb STRUCT<claimCheckLocation: STRING>"
_EVENT = (
    "type STRING, `database` STRING, `table` STRING, isDdl BOOLEAN, data ARRAY<MAP<STRING, STRING>>, "
    "_tidb STRUCT<commitTs: BIGINT, claimCheckLocation: STRING>"
)
CLAIMS_SCHEMA = "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT, location STRING, content BINARY"
_SHOWN = 100
Position = tuple[str, int, int]
"""A record of a batch: topic, partition, offset."""
NOT_KEPT = (
    "expected: the whole message in the lake's table claims; it was not kept there when the batch was decoded first"
)


@dataclass(frozen=True)
class Reference:
    """A record whose row is elsewhere; of a location that is longer than any only the beginning."""

    topic: str
    partition: int
    offset: int
    location: str

    @property
    def position(self) -> Position:
        return (self.topic, self.partition, self.offset)


def kept_claims(spark: SparkSession, paths: LakePaths) -> DataFrame | None:
    """The table `claims`; None where the lake has none."""
    path = paths.table(CLAIMS)
    return None if table_state(spark, path) is None else spark.read.format("delta").load(path)


def may_refer(content: Column) -> Column:
    """Whether an opened value may be a reference: a plain search, which next to no other message passes."""
    return F.coalesce(F.contains(content, F.lit(b'"claimCheckLocation"')), F.lit(False))


def location(content: Column) -> Column:
    """The location that an opened value names; null where it is no reference."""
    return F.from_json(content.cast("string"), _REFERENCE, OPTIONS)["_tidb"]["claimCheckLocation"]


def references(frame: DataFrame) -> list[Reference]:
    """The references among the records of `frame`, which has `CONTENT`."""
    found = F.left(location(F.col(CONTENT)), F.lit(LONGEST_LOCATION + 1)).alias("location")
    rows = frame.where(may_refer(F.col(CONTENT))).select(*_POSITION, found).where("location IS NOT NULL").collect()
    return sorted((Reference(*row) for row in rows), key=lambda reference: reference.position)


def take_in(
    spark: SparkSession, paths: LakePaths, store: ClaimStore, wanted: Sequence[Reference], commit: Commit
) -> dict[Position, str]:
    """Copies the files of these references into the lake. Returns why some cannot be had, by the record's position."""
    names = {reference: file_name(reference.location) for reference in wanted}
    problems = store.problems({name for name in names.values() if name is not None})
    found = [
        (*reference.position, reference.location, name)
        for reference, name in names.items()
        if name is not None and name not in problems
    ]
    if found:
        rows = small_frame(spark, found, "topic STRING, `partition` INT, `offset` BIGINT, location STRING, name STRING")
        files = store.contents({name for *_, name in found})
        kept = (
            files.withColumn("name", F.element_at(F.split("path", "/"), -1))
            .join(F.broadcast(rows), "name")
            .select(F.lit(commit.note["batch"]).cast("bigint").alias("batch_id"), *_POSITION, "location", "content")
        )
        append_once(kept, paths.table(CLAIMS), commit)
    return {
        reference.position: _NO_NAME
        if name is None
        else f"expected: the whole message in {_place(store, name)}; {problems.get(name, 'it could not be read')}"
        for reference, name in names.items()
    }


_NO_NAME = (
    "expected: claimCheckLocation ends in the name of a file, such as <uuid>.json (letters, digits, '-', '_' and '.'); "
    "what it ends in is no such name, and was not looked up"
)


def _place(store: ClaimStore, name: str) -> str:
    return f"the file {name} of the claim store {store.shown}"


def unlooked_problem(place: Column) -> Column:
    """What is said of a location where no store is configured. Of the location only a plain name is shown."""
    name = F.regexp_extract(place, rf"(?:^|/)({FILE_NAME})\z", 1)
    which = F.when(name != "", F.concat(F.lit("the file "), name)).otherwise(F.lit("a file of no plain name"))
    return F.concat(F.lit("no claim_store is configured, where "), which, F.lit(" would be looked up"))


def resolved(
    frame: DataFrame, claims: DataFrame, wanted: Iterable[Reference], problems: Mapping[Position, str | None]
) -> DataFrame:
    """`frame` (raw records of one batch with `CONTENT`) with `PROBLEM`, and with whole messages in `CONTENT` where
    `claims`, the rows of this batch, have them.

    A message counts only where it is the change that the reference speaks of. The contents of files stay in Spark.
    """
    spark = frame.sparkSession
    there = {tuple(row) for row in claims.select(*_POSITION).collect()}
    missing = [
        (*position, problems.get(position))
        for position in (reference.position for reference in wanted)
        if position not in there
    ]
    positions = "topic STRING, `partition` INT, `offset` BIGINT"
    marks = small_frame(spark, missing, f"{positions}, {PROBLEM} STRING")
    unresolved = frame.join(F.broadcast(marks), list(_POSITION), "left").select(*frame.columns, PROBLEM)
    if not there:
        return unresolved
    found = F.broadcast(small_frame(spark, sorted(there), positions))
    unresolved = unresolved.join(found, list(_POSITION), "left_anti")
    short = frame.join(found, list(_POSITION), "left_semi")
    return unresolved.unionByName(_whole(short, claims))


def _whole(short: DataFrame, claims: DataFrame) -> DataFrame:
    """The records `short`, each with the message of its file where that is the same change."""
    files = messages(claims).select(
        *_POSITION, F.col("location").alias("_location"), F.col("message").alias("_message")
    )
    told = files.join(F.broadcast(short), list(_POSITION)).withColumns(
        {
            "_wanted": F.from_json(F.col(CONTENT).cast("string"), _EVENT, OPTIONS),
            "_found": F.from_json(F.col("_message").cast("string"), _EVENT, OPTIONS),
        }
    )
    wanted, found = F.col("_wanted"), F.col("_found")
    same = (
        found["_tidb"]["claimCheckLocation"].isNull()
        & ~found["isDdl"]
        & (found["type"] == wanted["type"])
        & (found["database"] == wanted["database"])
        & (found["table"] == wanted["table"])
        & (found["_tidb"]["commitTs"] == wanted["_tidb"]["commitTs"])
    )
    short_row, row = F.get(wanted["data"], F.lit(0)), F.get(found["data"], F.lit(0))
    same_row = F.forall(F.map_keys(short_row), lambda column: short_row[column].eqNullSafe(row[column]))
    right = F.coalesce(same & same_row, F.lit(False))
    name = F.element_at(F.split("_location", "/"), -1)
    reference = found["_tidb"]["claimCheckLocation"].isNotNull()
    there = F.when(reference, F.lit("a reference again")).otherwise(
        F.concat(
            F.coalesce(_in_words(found), F.lit("no message of Canal-JSON")),
            F.when(F.coalesce(same, F.lit(False)), F.lit(", another row")).otherwise(F.lit("")),
        )
    )
    problem = F.concat(
        F.lit("expected: "),
        F.coalesce(_in_words(wanted), F.lit("a row change")),
        *(F.lit(" in the file "), name, F.lit(" of the claim store; found there: "), there),
    )
    return told.withColumns(
        {CONTENT: F.when(right, F.col("_message")).otherwise(F.col(CONTENT)), PROBLEM: F.when(~right, problem)}
    ).select(*short.columns, PROBLEM)


def _in_words(event: Column) -> Column:
    """The event as people read it; null where a part of it is missing."""
    return F.concat(
        *(F.left(event["type"], F.lit(_SHOWN)), F.lit(" of "), F.left(event["database"], F.lit(_SHOWN))),
        *(F.lit("."), F.left(event["table"], F.lit(_SHOWN)), F.lit(" at commitTs ")),
        event["_tidb"]["commitTs"].cast("string"),
    )


def messages(claims: DataFrame) -> DataFrame:
    """`claims` with `message`: the value that the file holds, opened.

    A file is `{"key":null,"value":"<base64>"}`, or the value itself (claim-check-raw-value), which has more fields than
    these two or is compressed. The value in either is compressed as the topic's values are.
    """
    parsed = F.from_json(F.col("content").cast("string"), "MAP<STRING, STRING>", OPTIONS)
    fields = F.col("_fields")
    wrapped = (
        (F.size(fields) == 2) & F.map_contains_key(fields, F.lit("key")) & F.map_contains_key(fields, F.lit("value"))
    )
    value = F.try_to_binary(fields["value"], F.lit("base64"))
    plain = (
        claims.withColumn("_fields", parsed)
        .withColumn("message", F.when(F.coalesce(wrapped, F.lit(False)), value).otherwise(F.col("content")))
        .drop("_fields")
    )
    packed = plain.where(may_be_packed(F.col("message"))).limit(1)
    return plain if packed.isEmpty() else plain.withColumn("message", opened(F.col("message")))
