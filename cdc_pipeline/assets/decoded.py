"""The assets that one parse of the raw snapshot gives: change_log, ddl_history, watermarks, dead_letters."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import time
from collections.abc import Iterator

import dagster as dg

from cdc_pipeline.assets.keys import CHANGE_LOG, DDL_HISTORY, DEAD_LETTERS, RAW, WATERMARKS, table_key
from cdc_pipeline.assets.metadata import delta_columns
from cdc_pipeline.assets.nodes import decoded_lineage, face
from cdc_pipeline.assets.opened_lake import opened_lake
from cdc_pipeline.checks.balance import BALANCE, balance_result
from cdc_pipeline.checks.contract import CONTRACT, contract_result, look_at
from cdc_pipeline.checks.dead_letters import NO_DEAD_LETTERS, dead_letters_result
from cdc_pipeline.checks.field_rules import FIELD_RULES, field_rules_result
from cdc_pipeline.checks.lost_offsets import NO_LOST_OFFSETS, lost_offsets_result
from cdc_pipeline.checks.watermarks import WATERMARKS_ADVANCE, watermarks_result
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decoded_tables import KINDS_OF, DecodedBatch, decode_batches
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline.spark.session import SparkLakehouse

_DESCRIPTIONS = {
    CHANGE_LOG: """One row is one row change, the same for all dialects: what (database, table, op, before, after),
when (commit_ts, a TSO; es and ts in ms), and which message said so (topic, partition, offset, batch).""",
    DDL_HISTORY: """One row is one DDL message: the statement, what it says, the schema that results, and what was done to
the mirror. `pending` until the mirrors reach its commit TSO; `not applied yet` where this version does not know how.""",
    WATERMARKS: """One row is one TiDB watermark record: all changes with commit_ts < watermark_ts were sent before it.""",
    DEAD_LETTERS: """One row is one record, or one row change, that broke a rule: the rule, the reason and the bytes.""",
}
_KINDS = {
    DDL_HISTORY: unified.DDL_STATEMENTS,
    WATERMARKS: (unified.WATERMARK,),
    DEAD_LETTERS: (unified.DEAD,),
}


def decoded_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    keys = {table: table_key(pipeline.name, table) for table in _DESCRIPTIONS}

    @dg.multi_asset(
        name=f"{pipeline.name}_decoded",
        specs=[
            dg.AssetSpec(
                key,
                deps=[table_key(pipeline.name, RAW)],
                group_name=pipeline.name,
                description=_DESCRIPTIONS[table],
                **face(pipeline),
                metadata={"dagster/uri": pipeline.paths.table(table)},
            )
            for table, key in keys.items()
        ],
        check_specs=[
            dg.AssetCheckSpec(BALANCE, asset=keys[CHANGE_LOG], blocking=True),
            dg.AssetCheckSpec(NO_LOST_OFFSETS, asset=keys[CHANGE_LOG]),
            dg.AssetCheckSpec(FIELD_RULES, asset=keys[CHANGE_LOG]),
            dg.AssetCheckSpec(WATERMARKS_ADVANCE, asset=keys[WATERMARKS]),
            dg.AssetCheckSpec(NO_DEAD_LETTERS, asset=keys[DEAD_LETTERS]),
            *(dg.AssetCheckSpec(CONTRACT, asset=key, blocking=True) for key in keys.values()),
        ],
    )
    def decoded(
        context: dg.AssetExecutionContext, spark: SparkLakehouse
    ) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        started = time.monotonic()
        with opened_lake(context, pipeline, spark):
            batches = decode_batches(spark.session, pipeline.paths, pipeline.dialect, claim_store=pipeline.claim_store)
            version = dg.DataVersion(str(newest_batch(spark.session, pipeline.paths)))
            dead = dead_letters_result(spark.session, pipeline.paths, keys[DEAD_LETTERS])
            lost = lost_offsets_result(spark.session, pipeline.paths, keys[CHANGE_LOG])
            balance = balance_result(spark.session, pipeline.paths, batches, keys[CHANGE_LOG])
            new = [batch.batch_id for batch in batches]
            watermarks = watermarks_result(spark.session, pipeline.paths, new, keys[WATERMARKS])
            states = {table: table_state(spark.session, pipeline.paths.table(table)) for table in keys}
            counts = {table: sum(_rows(batch, table) for batch in batches) for table in keys}
            looks = [look_at(spark.session, pipeline.paths, table, new, _most_rows(batches, table)) for table in keys]
            fields = field_rules_result(spark.session, pipeline.paths, looks, new, pipeline.dialect, keys[CHANGE_LOG])
        seconds = round(time.monotonic() - started, 1)
        for table, key in keys.items():
            context.log.info(f"{table}: {counts[table]} new")
            yield dg.MaterializeResult(
                asset_key=key,
                metadata={
                    "batches": new,
                    "new": counts[table],
                    "seconds": seconds,
                    **delta_columns(states[table]),
                    **decoded_lineage(pipeline.name, states[table]),
                },
                data_version=version,
            )
        yield balance
        yield lost
        yield dead
        yield watermarks
        yield fields
        for look in looks:
            yield contract_result(look, keys[look.table])

    return decoded


def _rows(batch: DecodedBatch, table: str) -> int:
    """The rows that the batch gave the table: a message of Canal may have several row changes."""
    return (
        batch.counts.row_changes if table == CHANGE_LOG else sum(batch.counts.by_kind[kind] for kind in _KINDS[table])
    )


def _most_rows(batches: list[DecodedBatch], table: str) -> int:
    """How many rows the batches gave the table, with statements beside DDL, of which some leave none."""
    if table == CHANGE_LOG:
        return sum(_rows(batch, table) for batch in batches)
    return sum(batch.counts.by_kind[kind] for batch in batches for kind in KINDS_OF[table])
