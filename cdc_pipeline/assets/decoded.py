"""The assets `change_log`, `ddl_history`, `watermarks` and `dead_letters`, decoded in one pass over the raw snapshot."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_pipeline.assets import nodes
from cdc_pipeline.assets.asset_events import StageResult
from cdc_pipeline.assets.metadata import delta_columns
from cdc_pipeline.assets.nodes import CHANGE_LOG, DDL_HISTORY, DEAD_LETTERS, RAW, WATERMARKS
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.checks.contract import CONTRACT, FIELD_RULES, contract_result, field_rules_result, validate_table
from cdc_pipeline.checks.records import BALANCE, NO_DEAD_LETTERS, balance_result, dead_letters_result
from cdc_pipeline.checks.specs import check_spec
from cdc_pipeline.checks.streams import NO_LOST_OFFSETS, WATERMARKS_ADVANCE, lost_offsets_result, watermarks_result
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decoded_tables import KINDS_BY_TABLE, DecodedBatch, decode_batches, decoded_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.raw_batches import newest_batch

_DESCRIPTIONS = {
    CHANGE_LOG: """One row per row change, equal for all dialects: the change (database, table, op, before, after), its time
(commit_ts, a TSO; es and ts in ms), and its record (topic, partition, offset, batch).""",
    DDL_HISTORY: """One row per DDL message: the statement, its parsed effect, the resulting schema, and its status in the
mirrors. `pending`: the mirrors have not reached its commit TSO. `not applied yet`: this version cannot apply it.""",
    WATERMARKS: """One row per TiDB watermark: TiCDC sent all changes with commit_ts < watermark_ts before it.""",
    DEAD_LETTERS: """One row per record or row change that broke a rule: the rule, the reason and the original bytes.""",
}
_KINDS = {
    DDL_HISTORY: unified.DDL_STATEMENTS,
    WATERMARKS: (unified.WATERMARK,),
    DEAD_LETTERS: (unified.DEAD,),
}


def decoded_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    keys = _keys(pipeline.untranslated)

    @dg.multi_asset(
        name=f"{pipeline.name}_decoded",
        specs=[
            nodes.table_spec(
                pipeline, table, deps=[nodes.table_key(pipeline.untranslated, RAW)], description=description
            )
            for table, description in _DESCRIPTIONS.items()
        ],
        check_specs=[
            check_spec(BALANCE, keys[CHANGE_LOG]),
            check_spec(NO_LOST_OFFSETS, keys[CHANGE_LOG]),
            check_spec(FIELD_RULES, keys[CHANGE_LOG]),
            check_spec(WATERMARKS_ADVANCE, keys[WATERMARKS]),
            check_spec(NO_DEAD_LETTERS, keys[DEAD_LETTERS]),
            *(check_spec(CONTRACT, key) for key in keys.values()),
        ],
        required_resource_keys={pipeline.spark_key},
    )
    def decoded(context: dg.AssetExecutionContext) -> Iterator[StageResult]:
        with open_lake(context, pipeline, short_lived=True) as lake:
            results = decode_results(pipeline, lake, context.log.info, RecentAnswers())
        yield from pipeline.execute(context, results)

    return decoded


def decode_results(
    pipeline: Pipeline,
    lake: Lake,
    report: Callable[[str], None],
    recent: RecentAnswers,
    notes: Mapping[int, Mapping[str, Any]] | None = None,
) -> list[StageResult]:
    """Decodes the batches that are not decoded yet. Returns the results for Dagster. `notes`: `Intake.notes`."""
    keys, started = _keys(pipeline), time.monotonic()
    batches = decode_batches(lake, pipeline.decoding, notes=notes)
    version = dg.DataVersion(str(newest_batch(lake)))
    checks = _check_results(lake, pipeline, batches, keys, recent)
    states = {table: lake.state(table) for table in keys}
    seconds = round(time.monotonic() - started, 1)
    results: list[StageResult] = []
    for table, key in keys.items():
        new_rows = sum(_rows(batch, table) for batch in batches)
        report(f"{table}: {new_rows} new")
        metadata: dict[str, Any] = {
            "batches": [batch.batch_id for batch in batches],
            "new_rows": new_rows,
            "seconds": seconds,
            **delta_columns(states[table]),
            **nodes.decoded_lineage(pipeline, states[table]),
        }
        results.append(dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=version))
    return [*results, *checks]


def _keys(pipeline: Pipeline) -> dict[str, dg.AssetKey]:
    return {table: nodes.table_key(pipeline, table) for table in _DESCRIPTIONS}


def _check_results(
    lake: Lake,
    pipeline: Pipeline,
    batches: Sequence[DecodedBatch],
    keys: Mapping[str, dg.AssetKey],
    recent: RecentAnswers,
) -> list[dg.AssetCheckResult]:
    """The results of all checks, in the order in which the step yields them.

    A batch stays decoded though a blocking check failed. So these look at it again, until a cut has passed it.
    """
    new = [batch.batch_id for batch in batches]
    passed = published_cut(lake).last_batch if recent.passed_batch is None else recent.passed_batch
    before = decoded_batches(lake, passed + 1, min(new, default=newest_batch(lake) + 1) - 1)
    earlier = [batch.batch_id for batch in before]
    dead = dead_letters_result(lake, recent, keys[DEAD_LETTERS])
    lost = lost_offsets_result(lake, keys[CHANGE_LOG])
    balance = balance_result(lake, [*before, *batches], keys[CHANGE_LOG])
    count = sum(_rows(batch, WATERMARKS) for batch in batches)
    watermarks = watermarks_result(lake, new, count, keys[WATERMARKS])
    validations = [validate_table(lake, table, new, _most_rows(batches, table)) for table in keys]
    fields = field_rules_result(lake, validations, new, pipeline.decoding.dialect, keys[CHANGE_LOG])
    earlier_validations = [validate_table(lake, table, earlier, _most_rows(before, table)) for table in keys]
    contracts = [
        contract_result(keys[first.table], first, second)
        for first, second in zip(earlier_validations, validations, strict=True)
    ]
    if balance.passed and all(contract.passed for contract in contracts):
        recent.passed_batch = max([passed, *earlier, *new])
    return [balance, lost, dead, watermarks, fields, *contracts]


def _rows(batch: DecodedBatch, table: str) -> int:
    """Rows of the batch in the table. A Canal message may contain several row changes."""
    return (
        batch.counts.row_changes if table == CHANGE_LOG else sum(batch.counts.by_kind[kind] for kind in _KINDS[table])
    )


def _most_rows(batches: Sequence[DecodedBatch], table: str) -> int:
    """Upper bound of the rows of the batches in the table: some XA statements do not become a row."""
    if table == CHANGE_LOG:
        return sum(_rows(batch, table) for batch in batches)
    return sum(batch.counts.by_kind[kind] for batch in batches for kind in KINDS_BY_TABLE[table])
