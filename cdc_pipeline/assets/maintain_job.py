"""The job `<pipeline>_maintain` and its schedule."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.asset_events import AssetEvents
from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.assets.keys import CUTS, table_key
from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.checks.cuts import own_commits_result
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.operations.maintenance import LEAST_KEEP_HOURS, Maintenance, TableMaintenance
from cdc_pipeline.pipeline import Pipeline

_DESCRIPTION = """Compacts small files (OPTIMIZE) and deletes files that no retained version needs (VACUUM). The contents of
the tables do not change."""


class MaintenanceConfig(dg.Config):
    """Selects tables and operations."""

    tables: list[str] = Field(
        default_factory=lambda: ["*"],
        description="Patterns on the table's path in the pipeline's folder: change_log, mirror/shop.orders, "
        "mirror/shop.*; * selects all tables.",
    )
    compact: bool = Field(default=True, description="Compact small files.")
    vacuum: bool = Field(default=True, description="Delete files that were replaced more than keep_hours ago.")
    keep_hours: int = Field(
        default=LEAST_KEEP_HOURS,
        description=f"Retention of replaced files, in hours. At least {LEAST_KEEP_HOURS}.",
    )


def maintain_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_keep_up", description=_DESCRIPTION, required_resource_keys={pipeline.spark_resource})
    def keep_up(context: dg.OpExecutionContext, config: MaintenanceConfig) -> dg.Output[None]:
        with translate_errors():
            maintenance = Maintenance(config.tables, config.compact, config.vacuum, config.keep_hours)
            with open_lake(context, pipeline) as lake:
                tables = [*lake.paths.own_tables, *(lake.paths.mirror(name) for name in published_cut(lake).names)]
                names = sorted(path.removeprefix(f"{lake.paths.home}/") for path in tables)
                commits = own_commits_result(lake, names, table_key(pipeline.name, CUTS))
                AssetEvents(context.instance, {}, ()).report(context, commits)
                upkeep = maintenance.run(lake, context.log.info)
        return dg.Output(None, metadata={"tables": _upkeep_table(upkeep)})

    return one_step_job(pipeline, "maintain", _DESCRIPTION, keep_up)


def maintenance_schedule(job: dg.JobDefinition, cron: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        description="Compacts and vacuums the tables of the lake with the job's defaults.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )


def _upkeep_table(upkeep: list[TableMaintenance]) -> dg.MetadataValue:
    rows = (
        (table.table, table.files_removed, table.files_added, str(table.vacuumed), round(table.seconds, 1))
        for table in upkeep
    )
    return table_value(["table", "files_removed", "files_added", "vacuumed", "seconds"], rows)
