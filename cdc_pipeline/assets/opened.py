"""The lake of a pipeline, as each step of a run opens it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.resources.lake_format import require_known_format
from cdc_pipeline.resources.lock import only_writer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dagster as dg

    from cdc_pipeline.pipeline import Pipeline
    from cdc_pipeline.resources.spark import SparkLakehouse


@contextlib.contextmanager
def opened_lake(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, pipeline: Pipeline, spark: SparkLakehouse
) -> Iterator[None]:
    """Within it this step is the only one that writes the lake, of a format that this version knows, and errors are as
    Dagster should treat them."""
    with (
        clear_failures(pipeline.source.secrets),
        only_writer(pipeline.paths, context.run.run_id, context.log.info),
    ):
        require_known_format(spark.session, pipeline.paths)
        yield
