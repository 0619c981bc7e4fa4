"""Opens the lake of a pipeline for a step of a run."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

import dagster as dg

from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.lake.delta_log import only_writer
from cdc_pipeline.lake.format import require_known_format, store_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.lock import writer_lock
from cdc_pipeline.lake.restored_tables import require_not_restored
from cdc_pipeline.lake.tables.batches import last_decoded_batch
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.raw_batches import newest_batch, require_decoded_batches
from cdc_pipeline.spark.jvm import started_later
from cdc_pipeline.spark.session import SparkLakehouse


def spark_of(context: dg.AssetExecutionContext | dg.OpExecutionContext, pipeline: Pipeline) -> SparkLakehouse:
    """The resource of the pipeline. Raises `dg.Failure` if the project's one is no SparkLakehouse."""
    found, resource = getattr(context.resources, pipeline.spark_key), f"the resource {pipeline.spark_key!r}"
    if not isinstance(found, SparkLakehouse):
        problem = f"is a {type(found).__name__}, but a cdc_pipeline.SparkLakehouse is expected"
        raise dg.Failure(f"{resource} (field spark_resource) {problem}", allow_retries=False)
    for name, needed in (("stores", pipeline.stores), ("packages", pipeline.packages)):
        if not set(needed) <= {*getattr(found, name)}:
            problem = f"has {name}: {getattr(found, name)}, but the pipeline needs {list(needed)}"
            raise dg.Failure(f"{resource} (field spark_resource) {problem}", allow_retries=False)
    return found


@contextlib.contextmanager
def open_lake(
    context: dg.AssetExecutionContext | dg.OpExecutionContext, pipeline: Pipeline, *, short_lived: bool = False
) -> Iterator[Lake]:
    """Holds the writer lock of the lake and translates errors for Dagster. `short_lived`: of `SparkLakehouse.start`, at the
    first use of the session.

    Fails if the lake has another format, or one of its tables was restored (RESTORE), or raw records were removed. On S3
    the first step of a run in a process looks. Mirrors and cuts are not checked here: a rebuild repairs them, and a cut
    checks them.
    """
    with (
        translate_errors(pipeline.source.secrets),
        writer_lock(
            pipeline.paths, context.run.run_id, context.log.info, single_writer=pipeline.single_writer
        ) as continues,
        only_writer(pipeline.paths, continues=continues),
    ):
        spark = spark_of(context, pipeline)
        start = functools.partial(spark.start, short_lived=short_lived)
        is_later = short_lived and not spark.has_started
        lake = Lake(started_later(start) if is_later else start(), pipeline.paths)
        if not continues:  # else the step before has looked
            require_known_format(lake)
            require_not_restored(lake, *lake.paths.own_tables)
            require_decoded_batches(lake)
            store_format(lake)
        if is_later and not _is_settled(lake):
            lake.start_session()
        yield lake


def _is_settled(lake: Lake) -> bool:
    """Whether the newest cut has all records of the lake. If not, a run has work even without new records: the one before
    it has died, or a blocking check has failed."""
    newest = newest_batch(lake)
    return newest == last_decoded_batch(lake) == published_cut(lake).last_batch
