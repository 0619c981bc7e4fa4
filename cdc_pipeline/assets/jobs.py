"""The jobs that do not ingest. Each has one op, runs in one process and is exclusive for the pipeline."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
from collections.abc import Callable, Mapping
from functools import partial

import dagster as dg
from pydantic import Field

from cdc_pipeline.assets.asset_events import AssetEvents
from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.assets.metadata import table_value
from cdc_pipeline.assets.mirrors import cut_maker
from cdc_pipeline.assets.nodes import CUTS, checked_assets, table_key, update_catalog
from cdc_pipeline.assets.opened_lake import open_lake, spark_of
from cdc_pipeline.catalogs.updates import CatalogUpdates
from cdc_pipeline.checks.cuts import BEFORE_IMAGES, before_images_results, own_commits_result
from cdc_pipeline.checks.results import previous_metadata
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline.mirrors.operations.adoption import adopt, place_of_start, require_earlier_stream
from cdc_pipeline.mirrors.operations.dry_run import pending_statements
from cdc_pipeline.mirrors.operations.letter_choice import DeadLetterChoice
from cdc_pipeline.mirrors.operations.loading import Loading
from cdc_pipeline.mirrors.operations.maintenance import LEAST_KEEP_HOURS, Maintenance
from cdc_pipeline.mirrors.operations.reading_server import ServerReading
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder, RebuildReport
from cdc_pipeline.mirrors.operations.release import DeadLetters, Releaser
from cdc_pipeline.mirrors.operations.retention import Retention
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mirrors.settings.table_patterns import matches_any
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline, Snapshot
from cdc_pipeline.spark.jdbc import JdbcServer


def one_step_job(
    pipeline: Pipeline,
    name: str,
    description: str,
    step: Callable[..., dg.Output[None]],
    tags: Mapping[str, str] | None = None,
) -> dg.JobDefinition:
    """The job `<pipeline>_<name>`, whose only op runs `step` and has its name.

    `tags`: tags of its runs, by default those of every run of the pipeline.
    """
    op = dg.op(
        name=f"{pipeline.name}_{step.__name__}",
        description=description,
        required_resource_keys={pipeline.spark_key},
        out=dg.Out(dg.Nothing),
    )(step)

    @dg.job(
        name=f"{pipeline.name}_{name}",
        description=description,
        executor_def=dg.in_process_executor,
        tags=pipeline.run_tags if tags is None else tags,
    )
    def job() -> None:
        op()

    return job


def operation_jobs(pipeline: Pipeline) -> list[dg.JobDefinition]:
    """The jobs of an operator, without `maintain_job`."""
    jobs = [rebuild_job(pipeline), release_job(pipeline), ddl_dry_run_job(pipeline), approve_ddl_job(pipeline)]
    jobs.append(verify_job(pipeline))
    return jobs if pipeline.snapshot is None else [*jobs, snapshot_job(pipeline, pipeline.snapshot)]


# ---- snapshot

_SNAPSHOT = """Loads the tables of the export (`snapshot`) beside running ingests, and makes them the beginning of their
mirrors at the moment of the export. If the mirrors have passed it, rebuilds these tables; else the next cuts begin with
them."""


def snapshot_job(pipeline: Pipeline, snapshot: Snapshot) -> dg.JobDefinition:
    def load_and_adopt(context: dg.OpExecutionContext) -> dg.Output[None]:
        with translate_errors(snapshot.secrets):
            baseline = _load(context, pipeline, snapshot)
        with open_lake(context, pipeline) as lake:
            rebuilder = _rebuilder(lake, context, pipeline)
            adoption = adopt(
                rebuilder,
                baseline,
                changefeed_start=snapshot.changefeed_start,
                accept_gap=snapshot.accept_gap,
                definitions_only=snapshot.definitions_only,
            )
            _store_rebuilt_catalog(lake, adoption.rebuilt, context, pipeline)
        rows = ((str(table.name), table.rows) for table in adoption.tables)
        cut = None if adoption.rebuilt is None else adoption.rebuilt.cut_id
        metadata: dict[str, dg.MetadataValue] = {
            "baseline": dg.MetadataValue.text(baseline),
            "begins": dg.MetadataValue.text("with the next cut past the export" if cut is None else f"in cut {cut}"),
            "tables": table_value(["table", "rows"], rows),
        }
        return dg.Output(None, metadata=metadata)

    return one_step_job(pipeline, "snapshot", _SNAPSHOT, load_and_adopt)


def _load(context: dg.OpExecutionContext, pipeline: Pipeline, snapshot: Snapshot) -> str:
    """Loads the tables. Returns the id of their baseline."""
    wants, source = partial(_wants, pipeline, snapshot), snapshot.source
    if isinstance(source, JdbcServer):
        lake = Lake(spark_of(context, pipeline).start(), pipeline.paths)
        reading = ServerReading(lake, context.run.run_id, context.log.info, snapshot.definitions_only)
        return reading.load(source, wants, partial(_require_stream, lake, snapshot))
    loading = Loading(pipeline.paths, context.run.run_id, context.log.info, definitions_only=snapshot.definitions_only)
    return loading.load(source.type, source.path, wants, source.times)


def _require_stream(lake: Lake, snapshot: Snapshot, started_ms: int) -> None:
    """Raises LakeError if a read that begins at this time could not be adopted."""
    place = place_of_start(started_ms)
    require_earlier_stream(lake, place, changefeed_start=snapshot.changefeed_start, accept_gap=snapshot.accept_gap)


def _wants(pipeline: Pipeline, snapshot: Snapshot, name: TableName) -> bool:
    return pipeline.selection.includes(name) and matches_any(str(name), snapshot.tables)


# ---- rebuild

_REBUILD = """Rebuilds the change log and the mirrors from the raw snapshot, and compares them with the lake by
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
    def rebuild_all(context: dg.OpExecutionContext, config: RebuildConfig) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            report = _rebuilder(lake, context, pipeline).rebuild(config.tables)
            _store_rebuilt_catalog(lake, report, context, pipeline)
        return dg.Output(None, metadata=_rebuild_metadata(report))

    return one_step_job(pipeline, "rebuild", _REBUILD, rebuild_all)


