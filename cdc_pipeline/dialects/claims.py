"""Claim checks of TiCDC (ticdc-facts §7): copies the files of large messages into the lake and decodes them.

A record with `claimCheckLocation` is a reference: its complete message is a file in the claim store. The table
`<lake>/<pipeline>/claims` has one row per reference whose file was found:

- `batch_id`, `topic`, `partition`, `offset`: the record
- `location`: its `claimCheckLocation`
- `content`: the bytes of the file

Decoding reads only this table, so a rebuild gives the same result after the store was cleaned. A batch copies its files in
one commit, before any of its rows is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects.claim_files import FILE_NAME, LONGEST_LOCATION, ClaimStore, file_name
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.sources.compressed_values import decompressed, may_be_compressed
from cdc_pipeline.spark.small_frames import small_frame

CLAIMS = "claims"
CONTENT, PROBLEM = "content", "claim_problem"
"""Columns added to raw records: the bytes to parse, and why a reference could not be resolved (null if it was)."""
_REFERENCE = "_tidb STRUCT<claimCheckLocation: STRING>"
_EVENT = (
    "type STRING, `database` STRING, `table` STRING, isDdl BOOLEAN, data ARRAY<MAP<STRING, STRING>>, "
    "_tidb STRUCT<commitTs: BIGINT, claimCheckLocation: STRING>"
)
CLAIMS_SCHEMA = "batch_id BIGINT, topic STRING, `partition` INT, `offset` BIGINT, location STRING, content BINARY"
_SHOWN_CHARACTERS = 100
NOT_KEPT = (
    "expected: the complete message in the lake's table claims; it was missing when the batch was first decoded: run a "
    "rebuild to look it up again"
)


@dataclass(frozen=True)
class Reference:
    """A record whose complete message is in the claim store."""

    topic: str
    partition: int
    offset: int
    location: str
    """`claimCheckLocation`, cut after 4,097 characters."""

    @property
    def position(self) -> Position:
        return Position(self.topic, self.partition, self.offset)


def read_claims(lake: Lake) -> DataFrame | None:
    """The table `claims`; None if the lake has none."""
    return lake.read_if_exists(CLAIMS)


def may_refer(content: Column) -> Column:
    """Whether a decompressed value may be a reference. A cheap search that almost no other message passes."""
    return F.coalesce(F.contains(content, F.lit(b'"claimCheckLocation"')), F.lit(False))


def claim_location(content: Column) -> Column:
    """`claimCheckLocation` of a decompressed value; null if it has none."""
    return F.from_json(content.cast("string"), _REFERENCE, OPTIONS)["_tidb"]["claimCheckLocation"]


def find_references(frame: DataFrame) -> list[Reference]:
    """The references among the records of `frame`, in order of position. `frame` has `CONTENT`."""
    location = F.left(claim_location(F.col(CONTENT)), F.lit(LONGEST_LOCATION + 1)).alias("location")
    rows = frame.where(may_refer(F.col(CONTENT))).select(*POSITION, location).where("location IS NOT NULL").collect()
    return sorted((Reference(*row) for row in rows), key=lambda reference: reference.position)


def copy_claim_files(
    lake: Lake, store: ClaimStore, references: Sequence[Reference], commit: Commit
) -> dict[Position, str]:
    """Copies the files of these references into the table `claims`.

    Returns position of the record → problem to report if its file is not in the table afterwards. That includes files that
    looked readable, because a file can vanish before it is read.
    """
    names = {reference: file_name(reference.location) for reference in references}
    problems = store.problems({name for name in names.values() if name is not None})
    readable = [
        (*reference.position, reference.location, name)
        for reference, name in names.items()
        if name is not None and name not in problems
    ]
    if readable:
        rows = small_frame(
            lake.spark, readable, "topic STRING, `partition` INT, `offset` BIGINT, location STRING, name STRING"
        )
        files = store.contents({name for *_, name in readable})
        claims = (
            files.withColumn("name", F.element_at(F.split("path", "/"), -1))
            .join(F.broadcast(rows), "name")
            .select(F.lit(commit.note["batch"]).cast("bigint").alias("batch_id"), *POSITION, "location", "content")
        )
        append_once(claims, lake.paths.table(CLAIMS), commit)
    return {
        reference.position: _NO_FILE_NAME
        if name is None
        else f"expected: the complete message in the file {name} of the claim store {store.shown}; "
        + problems.get(name, "it could not be read")
        for reference, name in names.items()
    }


_NO_FILE_NAME = (
    f"expected: claimCheckLocation has at most {LONGEST_LOCATION:,} characters and ends in a file name such as <uuid>.json "
    "(letters, digits, '-', '_' and '.'); it does not, so nothing was looked up"
)


def no_store_problem(location: Column) -> Column:
    """The problem of a reference if no store is configured. Shows the location's last segment only, if it is a file name."""
    name = F.regexp_extract(location, rf"(?:^|/)({FILE_NAME})\z", 1)
    file = F.when(name != "", F.concat(F.lit("the file "), name)).otherwise(
        F.lit("a location without a plain file name")
    )
    return F.concat(F.lit("no claim_store is configured to look up "), file)


