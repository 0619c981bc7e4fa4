"""The job `<pipeline>_maintain` and its schedule, which runs only when it is switched on."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.assets.metadata import shown_table
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import opened_lake
from cdc_pipeline.mirrors.operations.maintenance import LEAST_KEEP_HOURS, Maintenance, Upkeep
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.spark.session import SparkLakehouse

_DESCRIPTION = """Puts small files together (OPTIMIZE) and removes those that no kept version needs (VACUUM). What can be
read stays as it is, and so does every cut that was the newest within the last `keep_hours`."""


class MaintenanceConfig(dg.Config):
    """What to keep up, and how."""

    tables: list[str] = Field(
        default_factory=lambda: ["*"],
        description="Patterns on a table's name as it is below the pipeline's folder: change_log, mirror/shop.orders, "
        "mirror/shop.* (a star alone: all).",
    )
    compact: bool = Field(default=True, description="Whether small files are put together.")
    vacuum: bool = Field(default=True, description="Whether files are removed that were replaced before keep_hours.")
    keep_hours: int = Field(
        default=LEAST_KEEP_HOURS,
        description=f"Hours for which replaced files stay: so long a cut can be read after the next one was published. "
        f"{LEAST_KEEP_HOURS} or more.",
    )


def maintain_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_keep_up", description=_DESCRIPTION)
    def keep_up(context: dg.OpExecutionContext, config: MaintenanceConfig, spark: SparkLakehouse) -> dg.Output[None]:
        with clear_failures():
            wanted = Maintenance(config.tables, config.compact, config.vacuum, config.keep_hours)
            with opened_lake(context, pipeline, spark):
                found = wanted.done(spark.session, pipeline.paths, context.log.info)
        return dg.Output(None, metadata={"tables": _shown(found)})

    return one_step_job(pipeline, "maintain", _DESCRIPTION, keep_up)


def maintenance_schedule(job: dg.JobDefinition, cron: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        description="Keeps the lake's tables up, with the job's defaults. Off until it is switched on here.",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )


def _shown(found: list[Upkeep]) -> dg.MetadataValue:
    rows = (
        (upkeep.table, upkeep.files_removed, upkeep.files_added, str(upkeep.vacuumed), round(upkeep.seconds, 1))
        for upkeep in found
    )
    return shown_table(["table", "files_removed", "files_added", "vacuumed", "seconds"], rows)
