"""For each contract of messages and tables: rows that keep it, and rows that break each of its rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypeAlias

import pandera.pyspark as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StructField, StructType

from cdc_pipeline.contracts.canal import CanalDdl, CanalNote, CanalRow, CanalStatement
from cdc_pipeline.contracts.canal_json import FIRST_MS, FIRST_TSO, LAST_MS, LAST_TSO
from cdc_pipeline.contracts.dataworks import ROW_ID, DataWorksDdl, DataWorksNote, DataWorksRow
from cdc_pipeline.contracts.limits import (
    ANY_COLUMNS,
    ANY_NAME,
    COLUMNS,
    KEY_COLUMNS,
    MAX_CLOCK_SKEW_MS,
    NAME,
    STATEMENT,
)
from cdc_pipeline.contracts.rules import NOT_NULL, Rule
from cdc_pipeline.contracts.storage_files import TicdcSchemaFile, TicdcStorageCheckpoint
from cdc_pipeline.contracts.tables import ChangeRow, DdlRow, DeadLetter, WatermarkRow
from cdc_pipeline.contracts.ticdc import TicdcDdl, TicdcRow, TicdcWatermark

Fields: TypeAlias = dict[str, Any]
Model: TypeAlias = "type[pa.DataFrameModel[Any]]"
ES = 1_795_248_690_000
TSO = (ES << 18) + 7
LATER = ES + 1 << 18
_LARGE = 10_000
_MS = (FIRST_MS - 1, LAST_MS + 1, -ES, 0)
_WORDS = ("", "x", "insert", "INSERT ", "INSERT'")


def _at(ms: int | None) -> datetime | None:
    return None if ms is None else datetime.fromtimestamp(ms / 1000, timezone.utc)


@dataclass(frozen=True)
class Cases:
    """Rows of one model, given as differences from `base`.

    Each bad row breaks one rule and the rules that `also` lists for it. Cases for `not_null` are generated.
    """

    base: Fields
    """A row that keeps all rules."""
    good: tuple[Fields, ...] = ()
    """More rows that keep all rules."""
    wrong: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """Field → values that break its check."""
    broken: Mapping[str, tuple[Fields, ...]] = field(default_factory=dict)
    """Rule over several fields → rows that break it."""
    also: Mapping[str, set[str]] = field(default_factory=dict)
    """Rule → other rules that its rows break."""

    def bad_rows(self, rules: Sequence[Rule]) -> list[tuple[Fields, frozenset[str]]]:
        """Each bad row with the rules that it breaks."""
        of_fields = [rule for rule in rules if rule.name.startswith(f"{rule.field}.")]
        checks = {rule.field: rule.name for rule in of_fields if not rule.name.endswith(NOT_NULL)}
        needed = [rule for rule in rules if rule.name.endswith(NOT_NULL)]
        found = [(rule.name, {str(rule.field): None}) for rule in needed]
        found += [(str(checks[name]), {name: value}) for name, values in self.wrong.items() for value in values]
        found += [(name, change) for name, changes in self.broken.items() for change in changes]
        return [({**self.base, **change}, frozenset({name, *self.also.get(name, ())})) for name, change in found]

    def good_rows(self) -> list[Fields]:
        return [self.base, *({**self.base, **change} for change in self.good)]

    def values(self, name: str) -> list[Any]:
        """Valid and invalid values of a field, and null, without large ones."""
        changes = [self.base, *self.good, *(change for changes in self.broken.values() for change in changes)]
        found = [*(change[name] for change in changes if name in change), *self.wrong.get(name, ()), None]
        return [value for value in found if len(str(value)) < _LARGE]


def frame_of(spark: SparkSession, model: Model, rows: Sequence[Fields]) -> DataFrame:
    """The rows in one partition, because each check of Pandera is a Spark job."""
    columns = model.to_schema().columns
    schema = StructType([StructField(name, column.dtype.type) for name, column in columns.items()])
    values = [(place, *(row[name] for name in columns)) for place, row in enumerate(rows)]
    numbered = StructType([StructField("_case", IntegerType()), *schema.fields])
    return spark.createDataFrame(values, numbered).coalesce(1).localCheckpoint()


_ROW = {"id": "1", "v": None}
_OLD = {"id": "0"}
_NO_ROWS: tuple[list[Any] | None, ...] = (None, [])
_EMPTY_ROWS: tuple[list[Any] | None, ...] = ([{}], [None])
_LONG_NAME = "n" * (NAME + 1)
_WIDEST = {f"c{place}": "1" for place in range(COLUMNS)}
_TOO_WIDE = {**_WIDEST, "one more": "1"}
_KEYS = [f"k{place}" for place in range(KEY_COLUMNS + 1)]

# ---- Canal-JSON

_MESSAGE: Fields = {
    **dict.fromkeys(("database", "table", "pkNames", "type", "ts", "sql", "data", "old", "commitTs", "watermarkTs")),
    **dict.fromkeys(("onlyHandleKey", "claimCheckLocation", "timestamp", "readBy")),
    "hasTidb": False,
    "isDdl": False,
    "es": ES,
    "partialJson": False,
    "noKey": False,
}
_TSOS = (0, -1, -TSO, LAST_TSO + 1)
_TIMES = {"es": _MS}
_TICDC_TIMES = {"es": _MS, "commitTs": _TSOS}
_TS: dict[str, tuple[Fields, ...]] = {"ts_is_ms": tuple({"ts": ms} for ms in _MS if ms)}
_INSERT = {**_MESSAGE, "database": "d", "table": "t", "pkNames": ["id"], "type": "INSERT", "data": [_ROW], "sql": ""}
_ROW_FIELDS = {
    "database": ("", _LONG_NAME),
    "table": ("", _LONG_NAME),
    "isDdl": (True,),
    "type": (*_WORDS, "QUERY"),
    **_TIMES,
}
_ROW_RULES: dict[str, tuple[Fields, ...]] = {
    "sql_is_of_ddl": ({"sql": "x"}, {"sql": " "}),
    "old_is_of_update": ({"old": [_OLD]}, {"old": [{}]}, {"old": [None, _OLD]}),
    "key_is_short": ({"pkNames": _KEYS, "data": [dict.fromkeys(_KEYS, "1")]},),
    "columns_are_few": (
        {"data": [_TOO_WIDE], "pkNames": None},
        {"type": "UPDATE", "data": [_ROW], "old": [_TOO_WIDE]},
    ),
    "column_names_are_short": (
        {"data": [{"id": "1", _LONG_NAME: "1"}]},
        {"type": "UPDATE", "data": [_ROW], "old": [{_LONG_NAME: "1"}]},
    ),
    **_TS,
}
_OTHER_TSO: tuple[Fields, ...] = (
    *({"commitTs": LATER}, {"commitTs": ES}, {"commitTs": 1}),
    *({"watermarkTs": LATER}, {"commitTs": LATER, "watermarkTs": TSO}),
)
_TICDC_ROW = Cases(
    _INSERT,
    good=(
        {"ts": ES, "commitTs": TSO, "sql": None, "old": [], "hasTidb": True},
        {"ts": 0, "old": [None]},
        {"ts": 0, "type": "DELETE", "old": [{"v": None, "id": "1"}]},
        {"data": [{**_ROW, "n" * NAME: "1"}], "database": "d" * NAME, "table": "t" * NAME},
        {"data": [_WIDEST], "pkNames": ["c7"]},
        {"data": [{"id": "1", "``" * NAME: "1"}]},
        {"es": FIRST_MS, "ts": LAST_MS},
        {"es": LAST_MS, "ts": FIRST_MS},
        {"type": "UPDATE", "old": [_OLD]},
        {"type": "UPDATE", "old": [{}], "pkNames": []},
        {"type": "DELETE", "old": [_ROW], "pkNames": ["v", "id"], "onlyHandleKey": False},
        {"type": "DELETE", "old": [None]},
        {"type": "DELETE", "pkNames": None, "commitTs": TSO, "watermarkTs": LATER},
        {"onlyHandleKey": True, "commitTs": TSO},
        {"type": "UPDATE", "old": [_OLD], "onlyHandleKey": True},
    ),
    wrong={**_ROW_FIELDS, **_TICDC_TIMES},
    broken={
        **_ROW_RULES,
        "tso_is_es": _OTHER_TSO,
        "extension_has_commit_ts": ({"hasTidb": True}, {"hasTidb": True, "watermarkTs": TSO}),
        "old_of_delete_is_data": tuple(
            {"type": "DELETE", "old": old} for old in ([_OLD], [{}], [_ROW, _ROW], [{"id": "1"}], [{**_ROW, "w": None}])
        ),
        "claim_is_resolved": (
            *({"claimCheckLocation": text} for text in ("s3://b/1.json", "", "x")),
            {"claimCheckLocation": "s3://b/1.json", "onlyHandleKey": True},
        ),
        "data_has_one_row": tuple(
            {"data": data, "pkNames": None, "type": kind}
            for kind in ("INSERT", "DELETE")
            for data in (*_NO_ROWS, *_EMPTY_ROWS, [_ROW, _ROW])
        ),
        "old_has_one_row": tuple({"type": "UPDATE", "old": old} for old in (*_NO_ROWS, [None], [_OLD, _OLD])),
        "key_is_in_data": tuple({"pkNames": names} for names in (["x"], ["ID"], ["id", "x"], [None], ["id", None])),
    },
    also={"commitTs.in_range": {"tso_is_es"}},
)
_CANAL_ROW = Cases(
    _INSERT,
    good=(
        {"ts": ES, "data": [_ROW, _ROW], "pkNames": ["stale"]},
        {"ts": 0, "data": [_WIDEST, _WIDEST], "pkNames": None},
        {"type": "UPDATE", "old": [_OLD]},
        {"type": "UPDATE", "data": [_ROW, _ROW], "old": [_OLD, {"v": None}], "pkNames": None},
        {"type": "UPDATE", "old": [_OLD], "pkNames": None, "noKey": True},
        {"type": "DELETE"},
        {"type": "DELETE", "data": None, "old": [_OLD, _OLD]},
        {"type": "DELETE", "data": [], "old": [_OLD]},
    ),
    wrong=_ROW_FIELDS,
    broken={
        **_ROW_RULES,
        "type_is_of_canal": ({"type": "INIT"}, {"type": "INIT", "data": [_ROW, _ROW]}),
        "data_has_rows": (
            *({"data": data} for data in (*_NO_ROWS, *_EMPTY_ROWS, [_ROW, {}], [None, _ROW])),
            *({"type": "DELETE", "data": data, "old": None} for data in _NO_ROWS),
            *({"type": "DELETE", "data": None, "old": old} for old in ([], *_EMPTY_ROWS, [_OLD, None])),
        ),
        "old_has_the_rows_of_data": (
            *({"type": "UPDATE", "old": old, "pkNames": names} for old in _NO_ROWS for names in (["id"], [], None)),
            *({"type": "UPDATE", "old": old, "pkNames": None} for old in ([{}], [None])),
            {"type": "UPDATE", "data": [_ROW, _ROW], "old": [{"v": "a"}]},
            {"type": "UPDATE", "old": [{"v": "a"}, {}]},
            {"type": "UPDATE", "data": [_ROW, _ROW], "old": [_OLD, {}]},
            {"type": "UPDATE", "data": [_ROW, _ROW], "old": [None, _OLD]},
        ),
        "old_keeps_the_key": (
            {"type": "UPDATE", "old": [_OLD, _OLD]},
            {"type": "UPDATE", "data": [_ROW, _ROW], "old": [_OLD]},
            *({"type": "UPDATE", "old": [{"v": "a"}, None], "pkNames": names} for names in ([], None, ["stale"])),
        ),
        "values_are_whole": ({"partialJson": True},),
        "image_has_key": (
            *({"type": "UPDATE", "old": old, "pkNames": None, "noKey": True} for old in (*_NO_ROWS, *_EMPTY_ROWS)),
            {"type": "UPDATE", "data": [_ROW, _ROW], "old": [_OLD, {}], "pkNames": None, "noKey": True},
        ),
    },
    also={"old_keeps_the_key": {"old_has_the_rows_of_data"}, "image_has_key": {"old_has_the_rows_of_data"}},
)
_DDL = {**_MESSAGE, "isDdl": True, "type": "ALTER", "sql": "ALTER TABLE t ADD c INT"}
_DDL_FIELDS = {"isDdl": (False,), "sql": ("", "x" * (STATEMENT + 1)), "table": (_LONG_NAME,), **_TIMES}
_DDL_RULES: dict[str, tuple[Fields, ...]] = {
    "rows_are_of_row_changes": ({"data": [_ROW]}, {"old": [_OLD]}, {"data": [{}, _ROW]}),
    "type_is_of_ddl": tuple({"type": word} for word in (None, "INSERT", "alter", "")),
    **_TS,
}
_NAMELESS: Fields = {"database": "", "table": "", "type": "QUERY"}

# ---- TiCDC's storage sink

_STORAGE_FILE: Fields = dict.fromkeys(
    (
        *("definedDatabase", "definedTable", "tableVersion", "statement", "actionType", "definedColumns"),
        *("checkpointTs", "timestamp", "readBy"),
    )
)
_FILE_TSOS = (FIRST_TSO - 1, LAST_TSO + 1, ES, 0, -TSO)
_DEFINED = {"ColumnName": "id", "ColumnType": "INT"}
_NOTHING_DEFINED: tuple[Fields, ...] = (
    *({"statement": "", "definedColumns": columns} for columns in (*_NO_ROWS, *_EMPTY_ROWS, [_DEFINED, {}])),
    *({"statement": "", "definedColumns": [{**_DEFINED, name: text}]} for name in _DEFINED for text in ("", None)),
    *({"statement": "", "definedTable": name, "definedColumns": [_DEFINED]} for name in ("", None)),
)

# ---- DataWorks

_DELETE: Fields = {
    **dict.fromkeys(("schemaName", "after", "systemTime", "ddlText", "dbType")),
    "dbName": "d",
    "tableName": "t",
    "primaryKey": ["id"],
    "op": "DELETE",
    "before": _ROW,
    "sequenceId": "17",
    "eventTime": ES,
}
_ANY_LONG_NAME = "n" * (ANY_NAME + 1)
_ANY_WIDEST = {f"c{place}": "1" for place in range(ANY_COLUMNS)}
_DATAWORKS_FIELDS = {
    "schemaName": (_ANY_LONG_NAME,),
    "op": (*_WORDS, "UPDATE", "delete"),
    "eventTime": _MS,
    "systemTime": _MS,
}
_NO_NUMBERS: tuple[Fields, ...] = tuple(
    {"sequenceId": text} for text in ("", "x", "-1", "+1", "1.5", "1e3", " 1", "1 ", str(2**63), "1" * 20, "١")
)
_DATAWORKS_ROW = Cases(
    _DELETE,
    good=(
        {"op": "INSERT", "before": None, "after": _ROW, "systemTime": ES, "sequenceId": None},
        {"op": "UPDATE_BEFOR", "sequenceId": str(2**63 - 1), "primaryKey": None},
        {"op": "UPDATE_AFTER", "before": None, "after": _ROW, "sequenceId": "0"},
        {"op": "UPDATE_AFTER", "after": _ROW, "schemaName": "s", "primaryKey": []},
        {"op": "UPDATE_AFTER", "before": {}, "after": _ROW, "primaryKey": ["v", "id"]},
        {"before": {**_ROW, ROW_ID: "1"}, "primaryKey": [ROW_ID], "ddlText": "", "dbType": "MySQL"},
        {"before": _ANY_WIDEST, "primaryKey": None, "dbName": "d" * ANY_NAME},
    ),
    wrong={**_DATAWORKS_FIELDS, "dbName": ("", _ANY_LONG_NAME), "tableName": ("", _ANY_LONG_NAME)},
    broken={
        "sequence_is_number": _NO_NUMBERS,
        "images_fit_op": tuple(
            {"op": op, "before": before, "after": after, "primaryKey": None}
            for op, before, after in (
                *(
                    ("DELETE", {ROW_ID: "1"}, None),
                    ("INSERT", None, {ROW_ID: "1"}),
                    ("UPDATE_AFTER", _ROW, {ROW_ID: "1"}),
                ),
                *(("DELETE", None, None), ("DELETE", {}, None), ("DELETE", None, _ROW), ("DELETE", _ROW, {})),
                *(("UPDATE_BEFOR", None, None), ("UPDATE_BEFOR", {}, None), ("UPDATE_BEFOR", _ROW, _ROW)),
                *(("INSERT", None, None), ("INSERT", None, {}), ("INSERT", {}, _ROW), ("INSERT", _ROW, None)),
                *(("UPDATE_AFTER", None, None), ("UPDATE_AFTER", _ROW, None), ("UPDATE_AFTER", _ROW, {})),
            )
        ),
        "ddl_is_of_ddl": ({"ddlText": "DROP TABLE t"},),
        "primary_key_is_short": ({"primaryKey": _KEYS, "before": dict.fromkeys(_KEYS, "1")},),
        "image_has_few_columns": ({"before": {**_ANY_WIDEST, "x": "1"}, "primaryKey": None},),
        "names_of_image_are_short": ({"before": {"id": "1", _ANY_LONG_NAME: "1"}},),
        "key_is_in_image": tuple({"primaryKey": names} for names in (["x"], ["ID"], ["id", "x"], [None], ["id", None])),
    },
)

# ---- tables

_PLACE: Fields = {"batch_id": 1, "topic": "t", "partition": 0, "offset": 0, "timestamp": _at(ES)}
_NO_TIME: dict[str, tuple[Fields, ...]] = {"timestamp_is_known": ({"timestamp": None},)}
_TIMED: Fields = {**_PLACE, "dialect": "ticdc", "commit_ts": TSO, "exact_ts": False, "es": ES, "ts": None}
_TIMED_FIELDS = {"offset": (-1,), "dialect": ("", "TiCDC", "maxwell"), "commit_ts": (-1,), "es": _MS, "ts": _MS}
_OTHER_EXACT_TSO: tuple[Fields, ...] = tuple(
    {"exact_ts": True, "commit_ts": commit_ts} for commit_ts in (0, ES, LATER, TSO - (1 << 18))
)
_CHANGE: Fields = {
    **_TIMED,
    "row": 0,
    "database": "d",
    "table": "t",
    "op": "UPDATE",
    "message_id": None,
    "key_names": ["id"],
    "only_key": False,
    "before": _OLD,
    "after": _ROW,
}

CASES: dict[Model, Cases] = {
    TicdcRow: _TICDC_ROW,
    TicdcDdl: Cases(
        _DDL,
        good=({"commitTs": TSO, "database": "d", "hasTidb": True}, _NAMELESS, {"ts": 0, "data": [], "old": [None]}),
        wrong={**_DDL_FIELDS, **_TICDC_TIMES, "database": (_LONG_NAME,)},
        broken={**_DDL_RULES, "tso_is_es": _OTHER_TSO, "extension_has_commit_ts": ({"hasTidb": True},)},
        also={"commitTs.in_range": {"tso_is_es"}},
    ),
    TicdcWatermark: Cases(
        {**_MESSAGE, "type": "TIDB_WATERMARK", "watermarkTs": TSO},
        good=(
            {"database": "", "table": "", "hasTidb": True},
            {"es": FIRST_MS, "watermarkTs": FIRST_MS << 18, "ts": LAST_MS},
            {"timestamp": _at(ES - MAX_CLOCK_SKEW_MS), "ts": 0},
            {"timestamp": _at(ES), "ts": ES - 10 * MAX_CLOCK_SKEW_MS},
            # no Kafka timestamp: `ts` of the message counts
            {"timestamp": _at(-1), "ts": ES - MAX_CLOCK_SKEW_MS},
            {"timestamp": _at(ES // 1000)},
            {"timestamp": _at(ES), "readBy": [ES - MAX_CLOCK_SKEW_MS]},
        ),
        wrong={"isDdl": (True,), "type": (*_WORDS, "WATERMARK"), **_TIMES, "watermarkTs": _TSOS},
        broken={
            **_TS,
            "rows_are_of_row_changes": ({"data": [_ROW]}, {"old": [_OLD]}),
            "watermark_is_not_ahead": (
                *({"timestamp": _at(ES - MAX_CLOCK_SKEW_MS - 1), "ts": ts} for ts in (None, 0, ES)),
                *({"timestamp": at, "readBy": [ES - MAX_CLOCK_SKEW_MS - 1]} for at in (None, _at(-1), _at(ES))),
                *({"timestamp": _at(ms), "ts": ES - MAX_CLOCK_SKEW_MS - 1} for ms in (None, -1, 0, ES // 1000)),
            ),
            "tso_is_es": ({"watermarkTs": LATER}, {"watermarkTs": 1}, {"watermarkTs": ES}, {"commitTs": LATER}),
        },
        also={"es.in_range": {"tso_is_es"}, "watermarkTs.not_null": {"watermark_is_not_ahead"}}
        | {"watermarkTs.in_range": {"tso_is_es"}},
    ),
    TicdcSchemaFile: Cases(
        {
            **_STORAGE_FILE,
            "definedDatabase": "d",
            "definedTable": "t",
            "tableVersion": TSO,
            "statement": "DROP TABLE t",
            "actionType": 4,
        },
        good=(
            {"definedTable": "", "tableVersion": FIRST_TSO, "actionType": 0},
            {"definedTable": None, "tableVersion": LAST_TSO, "definedColumns": [{}]},
            {"statement": "", "definedColumns": [_DEFINED, {**_DEFINED, "ColumnIsPk": "true"}], "checkpointTs": 0},
        ),
        wrong={
            "definedDatabase": ("", _LONG_NAME),
            "definedTable": (_LONG_NAME,),
            "statement": ("x" * (STATEMENT + 1),),
            "tableVersion": _FILE_TSOS,
            "actionType": (-1,),
        },
        broken={
            "defines_something": _NOTHING_DEFINED,
            "defined_columns_are_few": ({"definedColumns": [_DEFINED] * (COLUMNS + 1)},),
        },
        also={"statement.not_null": {"defines_something"}},
    ),
    TicdcStorageCheckpoint: Cases(
        {**_STORAGE_FILE, "checkpointTs": TSO},
        good=(
            {"checkpointTs": FIRST_TSO},
            {"checkpointTs": LAST_TSO, "definedDatabase": "", "actionType": -1},
            *({"timestamp": _at(ms)} for ms in (0, ES // 1000, ES, ES - MAX_CLOCK_SKEW_MS, LAST_MS)),
        ),
        broken={
            "checkpoint_is_not_ahead": (
                {"timestamp": _at(ES - MAX_CLOCK_SKEW_MS - 1)},
                {"timestamp": _at(FIRST_MS)},
                {"timestamp": _at(ES), "readBy": [ES - MAX_CLOCK_SKEW_MS - 1]},
            )
        },
        also={"checkpointTs.not_null": {"checkpoint_is_not_ahead"}},
        wrong={"checkpointTs": _FILE_TSOS},
    ),
    CanalRow: _CANAL_ROW,
    CanalDdl: Cases(
        _DDL,
        good=(_NAMELESS, {"database": "d", "commitTs": LATER}, {"database": "`" + "``" * NAME + "`"}),
        wrong={name: values for name, values in _DDL_FIELDS.items() if name != "isDdl"},
        broken={
            **_DDL_RULES,
            "is_ddl_of_ddl": ({"isDdl": False},),
            "database_is_short": ({"database": _LONG_NAME}, {"database": f"`{'``' * NAME}n`"}),
        },
    ),
    CanalStatement: Cases(
        {**_MESSAGE, "table": "t", "type": "DELETE", "sql": "DELETE FROM t"},
        good=({"type": "INSERT"}, {"type": "UPDATE", "database": "d"}),
        wrong={"table": ("", _LONG_NAME), "type": (*_WORDS, "QUERY"), "sql": ("",), **_TIMES},
        broken=_TS,
    ),
    CanalNote: Cases(
        {**_MESSAGE, "type": "QUERY"},
        good=({"type": "XACOMMIT", "isDdl": True}, {"type": "XAROLLBACK"}),
        wrong={"type": (*_WORDS, "XABEGIN"), **_TIMES},
        broken={**_TS, "rows_are_of_row_changes": ({"data": [_ROW]}, {"old": [_OLD]})},
    ),
    DataWorksRow: _DATAWORKS_ROW,
    DataWorksDdl: Cases(
        {**_DELETE, "op": "ALTER", "ddlText": "ADD COLUMN c INT", "before": None},
        good=tuple({"op": op} for op in ("CREATE", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")),
        wrong={
            **_DATAWORKS_FIELDS,
            "ddlText": ("", "x" * (STATEMENT + 1)),
            "dbName": (_ANY_LONG_NAME,),
            "tableName": (_ANY_LONG_NAME,),
        },
        broken={
            "sequence_is_number": _NO_NUMBERS,
            "images_are_of_row_changes": ({"before": _ROW}, {"after": _ROW}, {"before": {}, "after": _ROW}),
        },
    ),
    DataWorksNote: Cases(
        {**_DELETE, "op": "MHEARTBEAT", "before": None, "dbName": None, "tableName": None, "sequenceId": "x"},
        good=tuple({"op": op} for op in ("TRANSACTION_BEGIN", "TRANSACTION_END", "GTID", "XACOMMIT", "XAROLLBACK")),
        wrong=_DATAWORKS_FIELDS,
        broken={"images_are_of_row_changes": ({"before": _ROW}, {"after": _ROW})},
    ),
    ChangeRow: Cases(
        _CHANGE,
        good=(
            {"exact_ts": True, "batch_id": None, "key_names": None, "ts": ES},
            {"op": "INSERT", "before": None, "key_names": []},
            {"op": "DELETE", "after": None, "key_names": ["id"]},
            {"op": "UPDATE", "before": {}},
            {"only_key": True},
            {"only_key": True, "op": "INSERT", "before": None, "key_names": []},
            {"dialect": "canal", "key_names": ["stale"], "message_id": 7},
            {"dialect": "dataworks", "before": None},
            {"dialect": "canal", "op": "INSERT", "before": None},
            {"dialect": "dataworks", "after": None, "commit_ts": 0},
        ),
        wrong={**_TIMED_FIELDS, "row": (-1,), "database": ("",), "table": ("",), "op": (*_WORDS, "UPDATE_AFTER")},
        broken={
            **_NO_TIME,
            "tso_is_es": _OTHER_EXACT_TSO,
            "images_fit_op": tuple(
                {"op": op, "before": before, "after": after, "key_names": None, "dialect": dialect}
                for op, before, after, dialect in (
                    *(("INSERT", None, None, "ticdc"), ("INSERT", None, {}, "canal"), ("INSERT", {}, _ROW, "ticdc")),
                    *(("DELETE", None, None, "ticdc"), ("DELETE", {}, None, "canal"), ("DELETE", _ROW, {}, "ticdc")),
                    *(("UPDATE", None, _ROW, "ticdc"), ("UPDATE", _ROW, None, "canal"), ("UPDATE", _ROW, {}, "canal")),
                    *(("UPDATE", None, None, "dataworks"), ("UPDATE", None, {}, "dataworks")),
                )
            ),
            "update_has_before": ({"dialect": "canal", "before": None},),
            "only_key_is_of_ticdc": (
                {"only_key": True, "op": "DELETE", "after": None},
                *({"only_key": True, "dialect": dialect} for dialect in ("canal", "dataworks")),
            ),
            "key_is_in_row": tuple({"key_names": names} for names in (["x"], ["ID"], ["id", "x"], [None])),
        },
    ),
    DdlRow: Cases(
        {**_TIMED, "kind": "ddl", "sql": "DROP TABLE t"},
        good=(
            {"kind": "statement", "exact_ts": True, "ts": ES},
            {"kind": "other_ddl"},
            {"kind": "xa", "sql": None},
            {"kind": "xa", "sql": ""},
        ),
        wrong={**_TIMED_FIELDS, "kind": ("", "DDL", "row_change")},
        broken={
            **_NO_TIME,
            "tso_is_es": _OTHER_EXACT_TSO,
            "ddl_has_statement": ({"sql": None}, {"sql": ""}, {"kind": "statement", "sql": None}),
        },
    ),
    WatermarkRow: Cases(
        {**_PLACE, "watermark_ts": TSO, "es": ES},
        good=({"batch_id": None, "offset": 2**62}, {"watermark_ts": LAST_MS << 18, "es": LAST_MS}),
        wrong={"offset": (-1,), "watermark_ts": (-1,), "es": _MS},
        broken={**_NO_TIME, "tso_is_es": ({"watermark_ts": LATER}, {"watermark_ts": 0}, {"watermark_ts": ES})},
        also={name: {"tso_is_es"} for name in (*("watermark_ts.not_null", "es.not_null", "es.in_range"),)}
        | {"watermark_ts.greater_than_or_equal_to": {"tso_is_es"}},
    ),
    DeadLetter: Cases(
        {**_PLACE, "rule": "value_is_utf8", "reason": "expected: the value is UTF-8"},
        good=({"batch_id": None},),
        wrong={"offset": (-1,), "rule": ("",), "reason": ("",)},
        broken=_NO_TIME,
    ),
}
