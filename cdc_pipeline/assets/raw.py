"""The asset `raw_topic_snapshot`, and the external assets that it reads: topics, or a folder."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import time
from collections.abc import Iterable, Iterator, Mapping

import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.asset_events import StageResult
from cdc_pipeline.assets.metadata import delta_columns, ranges_table, table_value
from cdc_pipeline.assets.nodes import RAW, name_safe_key, table_key, table_spec
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.checks.specs import check_spec
from cdc_pipeline.checks.streams import NO_OPEN_TRANSACTIONS, open_transactions_result
from cdc_pipeline.lake.format import store_format
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.positions import offsets_text
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline.sources.source import Intake, NewRecords, NoNewRecords, PartitionLag, RunContext

_DESCRIPTION = """One row per Kafka record, byte for byte: topic, partition, offset, timestamp, key, value, headers, and the
batch that ingested it. Append-only. All other tables of the lake can be rebuilt from it."""
_MOST_SHOWN = 200
"""Files and partitions in metadata; of observed partitions those with the longest lag."""
POSITIONS = "positions"
"""Metadata entry with the next offsets of the source. The sensor reads it for lakes that are not local."""
OBSERVED_SECONDS = 600.0
"""Least time between two observations of an asset, so that a stream without end leaves few events."""


class Range(dg.Config):
    """End of the range to read. Empty: up to the current end of the source."""

    until: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="Kafka only. End offset (exclusive) per topic and partition. Partitions not listed are not read.",
    )


def raw_asset(pipeline: Pipeline) -> dg.AssetsDefinition:
    key = table_key(pipeline.untranslated, RAW)
    sources = (spec.key for spec in source_specs(pipeline.untranslated).values())
    inputs = {name_safe_key(source): source for source in sources}

    @dg.multi_asset(
        name="__".join(key.path),
        specs=[table_spec(pipeline, RAW, deps=list(inputs), description=_DESCRIPTION)],
        required_resource_keys={pipeline.spark_key},
        check_specs=[check_spec(NO_OPEN_TRANSACTIONS, key)] if _is_kafka(pipeline) else [],
    )
    def raw_topic_snapshot(context: dg.AssetExecutionContext, config: Range) -> Iterator[StageResult]:
        run = RunContext(context.run.run_id, context.log.info)
        with open_lake(context, pipeline, short_lived=True) as lake:
            _, results = ingest_results(pipeline, lake, run, config.until or None)
        yield from pipeline.execute(context, results)

    return raw_topic_snapshot.with_attributes(asset_key_replacements=inputs)


def ingest_results(
    pipeline: Pipeline, lake: Lake, run: RunContext, until: Mapping[str, Mapping[str, int]] | None = None
) -> tuple[Intake, list[StageResult]]:
    """Ingests new records, up to the end offsets `until` (Kafka). Returns the intake with its results for Dagster."""
    key, started = table_key(pipeline, RAW), time.monotonic()
    intake = pipeline.source.ingest(lake, run, until)
    store_format(lake)
    run.report(_summary(intake))
    results: list[StageResult] = [
        dg.MaterializeResult(
            asset_key=key,
            # unchanged by a run without new records, so that downstream assets stay in sync
            data_version=dg.DataVersion(str(newest_batch(lake))),
            metadata={
                "source": pipeline.source.location,
                "batch": intake.batch_id or "no new records",
                "batches": len(intake.batches),
                "records": intake.records,
                "seconds": round(time.monotonic() - started, 1),
                "files": _first(file.name for file in intake.files),
                "skipped_files": list(intake.skipped_files),
                "offsets": ranges_table(intake.ranges[:_MOST_SHOWN]),
                **({} if pipeline.paths.has_files else {POSITIONS: dg.MetadataValue.json(dict(intake.positions))}),
                **delta_columns(lake.state(RAW)),
                "lost_offsets": [
                    f"{topic}/{partition} {offsets_text(first, end)}" for topic, partition, first, end in intake.lost
                ],
            },
        )
    ]
    if _is_kafka(pipeline):
        results.append(open_transactions_result(intake, key))
    return intake, results


def _is_kafka(pipeline: Pipeline) -> bool:
    return "kafka" in pipeline.source.kinds


def _first(names: Iterable[str]) -> list[str]:
    """The first names and the number of the others: a storage folder may have thousands of new files."""
    listed = list(names)
    more = [f"… and {len(listed) - _MOST_SHOWN} more"] if len(listed) > _MOST_SHOWN else []
    return listed[:_MOST_SHOWN] + more


def _summary(intake: Intake) -> str:
    skipped = f"; skipped files without records: {', '.join(intake.skipped_files)}" if intake.skipped_files else ""
    if intake.batch_id is None:
        return f"no new records{skipped}"
    batches = f"batch {intake.batch_id}" if len(intake.batches) == 1 else f"{len(intake.batches)} batches"
    origin = f"{len(intake.files)} files" if intake.files else f"{len(intake.ranges)} partitions"
    return f"{batches}: {intake.records} new records from {origin}{skipped}"


def source_specs(pipeline: Pipeline) -> dict[str, dg.AssetSpec]:
    """By the names of `Source.inputs`."""
    return {
        name: dg.AssetSpec(
            table_key(pipeline, "source", name),
            group_name=pipeline.name,
            description=f"Records at {pipeline.source.location}. `lag`: offsets that the lake does not have.",
            kinds=set(pipeline.source.kinds),
            owners=list(pipeline.owners),
            tags=dict(pipeline.tags),
        )
        for name in pipeline.source.inputs
    }


def due_observations(
    pipeline: Pipeline, instance: dg.DagsterInstance, found: NewRecords | NoNewRecords
) -> Iterator[dg.AssetObservation]:
    """Observations of the assets that changed since their newest one, unless that is younger than `OBSERVED_SECONDS`."""
    specs = source_specs(pipeline)
    for name, spec in specs.items():
        # the topics of a pattern belong to one asset
        lags = sorted(
            (one for one in found.lags if name == one.topic or one.topic not in specs), key=lambda one: -one.lag
        )
        if lags:
            rows = (list(map(str, one)) for one in lags[:_MOST_SHOWN])
            table = table_value(PartitionLag._fields, rows)
            metadata: dict[str, dg.MetadataValue] = {
                "lag": dg.MetadataValue.int(sum(one.lag for one in lags)),
                "partitions": table,
            }
        elif not found.lags:
            state = found.summary if isinstance(found, NewRecords) else found.reason
            metadata = {"state": dg.MetadataValue.text(state)}
        else:
            continue  # a topic that has ended
        due = dg.AssetObservation(spec.key, metadata=metadata)
        newest = next(iter(instance.fetch_observations(spec.key, limit=1).records), None)
        before = None if newest is None else newest.asset_observation
        is_old = newest is None or time.time() >= newest.timestamp + OBSERVED_SECONDS
        if is_old and (before is None or before.metadata != due.metadata):
            yield due