def _rebuilder(lake: Lake, context: dg.OpExecutionContext, pipeline: Pipeline) -> Rebuilder:
    """The `Rebuilder` of the pipeline, for a run of one of its jobs."""
    maker = cut_maker(lake, pipeline, context.run.run_id, context.log.info)
    return Rebuilder(maker, pipeline.decoding)


def _store_rebuilt_catalog(
    lake: Lake, report: RebuildReport | None, context: dg.OpExecutionContext, pipeline: Pipeline
) -> None:
    """Writes the mirrors of the newest cut to the catalog of Dagster's asset nodes, and to the pipeline's."""
    if report is not None and report.cut_id is not None:
        mirrors = published_entries(published_cut(lake), lake.paths)
        update_catalog(lake, mirrors)
        CatalogUpdates(pipeline.catalog, context.log.warning).after_cut(lake, report.cut_id, mirrors)


def _rebuild_metadata(report: RebuildReport) -> dict[str, dg.MetadataValue]:
    """The cut of the rebuild, and the content hash of each table before and after it."""
    rows = (
        (table.table, str(table.equal), table.before or "missing", table.after or "not upstream")
        for table in report.tables
    )
    return {
        "equal": dg.MetadataValue.bool(report.all_equal),
        "cut": dg.MetadataValue.text("none: all tables are equal" if report.cut_id is None else str(report.cut_id)),
        "content_hashes": table_value(["table", "equal", "before", "after"], rows),
    }


# ---- dead letters

_RELEASE = """Decodes dead letters again: unchanged (after a fix of the rule or of the claim store), or with a
replacement message. Rebuilds change log and mirrors with the released records at their own offsets, so that none overwrites
a newer change. A record that still breaks a rule stays a dead letter. If none is released, the lake does not change."""
_MOST_LOGGED = 50


