"""The job `<pipeline>_follow`: ingests batch after batch in one Spark session."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from cdc_pipeline.assets.asset_events import AssetEvents
from cdc_pipeline.assets.code_version import LoadedCode
from cdc_pipeline.assets.follower import Follower, FollowLimits
from cdc_pipeline.assets.mirrors import mirror_parents
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.checks.streams import NO_LIMITS, FreshnessLimits
from cdc_pipeline.pipeline import Pipeline

_DESCRIPTION = """Ingests new records, decodes them and advances the mirrors, batch after batch in one Spark session. Each
batch reports what a run of the ingest job reports. Ends after `follow.maximum_minutes`, without new records for
`follow.idle_minutes`, for new code, and for a run of the pipeline that waits."""


def follow_job(
    pipeline: Pipeline,
    assets: Sequence[dg.AssetsDefinition],
    limits: FollowLimits,
    freshness: FreshnessLimits = NO_LIMITS,
    declaration: Path | None = None,
) -> dg.JobDefinition:
    """The job of a pipeline. `assets`: what its batches materialize; `declaration`: the YAML file of the pipeline."""
    # what this process has loaded: a file that changes before the first batch counts too
    code = LoadedCode(declaration)
    parents = {spec.key: [dep.asset_key for dep in spec.deps] for definition in assets for spec in definition.specs}
    blocking = frozenset(spec.key for definition in assets for spec in definition.check_specs if spec.blocking)

    @dg.op(
        name=f"{pipeline.name}_follow_source",
        description=_DESCRIPTION,
        required_resource_keys={pipeline.spark_resource},
        out=dg.Out(dg.Nothing),
    )
    def follow_source(context: dg.OpExecutionContext) -> dg.Output[None]:
        events = AssetEvents(context.instance, parents, mirror_parents(pipeline), blocking)
        follower = Follower(context, pipeline, events, freshness, limits, code)
        follower.follow()
        return dg.Output(None, metadata={"batches": follower.batches, "end": follower.end})

    return one_step_job(pipeline, "follow", _DESCRIPTION, follow_source, pipeline.tags_of_run(limits.maximum_seconds))
