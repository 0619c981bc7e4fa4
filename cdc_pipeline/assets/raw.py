"""The asset `raw_topic_snapshot`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import time
from collections.abc import Iterable

import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.keys import RAW, table_key
from cdc_pipeline.assets.metadata import delta_columns, ranges_table
from cdc_pipeline.assets.nodes import face
from cdc_pipeline.assets.opened_lake import opened_lake
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.format import note_format
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline.sources.source import Intake, RunContext
from cdc_pipeline.spark.session import SparkLakehouse

_DESCRIPTION = """One row is one record of the topics, byte for byte: topic, partition, offset, timestamp, key, value,
headers, and the batch that took it in. Only appended to; everything else in the lake can be made again from it."""


_MOST_SHOWN = 200
POSITIONS = "positions"
"""The metadata that says how far the source was read."""


class Range(dg.Config):
    """How far to read. Empty: to where the source is now."""

    until: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="For each topic and partition the offset to stop before; those not named are not read. For Kafka only.",
    )


def raw_asset(pipeline: Pipeline) -> dg.AssetsDefinition:
    @dg.asset(
        key=table_key(pipeline.name, RAW),
        group_name=pipeline.name,
        description=_DESCRIPTION,
        **face(pipeline),
        metadata={"dagster/uri": pipeline.paths.table(RAW)},
    )
    def raw_topic_snapshot(
        context: dg.AssetExecutionContext, config: Range, spark: SparkLakehouse
    ) -> dg.MaterializeResult[None]:
        run = RunContext(context.run.run_id, context.log.info)
        started = time.monotonic()
        with opened_lake(context, pipeline, spark):
            intake = pipeline.source.take_in(spark.session, pipeline.paths, run, config.until or None)
            note_format(spark.session, pipeline.paths)
            newest = newest_batch(spark.session, pipeline.paths)
            state = table_state(spark.session, pipeline.paths.table(RAW))
        context.log.info(_summary(intake))
        return dg.MaterializeResult(
            # A run without news leaves what comes after in sync.
            data_version=dg.DataVersion(str(newest)),
            metadata={
                "source": pipeline.source.place,
                "batch": intake.batch_id or "nothing new",
                "batches": len(intake.batches),
                "records": intake.records,
                "seconds": round(time.monotonic() - started, 1),
                "files": _some(file.name for file in intake.files),
                "passed_over": list(intake.passed_over),
                "offsets": ranges_table(intake.ranges[:_MOST_SHOWN]),
                # the sensor's only word of it where the lake is no local folder
                **({} if pipeline.paths.is_local else {POSITIONS: dg.MetadataValue.json(dict(intake.positions))}),
                **delta_columns(state),
                "given_up": [f"{topic}/{partition} {first}–{end - 1}" for topic, partition, first, end in intake.lost],
            },
        )

    return raw_topic_snapshot


def _some(names: Iterable[str]) -> list[str]:
    """The first of many: a storage folder may have brought thousands of files."""
    found = list(names)
    more = [f"… and {len(found) - _MOST_SHOWN} more"] if len(found) > _MOST_SHOWN else []
    return found[:_MOST_SHOWN] + more


def _summary(intake: Intake) -> str:
    others = f"; passed over, since they hold no records: {', '.join(intake.passed_over)}" if intake.passed_over else ""
    if intake.batch_id is None:
        return f"nothing new{others}"
    batches = f"batch {intake.batch_id}" if len(intake.batches) == 1 else f"{len(intake.batches)} batches"
    places = f"{len(intake.files)} files" if intake.files else f"{len(intake.ranges)} partitions"
    return f"{batches}: {intake.records} new records of {places}{others}"
