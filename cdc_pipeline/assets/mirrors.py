"""The assets `mirror/<database>/<table>` and `consistent_cuts`: one step advances all mirrors to one resolved TSO."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import dagster as dg

from cdc_pipeline.assets import nodes
from cdc_pipeline.assets.asset_events import AssetEvents, StageResult
from cdc_pipeline.assets.metadata import column_schema, cut_metadata, mirror_metadata
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.catalogs.updates import CatalogUpdates
from cdc_pipeline.checks import cuts as cut_checks
from cdc_pipeline.checks.mirrors import KEYS_HOLD, SCHEMA_MATCHES_DDL, keys_hold_results, schema_results
from cdc_pipeline.checks.records import cut_balance_result
from cdc_pipeline.checks.results import (
    CheckedAssets,
    code_span,
    previous_metadata,
    previously_failed_tables,
    without_repeated,
)
from cdc_pipeline.checks.specs import cut_check_specs, mirror_check_specs
from cdc_pipeline.checks.streams import NO_LIMITS, FreshnessLimits, fresh_result, mirrors_to_confirm
from cdc_pipeline.errors import CdcError
from cdc_pipeline.lake.catalog import CatalogEntry, read_catalog
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, TableCounts
from cdc_pipeline.mirrors.model.state import DELETED, METADATA_COLUMNS
from cdc_pipeline.mirrors.operations.maintenance import keep_small
from cdc_pipeline.mirrors.operations.verification import Verifier
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.raw_batches import unread_topics
from cdc_pipeline.sources.source import RunContext

_CUTS = """One row per consistent cut: its resolved TSO and the Delta version of each mirror at this TSO. The row is written
after all mirrors are committed, so a reader of a cut sees all tables as of one moment of upstream."""
_EXCEPT = "The check `no_gaps` lists exceptions, also before which statement a held mirror has stopped."
_MIRROR = "{name} as upstream has it at the resolved TSO{metadata}. " + _EXCEPT
_MERGED = (
    "{count} upstream table(s) merged, as upstream has them at the resolved TSO{metadata}. " + _EXCEPT + " "
    "`_source_database` and `_source_table` name the table of a row."
)
_METADATA = ", with the {names} of the message\nthat wrote each row"
_SOFT_DELETE = f" Rows deleted upstream stay, with {DELETED} true."


def mirror_parents(pipeline: Pipeline) -> list[dg.AssetKey]:
    """The assets that every mirror depends on."""
    return [nodes.table_key(pipeline, table) for table in (nodes.CHANGE_LOG, nodes.DDL_HISTORY, nodes.WATERMARKS)]


def events_of(instance: dg.DagsterInstance, pipeline: Pipeline, *assets: dg.AssetsDefinition) -> AssetEvents:
    """Converts results about these assets of the pipeline, and about new mirrors."""
    parents = {spec.key: [dep.asset_key for dep in spec.deps] for definition in assets for spec in definition.specs}
    # without a catalog mirrors are no nodes
    cuts = nodes.table_key(pipeline, nodes.CUTS) if pipeline.paths.has_files else None
    return AssetEvents(instance, parents, mirror_parents(pipeline), cuts)


def cut_maker(lake: Lake, pipeline: Pipeline, run_id: str, report: Callable[[str], None]) -> CutMaker:
    """The `CutMaker` of the pipeline. `report`: callback that receives one progress line per call."""
    return CutMaker(
        lake,
        run_id,
        pipeline.time_zone,
        pipeline.merge_threads,
        report,
        pipeline.keys,
        pipeline.ddl_policy,
        pipeline.selection,
        pipeline.columns,
        unread=partial(unread_topics, pipeline.source, lake),
    )


def mirror_spec(pipeline: Pipeline, entry: CatalogEntry, freshness: dg.FreshnessPolicy | None = None) -> dg.AssetSpec:
    lifecycle = " Dropped upstream, or no longer included. Its history stays in this asset." if entry.dropped else ""
    if entry.moved_to:
        lifecycle = f" Renamed to {code_span(entry.moved_to)}, which has its rows and their history."
    spec = nodes.node_spec(
        pipeline,
        nodes.mirror_key(pipeline.untranslated, entry.name),
        str(entry.name),
        entry.path,
        deps=mirror_parents(pipeline.untranslated),
        description=_description(entry) + lifecycle,
        skippable=True,
        freshness_policy=None if entry.dropped else freshness,
    )
    return spec.replace_attributes(group_name=nodes.mirror_group(pipeline.name, entry.database)).merge_attributes(
        tags={nodes.LIFECYCLE: "renamed" if entry.moved_to else "dropped" if entry.dropped else "live"},
        metadata={
            "dagster/column_schema": column_schema(entry),
            "dagster/column_lineage": nodes.mirror_lineage(pipeline, entry),
            **({"renamed_to": entry.moved_to} if entry.moved_to else {}),
            **({"upstream_table": entry.upstream} if entry.upstream else {}),
            **({"upstream_tables": dg.MetadataValue.json(list(entry.merged))} if entry.merged else {}),
        },
    )


def _description(entry: CatalogEntry) -> str:
    names = [column.name.removeprefix("_") for column in entry.columns if column.name in METADATA_COLUMNS]
    listed = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    metadata = _METADATA.format(names=listed) if listed else ""
    if entry.merged:
        described = _MERGED.format(count=len(entry.merged), metadata=metadata)
    else:
        described = _MIRROR.format(name=code_span(entry.name), metadata=metadata)
    has_soft_delete = any(column.name == DELETED and not column.mysql_type for column in entry.columns)
    return described + (_SOFT_DELETE if has_soft_delete else "")


def _known_mirrors(pipeline: Pipeline) -> tuple[CatalogEntry, ...]:
    """The mirrors of the catalog. None, with a warning, if the object store cannot be read: the definitions have to load."""
    try:
        return read_catalog(pipeline.paths)
    except CdcError as error:
        dg.get_dagster_logger("cdc_pipeline").warning(
            f"{pipeline.name} has no nodes of mirrors until the next load: {error}"
        )
        return ()


def mirror_assets(pipeline: Pipeline, limits: FreshnessLimits = NO_LIMITS) -> dg.AssetsDefinition:
    """One step with a node per mirror in the catalog. A run adds new mirrors to the catalog."""
    specs = [mirror_spec(pipeline, entry, limits.policy()) for entry in _known_mirrors(pipeline)]
    live = {spec.key for spec in specs if spec.tags[nodes.LIFECYCLE] == "live"}
    cuts = nodes.table_key(pipeline.untranslated, nodes.CUTS)
    names = {nodes.name_safe_key(spec.key): spec.key for spec in specs}
    specs = [spec.replace_attributes(key=key) for key, spec in zip(names, specs, strict=True)]

    @dg.multi_asset(
        name=f"{pipeline.name}_mirrors",
        specs=[
            *specs,
            # also without mirrors after the decoded tables; and dependencies that end would be "Unsynced"
            nodes.table_spec(
                pipeline,
                nodes.CUTS,
                deps=[nodes.table_key(pipeline.untranslated, nodes.WATERMARKS), *names],
                description=_CUTS,
                freshness_policy=limits.policy(),
            ),
        ],
        check_specs=[
            *cut_check_specs(cuts, has_limits=limits.declared),
            *(spec for name, key in names.items() if key in live for spec in mirror_check_specs(name)),
        ],
        # the jobs have no check of a mirror: Dagster would plan each in each run, show it as skipped if the cut does not
        # concern the mirror, and all as failed if the run fails
        can_subset=True,
        required_resource_keys={pipeline.spark_key},
    )
    def mirrors(context: dg.AssetExecutionContext) -> Iterator[Any]:
        run = RunContext(context.run.run_id, context.log.info)
        selected = {*context.selected_asset_keys, *context.selected_asset_check_keys}
        asked = {key.asset_key for key in context.selected_asset_check_keys}
        with open_lake(context, pipeline, short_lived=True) as lake:
            catalog = CatalogUpdates(pipeline.catalog, context.log.warning)
            results = cut_results(pipeline, lake, run, context.instance, limits, RecentAnswers(), catalog, asked)
        events = events_of(context.instance, pipeline, context.assets_def)
        # whatever is selected, a cut advances all mirrors
        yield from events.yielded(pipeline.execute(context, results), selected)

    return mirrors.with_attributes(asset_key_replacements={name: key for name, key in names.items() if name != key})


def cut_results(
    pipeline: Pipeline,
    lake: Lake,
    run: RunContext,
    instance: dg.DagsterInstance,
    limits: FreshnessLimits,
    recent: RecentAnswers,
    names: CatalogUpdates,
    checked: Collection[dg.AssetKey] = (),
) -> list[StageResult]:
    """Advances the mirrors to the resolved TSO. Returns the results for Dagster, those of new mirrors among them.

    `checked`: mirrors whose checks are evaluated even if nothing has changed.
    """
    assets = nodes.checked_assets(pipeline)
    cuts = assets.cuts
    maker = cut_maker(lake, pipeline, run.run_id, run.report)
    report = maker.advance()
    asked = [entry.name for entry in report.mirrors if assets.mirror(entry.name) in checked]
    # without a catalog there is only the metadata of new materializations
    mirrors = report.mirrors if lake.paths.has_files else [one for one in report.mirrors if one.name in report.changed]
    catalog = nodes.update_catalog(lake, mirrors, reread=bool(report.selection_changes))
    checks = _lake_check_results(instance, lake, pipeline, report, assets, recent, asked)
    by_name = {entry.name: entry for entry in report.mirrors}
    since = _time_of_cut(lake, report.cut_id - 1) if limits.fail and report.published else None
    touched = {**dict.fromkeys(mirrors_to_confirm(report, limits, since), TableCounts()), **report.changed}
    results: list[StageResult] = [
        dg.MaterializeResult(
            asset_key=assets.mirror(name),
            metadata={
                **mirror_metadata(by_name[name], counts, report),
                # Dagster's own check of schema changes compares those of materializations
                **({"dagster/column_schema": column_schema(catalog[name])} if name in catalog else {}),
            },
            data_version=dg.DataVersion(str(by_name[name].version)),
        )
        for name, counts in touched.items()
        if name in by_name  # not dropped in this cut
    ]
    version = dg.DataVersion(str(report.cut_id))
    results.append(dg.MaterializeResult(asset_key=cuts, metadata=cut_metadata(report), data_version=version))
    fresh = [fresh_result(report, limits, cuts)] if limits.declared else []
    keep_small(lake, report.without_quarantined, run.report)
    if report.published:
        names.after_cut(lake, report.cut_id, report.mirrors)
    verifier = Verifier(lake, maker.settings, run.report)
    if pipeline.verify_minutes and report.published:
        verifier.verify_if_due(run.run_id, timedelta(minutes=pipeline.verify_minutes))
    proved = previous_metadata(instance, cuts, cut_checks.BEFORE_IMAGES)
    checks += cut_checks.before_images_results(
        verifier.verified, verifier.contradicted(), report.mirrors, proved, assets, asked
    )
    gaps = previous_metadata(instance, cuts, cut_checks.NO_GAPS)
    checks += cut_checks.mirror_gaps_results(report, gaps, assets, {*touched, *asked})
    checks += [cut_checks.no_gaps_result(report, cuts), cut_checks.attempt_result(cuts), *fresh]
    # the sums last: from them the next run knows what mirrors show
    return [*results, *sorted(checks, key=lambda result: result.asset_key == cuts)]


def _time_of_cut(lake: Lake, cut_id: int) -> datetime | None:
    rows = read_rows(lake, nodes.CUTS, ("cut_id", "=", cut_id), columns=["published_at"])
    return rows[0]["published_at"] if rows else None


def _lake_check_results(
    instance: dg.DagsterInstance,
    lake: Lake,
    pipeline: Pipeline,
    report: CutReport,
    assets: CheckedAssets,
    recent: RecentAnswers,
    asked: Collection[TableName],
) -> list[dg.AssetCheckResult]:
    """The results of the checks that read tables of the lake, of all mirrors and of single ones."""
    cuts = assets.cuts
    balance = cut_balance_result(lake, cuts)
    ddl = cut_checks.ddl_applied_result(lake, recent, cuts)
    breach = cut_checks.no_breach_result(lake, cuts)
    failed = {
        check: previously_failed_tables(instance, cuts, check).union(map(str, asked))
        for check in (KEYS_HOLD, SCHEMA_MATCHES_DDL)
    }
    # the check no_gaps reports quarantined tables, and their mirrors may be unreadable
    readable = report.without_quarantined
    keys = keys_hold_results(
        lake, readable, assets, pipeline.keys, failed[KEYS_HOLD], pipeline.key_check_rows, pipeline.merge_threads
    )
    schemas = schema_results(lake, readable, failed[SCHEMA_MATCHES_DDL], recent, assets)
    # the maintenance job looks at all tables
    commits = cut_checks.own_commits_result(
        lake, previously_failed_tables(instance, cuts, cut_checks.ONLY_OWN_COMMITS), cuts
    )
    return [ddl, balance, breach, *without_repeated(instance, [*keys, *schemas], cuts), commits]