class ReleaseConfig(dg.Config):
    """Selects dead letters: those that match all given filters (positions, rules, tables), and those with a replacement."""

    positions: list[str] = Field(
        default_factory=list,
        description="topic/partition@offset, or topic/partition@first-last, such as shop/0@17-20.",
    )
    rules: list[str] = Field(
        default_factory=list,
        description="Patterns on the rule (column rule of dead_letters), such as value_has_type; * selects all.",
    )
    tables: list[str] = Field(default_factory=list, description="Patterns on database.table, such as shop.*.")
    replacements: dict[str, str] = Field(
        default_factory=dict,
        description="Replacement messages by topic/partition@offset. This run and every later rebuild decode the "
        "replacement (the whole value, as text) in place of the record's value.",
    )
    replacement_file: str = Field(
        default="",
        description="File with replacement messages, on the machine that runs the job; may be .gz. One JSON object per "
        "line with topic, partition, offset and payload (or payload_base64), as `kcat -C -J` prints it.",
    )
    note: str = Field(default="", description="Reason of the release, stored in dead_letter_releases.")


def release_job(pipeline: Pipeline) -> dg.JobDefinition:
    def release_letters(context: dg.OpExecutionContext, config: ReleaseConfig) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            choice = DeadLetterChoice(
                tuple(config.positions),
                tuple(config.rules),
                tuple(config.tables),
                config.replacements,
                config.replacement_file,
            )
            report = Releaser(_rebuilder(lake, context, pipeline), config.note).release(choice)
            _store_rebuilt_catalog(lake, report.rebuild, context, pipeline)
        for letter in report.dead.shown[:_MOST_LOGGED]:
            context.log.warning(f"{letter.position} was not released: it breaks {letter.rule}: {letter.reason}")
        if not report.released.count:
            raise dg.Failure(
                "none of the selected dead letters was released: each still breaks a rule; nothing was changed",
                metadata={"not_released_dead_letters": _dead_letters_table(report.dead)},
                allow_retries=False,
            )
        metadata = {
            "released": dg.MetadataValue.int(report.released.count),
            "released_dead_letters": _dead_letters_table(report.released),
            "not_released": dg.MetadataValue.int(report.dead.count),
            "not_released_dead_letters": _dead_letters_table(report.dead),
            **({} if report.rebuild is None else _rebuild_metadata(report.rebuild)),
        }
        return dg.Output(None, metadata=metadata)

    return one_step_job(pipeline, "release_dead_letters", _RELEASE, release_letters)


def _dead_letters_table(letters: DeadLetters) -> dg.TableMetadataValue:
    rows = ((str(letter.position), letter.table, letter.rule, letter.reason) for letter in letters.shown)
    return table_value(["position", "table", "rule", "reason"], rows)


# ---- statements that `ddl_policy: hold` stops

_DRY_RUN = """Lists DDL statements that are held for approval or lie above the resolved TSO, and what each does to the
mirrors. Changes nothing."""
_APPROVE = """Approves the held statements of tables and rebuilds the tables, with the statements and all that waited behind
them."""


class ApprovedTables(dg.Config):
    """Selects held tables. A statement is approved for all of its tables."""

    tables: list[str] = Field(description="Patterns on database.table, such as shop.*; * approves all held tables.")


def ddl_dry_run_job(pipeline: Pipeline) -> dg.JobDefinition:
    def show_pending_ddl(context: dg.OpExecutionContext) -> dg.Output[None]:
        with translate_errors():
            lake = Lake(spark_of(context, pipeline).start(short_lived=True), pipeline.paths)
            found = pending_statements(lake, published_cut(lake), pipeline.selection)
        for one in found:
            loss = f"; lost: {one.loss}" if one.loss else ""
            context.log.info(f"{one.status}: {one.sql} → {one.effect}{loss}; row changes that wait: {one.waiting:,}")
        rows = (
            (one.status, one.sql, one.effect, one.loss, one.waiting, str(one.position), str(one.commit_ts))
            for one in found
        )
        columns = ["status", "statement", "effect", "lost", "waiting_row_changes", "position", "commit_ts"]
        return dg.Output(None, metadata={"statements": table_value(columns, rows)})

    return one_step_job(pipeline, "ddl_dry_run", _DRY_RUN, show_pending_ddl)


