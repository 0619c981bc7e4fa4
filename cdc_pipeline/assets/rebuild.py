"""The job `<pipeline>_rebuild`."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import dagster as dg

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.assets.jobs import one_step_job
from cdc_pipeline.assets.metadata import shown_table
from cdc_pipeline.assets.mirrors import cut_maker
from cdc_pipeline.catalog import remember_mirrors
from cdc_pipeline.mirrors.catalog_entries import catalog_entries
from cdc_pipeline.mirrors.cut_report import published_entries
from cdc_pipeline.mirrors.progress import published_cut
from cdc_pipeline.mirrors.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.resources.lock import only_writer
from cdc_pipeline.resources.spark import SparkLakehouse

_DESCRIPTION = """Makes change log and mirrors again from the raw snapshot, holds them against what the lake has by content
hash, and puts right what differs. Where all is equal the lake stays as it is."""


def rebuild_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_rebuild_all", description=_DESCRIPTION)
    def rebuild_all(context: dg.OpExecutionContext, spark: SparkLakehouse) -> dg.Output[None]:
        with clear_failures(), only_writer(pipeline.paths, context.run.run_id, context.log.info):
            maker = cut_maker(spark, pipeline, context.run.run_id, context.log.info)
            report = Rebuilder(maker, pipeline.dialect, pipeline.claim_store).rebuilt()
            if report.cut_id is not None:
                entries = published_entries(published_cut(spark.session, pipeline.paths), pipeline.paths)
                remember_mirrors(pipeline.paths, catalog_entries(spark.session, entries))
        return dg.Output(None, metadata=_metadata(report))

    return one_step_job(pipeline, "rebuild", _DESCRIPTION, rebuild_all)


def _metadata(report: RebuildReport) -> dict[str, dg.MetadataValue]:
    rows = (
        (table.table, str(table.equal), table.before or "missing", table.after or "not upstream")
        for table in report.tables
    )
    return {
        "equal": dg.MetadataValue.bool(report.equal),
        "cut": dg.MetadataValue.text(
            "none: nothing had to be put right" if report.cut_id is None else str(report.cut_id)
        ),
        "content": shown_table(["table", "equal", "before", "after"], rows),
    }
