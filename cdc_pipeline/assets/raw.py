"""The asset `raw_topic_snapshot`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.assets.keys import CODE_VERSION, RAW, table_key
from cdc_pipeline.assets.metadata import ranges_table
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.resources.lock import only_writer
from cdc_pipeline.resources.spark import SparkLakehouse
from cdc_pipeline.sources.raw_snapshot import Intake, new_files_taken_in, newest_batch

_DESCRIPTION = """One row is one record of the topics, byte for byte: topic, partition, offset, timestamp, key, value,
headers, and the batch that took it in. Only appended to; everything else in the lake can be made again from it."""


def raw_asset(pipeline: Pipeline) -> dg.AssetsDefinition:
    @dg.asset(
        key=table_key(pipeline.name, RAW),
        group_name=pipeline.name,
        kinds={"delta", "pyspark"},
        description=_DESCRIPTION,
        code_version=CODE_VERSION,
        metadata={"dagster/uri": pipeline.paths.table(RAW)},
    )
    def raw_topic_snapshot(context: dg.AssetExecutionContext, spark: SparkLakehouse) -> dg.MaterializeResult[None]:
        with clear_failures(), only_writer(pipeline.paths, context.run.run_id, context.log.info):
            intake = new_files_taken_in(spark.session, pipeline.paths, pipeline.captures, context.run.run_id)
            newest = newest_batch(spark.session, pipeline.paths)
        context.log.info(_summary(intake))
        return dg.MaterializeResult(
            # A run without news leaves what comes after in sync.
            data_version=dg.DataVersion(str(newest)),
            metadata={
                "batch": intake.batch_id or "nothing new",
                "records": intake.records,
                "files": [file.name for file in intake.files],
                "passed_over": list(intake.passed_over),
                "offsets": ranges_table(intake.ranges),
            },
        )

    return raw_topic_snapshot


def _summary(intake: Intake) -> str:
    others = f"; passed over, since they hold no records: {', '.join(intake.passed_over)}" if intake.passed_over else ""
    if intake.batch_id is None:
        return f"nothing new{others}"
    return f"batch {intake.batch_id}: {intake.records} new records of {len(intake.files)} files{others}"