def approve_ddl_job(pipeline: Pipeline) -> dg.JobDefinition:
    def approve_statements(context: dg.OpExecutionContext, config: ApprovedTables) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            held = published_cut(lake).held
            # a quarantined table needs a rebuild, not an approval
            selected = [table for table in held if not table.error and matches_any(str(table.name), config.tables)]
            if not selected:
                names = ", ".join(str(table.name) for table in held) or "none"
                raise dg.Failure(f"tables {config.tables} match no held table; held: {names}", allow_retries=False)
            approved = {str(table.name): f"the statement at {table.statement}" for table in selected}
            for name, statement in approved.items():
                context.log.info(f"{name}: approved {statement}")
            report = _rebuilder(lake, context, pipeline).approve(selected)
            _store_rebuilt_catalog(lake, report, context, pipeline)
        return dg.Output(None, metadata={"approved": dg.MetadataValue.json(approved), **_rebuild_metadata(report)})

    return one_step_job(pipeline, "approve_ddl", _APPROVE, approve_statements)


# ---- maintenance

_MAINTAIN = """Compacts small files (OPTIMIZE) and deletes files that no retained version needs (VACUUM). The contents of
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
    def keep_up(context: dg.OpExecutionContext, config: MaintenanceConfig) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            maintenance = Maintenance(config.tables, config.compact, config.vacuum, config.keep_hours)
            mirrors = published_entries(published_cut(lake), lake.paths)
            tables = [*lake.paths.own_tables, *(mirror.path for mirror in mirrors)]
            names = sorted(path.removeprefix(f"{lake.paths.home}/") for path in tables)
            commits = own_commits_result(lake, names, table_key(pipeline, CUTS))
            AssetEvents(context.instance, {}, ()).report(context, commits)
            done = maintenance.run(lake, context.log.info)
            Retention(pipeline.keep_days).advance(lake, context.run.run_id, context.log.info)
        rows = (
            (one.table, one.files_removed, one.files_added, str(one.vacuumed), round(one.seconds, 1)) for one in done
        )
        columns = ["table", "files_removed", "files_added", "vacuumed", "seconds"]
        return dg.Output(None, metadata={"tables": table_value(columns, rows)})

    return one_step_job(pipeline, "maintain", _MAINTAIN, keep_up)


# ---- verification

_VERIFY = """Compares the row changes since the last verification with the mirrors before them: each UPDATE and DELETE says
what the row was. A table with a contradiction gets a gap. Runs of the pipeline do the same each `verify_minutes`."""


def verify_job(pipeline: Pipeline) -> dg.JobDefinition:
    def compare_images(context: dg.OpExecutionContext) -> dg.Output[None]:
        with open_lake(context, pipeline) as lake:
            settings = cut_maker(lake, pipeline, context.run.run_id, context.log.info).settings
            verifier = Verifier(lake, settings, context.log.info)
            found = verifier.verify(context.run.run_id)
            assets, events = checked_assets(pipeline), AssetEvents(context.instance, {}, ())
            before = previous_metadata(context.instance, assets.cuts, BEFORE_IMAGES)
            mirrors, wrong = published_entries(published_cut(lake), lake.paths), verifier.contradicted()
            for result in reversed(before_images_results(verifier.verified, wrong, mirrors, before, assets)):
                events.report(context, result)
        rows = ((f"{one.database}.{one.table}", one.changes, one.proved, one.contradicted) for one in found)
        columns = ["table", "changes", "proved", "contradicted"]
        return dg.Output(None, metadata={"tables": table_value(columns, rows)})

    return one_step_job(pipeline, "verify", _VERIFY, compare_images)


def maintenance_schedule(job: dg.JobDefinition, cron: str) -> dg.ScheduleDefinition:
    return dg.ScheduleDefinition(
        name=f"{job.name}_schedule",
        job=job,
        cron_schedule=cron,
        execution_timezone="UTC",
        description="Compacts and vacuums the tables of the lake with the job's defaults.",
        default_status=dg.DefaultScheduleStatus.RUNNING,
    )
