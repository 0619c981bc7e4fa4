"""Where a step writes, under which commit numbers, and with which settings of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap
from cdc_pipeline.lake.delta import Commit, commit_metadata, table_state
from cdc_pipeline.mirrors.model.state import row_gaps
from cdc_pipeline.mirrors.model.step_commits import StepCommits
from cdc_pipeline.spark.small_frames import totals


@dataclass(frozen=True)
class StepContext:
    """The context of one step on one mirror."""

    spark: SparkSession
    path: str
    """The mirror's folder."""
    commits: StepCommits
    time_zone: str
    """The zone in which the encoder prints TIMESTAMP values."""
    salt: str = field(repr=False)
    """The secret key of hashed values (`mask_salt`)."""

    def mirror(self) -> DataFrame:
        """The newest rows of the mirror, deleted rows of a `soft_delete` mirror included."""
        return self.spark.read.format("delta").load(self.path)

    def add_gaps(self, gaps: Sequence[Gap], commit: Commit) -> None:
        """`add_row_gaps` to the mirror.

        Call it with a commit of its own (`commits.for_gaps`) before the commit that writes the rows.
        """
        add_row_gaps(self.spark, self.path, gaps, commit)


def add_row_gaps(spark: SparkSession, path: str, gaps: Sequence[Gap], commit: Commit) -> None:
    """Adds gaps found in rows to the properties of the mirror at `path`, if there is one."""
    if gaps and (table := table_state(spark, path)) is not None:
        commit_metadata(spark, path, commit, properties=row_gaps(table, *gaps))


def found_in(rows: DataFrame, conditions: Mapping[str, Column]) -> list[tuple[str, int]]:
    """(name, number of rows) of each condition that is true in some rows."""
    if not conditions:
        return []
    counts = [F.count(F.when(condition, 1)).alias(f"n{index}") for index, condition in enumerate(conditions.values())]
    return [(name, count) for name, count in zip(conditions, totals(rows, *counts), strict=True) if count]
