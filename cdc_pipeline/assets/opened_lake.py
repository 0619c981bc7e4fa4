"""The lake of a pipeline, as each step of a run opens it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.lake.format import note_format, require_known_format
from cdc_pipeline.lake.lock import only_writer
from cdc_pipeline.mirrors.cuts.restored_lake import lake_taken_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dagster as dg

    from cdc_pipeline.pipeline import Pipeline
    from cdc_pipeline.spark.session import SparkLakehouse


@contextlib.contextmanager
def opened_lake(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, pipeline: Pipeline, spark: SparkLakehouse
) -> Iterator[None]:
    """Within it this step is the only one that writes the lake, of a format that this version knows, and errors are as
    Dagster should treat them. A lake that was taken back by RESTORE is made one to go on from first, and one of an
    earlier format one of this."""
    with (
        clear_failures(pipeline.source.secrets),
        only_writer(pipeline.paths, context.run.run_id, context.log.info),
    ):
        require_known_format(spark.session, pipeline.paths)
        lake_taken_back(spark.session, pipeline.paths, context.log.info)
        note_format(spark.session, pipeline.paths)
        yield
