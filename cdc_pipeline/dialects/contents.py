"""The bytes that decoding parses for each record: its value or a replacement, decompressed, or the message it refers to.

Most values are parsed as they are. One query over the values of a batch detects the others.

The append-only table `<lake>/<pipeline>/dead_letter_releases` has one row per released dead letter: its columns, the run
that released it, when (`released_at`), why (`note`), and `replacement`, the message to decode at this position from then
on; null to decode the record's own bytes. Decoding always reads it, so a rebuild from raw gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.claim_files import ClaimStore
from cdc_pipeline.dialects.claims import (
    CLAIMS,
    CLAIMS_SCHEMA,
    CONTENT,
    NOT_KEPT,
    Reference,
    copy_claim_files,
    find_references,
    may_refer,
    read_claims,
    resolve_references,
)
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.sources.compressed_values import decompressed, may_be_compressed
from cdc_pipeline.sources.intake import OffsetRange, ranges_and_conditions
from cdc_pipeline.sources.records import may_have_zero_id
from cdc_pipeline.spark.small_frames import small_frame

RELEASES = "dead_letter_releases"


def read_releases(lake: Lake) -> DataFrame | None:
    """The table `dead_letter_releases`; None if the lake has none."""
    return lake.read_if_exists(RELEASES)


def read_raw_batches(lake: Lake, first: int, last: int) -> DataFrame:
    """The records of `raw_topic_snapshot` of the batches from `first` to `last`, with their replacements."""
    return with_replacements(lake.read_batches("raw_topic_snapshot", first, last), read_releases(lake))


def with_replacements(raw: DataFrame, releases: DataFrame | None) -> DataFrame:
    """`raw` with each `value` replaced by the newest replacement of its record, if any."""
    if releases is None:
        return raw
    newest = (
        releases.where("replacement IS NOT NULL")
        .groupBy(*POSITION)
        .agg(F.max_by("replacement", "released_at").alias("_replacement"))
    )
    return (
        raw.join(F.broadcast(newest), list(POSITION), "left")
        .withColumn("value", F.coalesce("_replacement", "value"))
        .select(*raw.columns)
    )


@dataclass(frozen=True)
class BatchValues:
    """What is known of the values of a batch before they are parsed."""

    ranges: tuple[OffsetRange, ...]
    """The offsets of the batch."""
    may_be_compressed: bool
    may_refer: bool
    """Whether any value may refer to a claim store."""
    has_claims: bool
    """Whether the pipeline has a claim store, or the lake a table `claims`."""
    may_have_zero_ids: bool
    """Whether any message may have `id` 0 and no `_tidb`."""


def inspect_values(lake: Lake, raw: DataFrame, note: dict[str, Any], claim_store: str | None) -> BatchValues:
    """Inspects the values of one batch `raw`, with at most one query.

    `note`: the note of the batch's commit. It may list the offsets. `plain` true means that no value is compressed,
    `zero_ids` false that no message has `id` 0 without `_tidb`.
    """
    has_claims = claim_store is not None or read_claims(lake) is not None
    noted = tuple(OffsetRange(*span) for span in note["offsets"])
    conditions = {} if note.get("plain") is True else {"may_be_compressed": may_be_compressed(F.col("value"))}
    if "zero_ids" not in note:
        conditions["zero_ids"] = may_have_zero_id(F.col("value"))
    if has_claims:
        conditions["may_refer"] = may_refer(F.col("value"))
    ranges, found = (noted, {}) if noted and not conditions else ranges_and_conditions(raw, conditions)
    return BatchValues(
        noted or ranges,
        found.get("may_be_compressed", False),
        found.get("may_refer", False),
        has_claims,
        note.get("zero_ids", found.get("zero_ids", False)),
    )


def with_contents(
    lake: Lake, raw: DataFrame, values: BatchValues, commit: Commit, claim_store: str | None, *, begun: bool
) -> DataFrame:
    """Adds `claims.CONTENT` to `raw` (one batch) if values must be decompressed or resolved, and `claims.PROBLEM` if any
    value refers to a claim store.

    `commit`: the commit of the table `claims`. `begun`: the batch is in the change log already, so no files are copied that
    it was decoded without.
    """
    if not values.may_be_compressed and not values.may_refer:
        return raw
    content = decompressed(F.col("value")) if values.may_be_compressed else F.col("value")
    frame = raw.withColumn(CONTENT, content)
    # a reference may be compressed too, so references are searched in the decompressed values
    references = find_references(frame) if values.has_claims else []
    if not references:
        return frame
    return _with_claims(lake, frame, references, commit, claim_store, begun=begun)


def with_decompressed(records: DataFrame) -> DataFrame:
    """Adds `claims.CONTENT` to raw records if any value may be compressed. Does not resolve references to a claim store."""
    if records.where(may_be_compressed(F.col("value"))).isEmpty():
        return records
    return records.withColumn(CONTENT, decompressed(F.col("value")))


def _with_claims(
    lake: Lake, frame: DataFrame, references: list[Reference], commit: Commit, claim_store: str | None, *, begun: bool
) -> DataFrame:
    of_batch = F.col("batch_id") == commit.note["batch"]
    claims = read_claims(lake)
    kept = set()
    if claims is not None:
        kept = {tuple(row) for row in claims.where(of_batch).select(*POSITION).collect()}
    missing = [reference for reference in references if reference.position not in kept]
    problems: dict[Position, str | None] = {}
    if begun:
        problems = dict.fromkeys((reference.position for reference in missing), NOT_KEPT)
    elif missing and claim_store is not None:
        problems.update(copy_claim_files(lake, ClaimStore(lake.spark, claim_store), missing, commit))
        claims = read_claims(lake)
    if claims is None:
        claims = small_frame(lake.spark, [], CLAIMS_SCHEMA)
    return resolve_references(frame, claims.where(of_batch), references, problems)


def claims_writer(paths: LakePaths) -> str:
    """The transaction app id for commits to `claims`. A rebuild writes to the lake's own table, so it has its own id."""
    if CLAIMS in paths.table_paths:
        return f"cdc:{paths.pipeline}:claims:{paths.root.rsplit('/', 1)[-1]}"
    return f"cdc:{paths.pipeline}:claims"
