"""Contracts of TiCDC's messages (ticdc-canal-json, ticdc-facts)."""

# No `from __future__ import annotations`: Pandera evaluates the annotations.
import pandera.pyspark as pa
import pyspark.sql.types as T

from cdc_pipeline.contracts import canal_json
from cdc_pipeline.contracts.checks import rule
from cdc_pipeline.contracts.limits import MAX_CLOCK_SKEW_MS, NAME

KEY_RULE = "key_is_in_data"
_SENT = canal_json.SENT_OR_READ.format(f"{canal_json.SENT_MS}, IF(ts >= {canal_json.FIRST_MS}, ts, NULL)")


class TicdcDdl(canal_json.DdlMessage):
    """A DDL event of TiCDC."""

    database: T.StringType = pa.Field(
        nullable=True, str_length={"min_value": 0, "max_value": NAME}, metadata=canal_json.LIMIT
    )
    commit_ts: T.LongType = pa.Field(
        nullable=True, alias="commitTs", in_range=canal_json.TSO, metadata=canal_json.FIELDS
    )

    extension_has_commit_ts = canal_json.HAS_COMMIT_TS
    tso_is_es = canal_json.TSO_IS_ES


class TicdcWatermark(canal_json.CanalMessage):
    """A WATERMARK event: all changes with commitTs < watermarkTs were sent before it ("WATERMARK Event")."""

    is_ddl: T.BooleanType = pa.Field(alias="isDdl", eq=False, metadata=canal_json.RESOLUTION)
    type: T.StringType = pa.Field(isin=[canal_json.WATERMARK_TYPE], metadata=canal_json.RESOLUTION)
    watermark_ts: T.LongType = pa.Field(
        alias="watermarkTs", in_range=canal_json.TSO, metadata={"clause": canal_json.MARK_CLAUSE}
    )

    rows_are_of_row_changes = canal_json.NO_ROWS
    watermark_is_not_ahead = rule(
        "watermark_is_not_ahead",
        f"watermarkTs is at most {MAX_CLOCK_SKEW_MS // 60_000} minutes later than the record's timestamp, and than the "
        "clock of the pipeline (max_clock_skew_seconds); else all changes up to it would count as late",
        f"shiftright(watermarkTs, 18) - {_SENT} <= {MAX_CLOCK_SKEW_MS}",
        clause="WATERMARK Event: the TSO recorded when the Event is sent",
        field="watermarkTs",
        found="concat(watermarkTs, ', which is ', timestamp_millis(shiftright(watermarkTs, 18)), ' UTC, sent or read at ', "
        f"timestamp_millis({_SENT}))",
    )
    tso_is_es = canal_json.TSO_IS_ES


class TicdcRow(canal_json.RowChange):
    """A row change of TiCDC: exactly one row (ticdc-facts §1).

    A large message (ticdc-facts §7) with `claimCheckLocation` breaks `claim_is_resolved`, unless its file replaced it before
    the parse. One with `onlyHandleKey` breaks no rule: its row has the handle-key columns only.
    """

    commit_ts: T.LongType = pa.Field(
        nullable=True, alias="commitTs", in_range=canal_json.TSO, metadata=canal_json.FIELDS
    )

    extension_has_commit_ts = canal_json.HAS_COMMIT_TS
    tso_is_es = canal_json.TSO_IS_ES
    claim_is_resolved = rule(
        canal_json.CLAIM_RULE,
        "the complete row, in the message or in the claim-check file that it refers to",
        "claimCheckLocation IS NULL",
        clause="ticdc-facts §7",
    )
    data_has_one_row = rule(
        "data_has_one_row",
        "data has exactly one row, which has columns",
        "size(data) = 1 AND size(get(data, 0)) > 0",
        clause=canal_json.ROW_CLAUSE,
    )
    old_has_one_row = rule(
        "old_has_one_row",
        "an UPDATE has exactly one row in old",
        "coalesce(type <> 'UPDATE', true) OR (size(old) = 1 AND get(old, 0) IS NOT NULL)",
        clause="Event of Update Type",
    )
    old_of_delete_is_data = rule(
        "old_of_delete_is_data",
        "old of a DELETE is null, or the row in data (before v5.4)",
        "CASE WHEN type = 'DELETE' AND get(old, 0) IS NOT NULL THEN size(old) = 1 "
        "AND array_sort(map_entries(get(old, 0))) = array_sort(map_entries(get(data, 0))) ELSE true END",
        clause="Changes in the Old field of the Delete events",
    )
    key_is_in_data = rule(
        KEY_RULE,
        "each column of pkNames is in data, unless a column selector drops it",
        "CASE coalesce(size(pkNames), 0) WHEN 0 THEN true "
        "WHEN 1 THEN map_contains_key(get(data, 0), get(pkNames, 0)) "
        "ELSE size(array_except(pkNames, map_keys(get(data, 0)))) = 0 END",
        clause=canal_json.FIELDS["clause"],
        warn=True,
    )
