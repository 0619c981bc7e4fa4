"""The job `<pipeline>_rebuild`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.mirrors import cut_maker
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.lake.catalog import write_catalog
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.catalog_entries import catalog_entries
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.pipeline import Pipeline

_DESCRIPTION = """Rebuilds the change log and the mirrors from the raw snapshot, and compares them with the lake by
content hash. Replaces the tables that differ. If all are equal, the lake does not change."""


class RebuildConfig(dg.Config):
    """Selects the tables to rebuild."""

    tables: list[str] = Field(
        default_factory=list,
        description="Patterns on database.table, such as shop.orders: rebuilds these mirrors from the change log, together "
        "with the mirrors that statements such as RENAME or CREATE … LIKE connect to them; * rebuilds all mirrors. "
        "Empty: rebuilds the change log and all mirrors from the raw records.",
    )


def rebuild_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(
        name=f"{pipeline.name}_rebuild_all", description=_DESCRIPTION, required_resource_keys={pipeline.spark_resource}
    )
    def rebuild_all(context: dg.OpExecutionContext, config: RebuildConfig) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            report = rebuilder(lake, context, pipeline).rebuild(config.tables)
            if report.cut_id is not None:
                update_catalog(lake)
        return dg.Output(None, metadata=rebuild_metadata(report))

    return one_step_job(pipeline, "rebuild", _DESCRIPTION, rebuild_all)


def rebuilder(lake: Lake, context: dg.OpExecutionContext, pipeline: Pipeline) -> Rebuilder:
    """The `Rebuilder` of the pipeline, for a run of one of its jobs."""
    maker = cut_maker(lake, pipeline, context.run.run_id, context.log.info)
    return Rebuilder(maker, pipeline.dialect, pipeline.claim_store, pipeline.clock_skew_ms)


def update_catalog(lake: Lake) -> None:
    """Writes the mirrors of the newest cut to the catalog, from which Dagster loads its asset nodes."""
    published = published_cut(lake)
    entries = published_entries(published, lake.paths)
    write_catalog(lake.paths, catalog_entries(lake.spark, entries))


def content_hashes(report: RebuildReport) -> dg.TableMetadataValue:
    """The content hash of each table before and after the rebuild."""
    rows = (
        (table.table, str(table.equal), table.before or "missing", table.after or "not upstream")
        for table in report.tables
    )
    return table_value(["table", "equal", "before", "after"], rows)


def rebuild_metadata(report: RebuildReport) -> dict[str, dg.MetadataValue]:
    return {
        "equal": dg.MetadataValue.bool(report.all_equal),
        "cut": dg.MetadataValue.text("none: all tables are equal" if report.cut_id is None else str(report.cut_id)),
        "content_hashes": content_hashes(report),
    }
