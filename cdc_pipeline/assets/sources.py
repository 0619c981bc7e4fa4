"""The external assets upstream of `raw_topic_snapshot`: topics, or a folder, and how far the lake is behind them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import dagster as dg

from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.nodes import table_key
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.source import NewRecords, NoNewRecords, PartitionLag

OBSERVED_SECONDS = 600.0
"""Least time between two observations of an asset, so that a stream without end leaves few events."""
_MOST_SHOWN = 200
"""Partitions of an observation, those with the longest lag first."""


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
