"""Tables that somebody took back to an earlier version with Delta's RESTORE.

RESTORE takes rows and columns back, but not the pairs of (writer, version) by which commits are made once
(`resources/delta.py`): what was committed after that version counts as being in, and would be passed over in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mirrors.progress import PublishedCut, published_cut
from cdc_pipeline.resources.delta import progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.resources.lake import LakePaths


def cut_to_go_on_from(spark: SparkSession, paths: LakePaths) -> PublishedCut:
    """The newest published cut. Raises LakeError where a later one was committed and taken back."""
    # first: a run beside may publish
    committed = progress(spark, paths.table("consistent_cuts"), paths.writer("consistent_cuts")) or 0
    published = published_cut(spark, paths)
    if published.cut_id < committed:
        raise LakeError(
            f"consistent_cuts ends with cut {published.cut_id}, though cut {committed} was committed: it was taken back, as "
            "by RESTORE, which leaves Delta's record of what is in. Take consistent_cuts to its newest version again "
            "(RESTORE), or put a copy of the pipeline's folder in its place; see docs/operations.md",
            pipeline=paths.pipeline,
        )
    return published