def resolve_references(
    frame: DataFrame, claims: DataFrame, references: Iterable[Reference], problems: Mapping[Position, str | None]
) -> DataFrame:
    """Adds `PROBLEM` to `frame` (raw records of one batch with `CONTENT`), and puts the messages of `claims` (rows of this
    batch) in the `CONTENT` of their references.

    A message must be the change that its reference describes, else the record keeps its `CONTENT` and gets a `PROBLEM`. The
    contents of files stay in Spark.
    """
    spark = frame.sparkSession
    found = {tuple(row) for row in claims.select(*POSITION).collect()}
    missing = [
        (*position, problems.get(position))
        for position in (reference.position for reference in references)
        if position not in found
    ]
    positions = "topic STRING, `partition` INT, `offset` BIGINT"
    missing_rows = small_frame(spark, missing, f"{positions}, {PROBLEM} STRING")
    others = frame.join(F.broadcast(missing_rows), list(POSITION), "left").select(*frame.columns, PROBLEM)
    if not found:
        return others
    found_rows = F.broadcast(small_frame(spark, sorted(found), positions))
    others = others.join(found_rows, list(POSITION), "left_anti")
    referring = frame.join(found_rows, list(POSITION), "left_semi")
    return others.unionByName(_with_messages(referring, claims))


def _with_messages(referring: DataFrame, claims: DataFrame) -> DataFrame:
    """`referring` with the message of its file as `CONTENT`, or with `PROBLEM` if that is another change."""
    files = claim_messages(claims).select(
        *POSITION, F.col("location").alias("_location"), F.col("message").alias("_message")
    )
    both = files.join(F.broadcast(referring), list(POSITION)).withColumns(
        {
            "_wanted": F.from_json(F.col(CONTENT).cast("string"), _EVENT, OPTIONS),
            "_found": F.from_json(F.col("_message").cast("string"), _EVENT, OPTIONS),
        }
    )
    wanted, found = F.col("_wanted"), F.col("_found")
    is_same_event = (
        found["_tidb"]["claimCheckLocation"].isNull()
        & ~found["isDdl"]
        & (found["type"] == wanted["type"])
        & (found["database"] == wanted["database"])
        & (found["table"] == wanted["table"])
        & (found["_tidb"]["commitTs"] == wanted["_tidb"]["commitTs"])
    )
    key, row = F.get(wanted["data"], F.lit(0)), F.get(found["data"], F.lit(0))
    is_same_row = F.forall(F.map_keys(key), lambda column: key[column].eqNullSafe(row[column]))
    is_resolved = F.coalesce(is_same_event & is_same_row, F.lit(False))
    name = F.element_at(F.split("_location", "/"), -1)
    is_reference = found["_tidb"]["claimCheckLocation"].isNotNull()
    found_text = F.when(is_reference, F.lit("another reference")).otherwise(
        F.concat(
            F.coalesce(_event_text(found), F.lit("no Canal-JSON message")),
            F.when(F.coalesce(is_same_event, F.lit(False)), F.lit(", another row")).otherwise(F.lit("")),
        )
    )
    problem = F.concat(
        F.lit("expected: "),
        F.coalesce(_event_text(wanted), F.lit("a row change")),
        *(F.lit(" in the file "), name, F.lit(" of the claim store; found there: "), found_text),
    )
    return both.withColumns(
        {
            CONTENT: F.when(is_resolved, F.col("_message")).otherwise(F.col(CONTENT)),
            PROBLEM: F.when(~is_resolved, problem),
        }
    ).select(*referring.columns, PROBLEM)


def _event_text(event: Column) -> Column:
    """`<type> of <database>.<table> at commitTs <TSO>`; null if a part is missing."""
    return F.concat(
        *(
            F.left(event["type"], F.lit(_SHOWN_CHARACTERS)),
            F.lit(" of "),
            F.left(event["database"], F.lit(_SHOWN_CHARACTERS)),
        ),
        *(F.lit("."), F.left(event["table"], F.lit(_SHOWN_CHARACTERS)), F.lit(" at commitTs ")),
        event["_tidb"]["commitTs"].cast("string"),
    )


def claim_messages(claims: DataFrame) -> DataFrame:
    """Adds `message`: the decompressed message in `content`.

    A file is `{"key":null,"value":"<base64>"}`, or with claim-check-raw-value the message itself. Either may be compressed
    like the values of the topic (ticdc-facts §7).
    """
    parsed = F.from_json(F.col("content").cast("string"), "MAP<STRING, STRING>", OPTIONS)
    fields = F.col("_fields")
    is_wrapped = (
        (F.size(fields) == 2) & F.map_contains_key(fields, F.lit("key")) & F.map_contains_key(fields, F.lit("value"))
    )
    value = F.try_to_binary(fields["value"], F.lit("base64"))
    messages = (
        claims.withColumn("_fields", parsed)
        .withColumn("message", F.when(F.coalesce(is_wrapped, F.lit(False)), value).otherwise(F.col("content")))
        .drop("_fields")
    )
    compressed = messages.where(may_be_compressed(F.col("message"))).limit(1)
    return messages if compressed.isEmpty() else messages.withColumn("message", decompressed(F.col("message")))
