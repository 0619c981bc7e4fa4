"""The job `<pipeline>_rebuild`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.metadata import shown_table
from cdc_pipeline.assets.mirrors import cut_maker
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import opened_lake
from cdc_pipeline.lake.catalog import remember_mirrors
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.catalog_entries import catalog_entries
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.mirrors.operations.rebuild_tables import TableRebuilder
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.spark.session import SparkLakehouse

_DESCRIPTION = """Makes change log and mirrors again from the raw snapshot, holds them against what the lake has by content
hash, and puts right what differs. Where all is equal the lake stays as it is."""


class RebuildConfig(dg.Config):
    """What is to be made again."""

    tables: list[str] = Field(
        default_factory=list,
        description="Patterns on database.table, such as shop.orders: only these mirrors, with those that RENAME, LIKE and "
        "so on tie to them, from the change log as it is (a star alone: all mirrors). Empty: change log and all mirrors, "
        "from the raw records.",
    )


def rebuild_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_rebuild_all", description=_DESCRIPTION)
    def rebuild_all(context: dg.OpExecutionContext, config: RebuildConfig, spark: SparkLakehouse) -> dg.Output[None]:
        with opened_lake(context, pipeline, spark):
            maker = cut_maker(spark, pipeline, context.run.run_id, context.log.info)
            if config.tables:
                report = TableRebuilder(maker).rebuilt(config.tables)
            else:
                report = Rebuilder(maker, pipeline.dialect, pipeline.claim_store).rebuilt()
            if report.cut_id is not None:
                remember_published(spark, pipeline)
        return dg.Output(None, metadata=_metadata(report))

    return one_step_job(pipeline, "rebuild", _DESCRIPTION, rebuild_all)


def remember_published(spark: SparkLakehouse, pipeline: Pipeline) -> None:
    """The mirrors of the newest cut as Dagster shows them from now on."""
    published = published_cut(spark.session, pipeline.paths)
    entries = published_entries(published, pipeline.paths)
    remember_mirrors(pipeline.paths, catalog_entries(spark.session, entries, published.sources))


def content_table(report: RebuildReport) -> dg.TableMetadataValue:
    """Each table with its content hash before and after."""
    rows = (
        (table.table, str(table.equal), table.before or "missing", table.after or "not upstream")
        for table in report.tables
    )
    return shown_table(["table", "equal", "before", "after"], rows)


def _metadata(report: RebuildReport) -> dict[str, dg.MetadataValue]:
    return {
        "equal": dg.MetadataValue.bool(report.equal),
        "cut": dg.MetadataValue.text(
            "none: nothing had to be put right" if report.cut_id is None else str(report.cut_id)
        ),
        "content": content_table(report),
    }
