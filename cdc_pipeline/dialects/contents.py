"""The bytes that are parsed of each record: its value, opened where it is compressed, or the message that it refers to.

Most batches need none of it, and are told from the others by one look at their values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from cdc_pipeline.dialects.claim_files import ClaimStore
from cdc_pipeline.dialects.claims import (
    CLAIMS,
    CLAIMS_SCHEMA,
    CONTENT,
    NOT_KEPT,
    kept_claims,
    may_refer,
    references,
    resolved,
    take_in,
)
from cdc_pipeline.sources.compressed_values import may_be_packed, opened
from cdc_pipeline.sources.intake import OffsetRange, counted_ranges
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.dialects.claims import Position, Reference
    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.lake.paths import LakePaths


@dataclass(frozen=True)
class Look:
    """What one look at the values of a batch tells: the offsets that it has, whether any value may be compressed, whether
    any may refer to a claim store, and whether the pipeline has one, or had."""

    ranges: tuple[OffsetRange, ...]
    packed: bool
    referring: bool
    has_claims: bool


def looked_at(
    spark: SparkSession, paths: LakePaths, raw: DataFrame, note: dict[str, Any], claim_store: str | None
) -> Look:
    """`raw` is one batch, `note` that of its commit: with `plain` true it says that no value is compressed, and it may have
    the offsets. What it does not say is asked by one query over the values."""
    has_claims = claim_store is not None or kept_claims(spark, paths) is not None
    told = tuple(OffsetRange(*span) for span in note["offsets"])
    asked = {} if note.get("plain") is True else {"packed": may_be_packed(F.col("value"))}
    if has_claims:
        asked["referring"] = may_refer(F.col("value"))
    ranges, found = (told, {}) if told and not asked else counted_ranges(raw, asked)
    return Look(told or ranges, found.get("packed", False), found.get("referring", False), has_claims)


def with_contents(
    spark: SparkSession,
    paths: LakePaths,
    raw: DataFrame,
    look: Look,
    commit: Commit,
    claim_store: str | None,
    *,
    begun: bool,
) -> DataFrame:
    """`raw` (one batch), with `claims.CONTENT` where a value has to be opened, and `claims.PROBLEM` where some refer to a
    claim store.

    `commit` takes in the files. `begun`: the batch's rows are in the change log already, so that no other files may count
    than those that did then.
    """
    if not look.packed and not look.referring:
        return raw
    frame = raw.withColumn(CONTENT, opened(F.col("value")) if look.packed else F.col("value"))
    # a reference may be compressed as well: only the opened values tell
    found = references(frame) if look.has_claims else []
    if not found:
        return frame
    return _with_claims(spark, paths, frame, found, commit, claim_store, begun=begun)


def _with_claims(
    spark: SparkSession,
    paths: LakePaths,
    frame: DataFrame,
    found: list[Reference],
    commit: Commit,
    claim_store: str | None,
    *,
    begun: bool,
) -> DataFrame:
    batch = F.col("batch_id") == commit.note["batch"]
    claims = kept_claims(spark, paths)
    kept = set()
    if claims is not None:
        kept = {tuple(row) for row in claims.where(batch).select("topic", "partition", "offset").collect()}
    wanted = [reference for reference in found if reference.position not in kept]
    problems: dict[Position, str | None] = {}
    if begun:
        problems = dict.fromkeys((reference.position for reference in wanted), NOT_KEPT)
    elif wanted and claim_store is not None:
        problems.update(take_in(spark, paths, ClaimStore(spark, claim_store), wanted, commit))
        claims = kept_claims(spark, paths)
    if claims is None:
        claims = small_frame(spark, [], CLAIMS_SCHEMA)
    return resolved(frame, claims.where(batch), found, problems)


def claims_writer(paths: LakePaths) -> str:
    """The writer of the table `claims`: of a rebuild, which writes to the lake's own table, another one each time."""
    if CLAIMS in paths.borrowed:
        return f"cdc:{paths.pipeline}:claims:{paths.root.rsplit('/', 1)[-1]}"
    return f"cdc:{paths.pipeline}:claims"
