"""The jobs `<pipeline>_ddl_dry_run` and `<pipeline>_approve_ddl`, for statements that `ddl_policy: hold` stops."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.

import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.one_step_job import one_step_job
from cdc_pipeline.assets.opened_lake import open_lake, spark_of
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.held_rows import approve
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.operations.dry_run import PendingStatement, pending_statements
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.positions import Position

_DRY_RUN = """Lists DDL statements that are held for approval or lie above the resolved TSO, and the effect of each on the
mirrors. Changes nothing."""
_APPROVE = """Approves the held statements of tables. The next ingest applies them, and the changes that follow them."""


class ApprovedTables(dg.Config):
    """Selects held tables. A statement is approved for all of its tables."""

    tables: list[str] = Field(description="Patterns on database.table, such as shop.*; * approves all held tables.")


def ddl_dry_run_job(pipeline: Pipeline) -> dg.JobDefinition:
    @dg.op(
        name=f"{pipeline.name}_show_pending_ddl", description=_DRY_RUN, required_resource_keys={pipeline.spark_resource}
    )
    def show_pending_ddl(context: dg.OpExecutionContext) -> dg.Output[None]:
        with translate_errors():
            settings = CutSettings(
                pipeline.time_zone, pipeline.keys, pipeline.ddl_policy, pipeline.selection, pipeline.columns
            )
            statements = pending_statements(
                Lake(spark_of(context, pipeline).start(short_lived=True), pipeline.paths), settings
            )
        for statement in statements:
            context.log.info(f"{statement.status}: {statement.sql} → {statement.effect}")
        return dg.Output(None, metadata={"statements": _statements_table(statements)})

    return one_step_job(pipeline, "ddl_dry_run", _DRY_RUN, show_pending_ddl)


def _statements_table(statements: tuple[PendingStatement, ...]) -> dg.MetadataValue:
    rows = (
        (
            statement.status,
            statement.sql,
            statement.effect,
            str(Position(statement.topic, statement.partition, statement.offset)),
            str(statement.commit_ts),
        )
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
        with open_lake(context, pipeline, short_lived=True) as lake:
            held = published_cut(lake).held
            # a quarantined table needs a rebuild, not an approval
            selected = [table for table in held if not table.error and matches_any(str(table.name), config.tables)]
            if not selected:
                raise dg.Failure(
                    f"tables {config.tables} match no held table; held: {_names(held)}", allow_retries=False
                )
            approve(lake, selected, context.run.run_id)
        for table in selected:
            context.log.info(f"{table.name}: approved {_statement(table)}")
        return dg.Output(
            None, metadata={"approved": dg.MetadataValue.json({str(t.name): _statement(t) for t in selected})}
        )

    return one_step_job(pipeline, "approve_ddl", _APPROVE, approve_statements)


def _statement(table: HeldTable) -> str:
    return f"the statement at {table.statement}"


def _names(held: tuple[HeldTable, ...]) -> str:
    return ", ".join(str(table.name) for table in held) or "none"
