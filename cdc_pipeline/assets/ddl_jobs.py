"""The jobs `<pipeline>_ddl_dry_run` and `<pipeline>_approve_ddl`: what waits, and letting it go on (`ddl_policy: hold`)."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.

import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.failures import clear_failures
from cdc_pipeline.assets.metadata import shown_table
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import opened_lake
from cdc_pipeline.mirrors.changes.held_rows import approve
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.operations.dry_run import PendingStatement, pending_statements
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.spark.session import SparkLakehouse

_DRY_RUN = """Shows the DDL that waits, for an approval or for the resolved TSO, and what each statement would do to the
mirrors. Nothing is changed."""
_APPROVE = (
    """Approves the statements that tables wait for. The next ingest carries them out, and what waited behind them."""
)


class ApprovedTables(dg.Config):
    """Which of the tables that wait may go on. A statement is approved as a whole."""

    tables: list[str] = Field(description="Patterns on database.table, such as shop.* (a star alone: all that wait).")


def ddl_dry_run_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_show_pending_ddl", description=_DRY_RUN)
    def show_pending_ddl(context: dg.OpExecutionContext, spark: SparkLakehouse) -> dg.Output[None]:
        with clear_failures():
            settings = CutSettings(
                pipeline.time_zone, pipeline.keys, pipeline.ddl_policy, pipeline.selection, pipeline.columns
            )
            found = pending_statements(spark.session, pipeline.paths, settings)
        for statement in found:
            context.log.info(f"{statement.status}: {statement.sql} → {statement.effect}")
        return dg.Output(None, metadata={"statements": _table(found)})

    return one_step_job(pipeline, "ddl_dry_run", _DRY_RUN, show_pending_ddl)


def _table(statements: tuple[PendingStatement, ...]) -> dg.MetadataValue:
    rows = (
        (
            statement.status,
            statement.sql,
            statement.effect,
            f"{statement.topic}/{statement.partition}/{statement.offset}",
            str(statement.commit_ts),
        )
        for statement in statements
    )
    return shown_table(["status", "statement", "would", "place", "commit_ts"], rows)


def approve_ddl_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(name=f"{pipeline.name}_approve_statements", description=_APPROVE)
    def approve_statements(
        context: dg.OpExecutionContext, config: ApprovedTables, spark: SparkLakehouse
    ) -> dg.Output[None]:
        with opened_lake(context, pipeline, spark):
            held = published_cut(spark.session, pipeline.paths).held
            # what is put aside waits for a rebuild, not for an approval
            chosen = [table for table in held if not table.error and matches_any(str(table.name), config.tables)]
            if not chosen:
                raise dg.Failure(f"{config.tables} names no table that waits: {_names(held)}", allow_retries=False)
            approve(spark.session, pipeline.paths, chosen, context.run.run_id)
        for table in chosen:
            context.log.info(f"{table.name} may go on with: {_statement(table)}")
        return dg.Output(
            None, metadata={"approved": dg.MetadataValue.json({str(t.name): _statement(t) for t in chosen})}
        )

    return one_step_job(pipeline, "approve_ddl", _APPROVE, approve_statements)


def _statement(table: HeldTable) -> str:
    topic, partition, offset = table.cause
    return table.sql or f"the statement at {topic}/{partition}/{offset} (see ddl_history)"


def _names(held: tuple[HeldTable, ...]) -> str:
    return ", ".join(str(table.name) for table in held) or "none does"
