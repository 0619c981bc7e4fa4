"""The jobs `<pipeline>_ddl_dry_run` and `<pipeline>_approve_ddl`, for statements that `ddl_policy: hold` stops."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.

import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import open_lake, spark_of
from cdc_pipeline.assets.rebuild_job import rebuild_metadata, rebuilder, update_catalog
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.operations.dry_run import PendingStatement, pending_statements
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.pipeline import Pipeline

_DRY_RUN = """Lists DDL statements that are held for approval or lie above the resolved TSO, and what each does to the
mirrors. Changes nothing."""
_APPROVE = """Approves the held statements of tables and rebuilds the tables, with the statements and all that waited behind
them."""


class ApprovedTables(dg.Config):
    """Selects held tables. A statement is approved for all of its tables."""

    tables: list[str] = Field(description="Patterns on database.table, such as shop.*; * approves all held tables.")


def ddl_dry_run_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(
        name=f"{pipeline.name}_show_pending_ddl", description=_DRY_RUN, required_resource_keys={pipeline.spark_resource}
    )
    def show_pending_ddl(context: dg.OpExecutionContext) -> dg.Output[None]:
        with translate_errors():
            lake = Lake(spark_of(context, pipeline).start(short_lived=True), pipeline.paths)
            statements = pending_statements(lake, pipeline.selection)
        for statement in statements:
            context.log.info(f"{statement.status}: {statement.sql} → {statement.effect}")
        return dg.Output(None, metadata={"statements": _statements_table(statements)})

    return one_step_job(pipeline, "ddl_dry_run", _DRY_RUN, show_pending_ddl)


def _statements_table(statements: tuple[PendingStatement, ...]) -> dg.MetadataValue:
    rows = (
        (statement.status, statement.sql, statement.effect, str(statement.position), str(statement.commit_ts))
        for statement in statements
    )
    return table_value(["status", "statement", "effect", "position", "commit_ts"], rows)


def approve_ddl_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(
        name=f"{pipeline.name}_approve_statements",
        description=_APPROVE,
        required_resource_keys={pipeline.spark_resource},
    )
    def approve_statements(context: dg.OpExecutionContext, config: ApprovedTables) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            held = published_cut(lake).held
            # a quarantined table needs a rebuild, not an approval
            selected = [table for table in held if not table.error and matches_any(str(table.name), config.tables)]
            if not selected:
                raise dg.Failure(
                    f"tables {config.tables} match no held table; held: {_names(held)}", allow_retries=False
                )
            for table in selected:
                context.log.info(f"{table.name}: approved {_statement(table)}")
            report = rebuilder(lake, context, pipeline).approve(selected)
            if report.cut_id is not None:
                update_catalog(lake)
        approved = {str(table.name): _statement(table) for table in selected}
        return dg.Output(None, metadata={"approved": dg.MetadataValue.json(approved), **rebuild_metadata(report)})

    return one_step_job(pipeline, "approve_ddl", _APPROVE, approve_statements)


def _statement(table: HeldTable) -> str:
    return f"the statement at {table.statement}"


def _names(held: tuple[HeldTable, ...]) -> str:
    return ", ".join(str(table.name) for table in held) or "none"
