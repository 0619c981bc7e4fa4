"""Rows for the contracts of complete messages, as in `cases`. Each model has cases for its own rules only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_pipeline.contracts import java_types
from cdc_pipeline.contracts.canal import CanalDdl, CanalNote, CanalRow, CanalStatement
from cdc_pipeline.contracts.canal_json import FIRST_MS, LAST_MS
from cdc_pipeline.contracts.dataworks import ROW_ID, DataWorksDdl, DataWorksNote, DataWorksRow
from cdc_pipeline.contracts.sent_canal_json import (
    CanalDdlSent,
    CanalNoteSent,
    CanalRowSent,
    CanalStatementSent,
    TicdcDdlSent,
    TicdcRowSent,
    TicdcWatermarkSent,
)
from cdc_pipeline.contracts.sent_dataworks import DataWorksDdlSent, DataWorksNoteSent, DataWorksRowSent
from cdc_pipeline.contracts.ticdc import TicdcDdl, TicdcRow, TicdcWatermark
from cdc_pipeline_tests.contracts.cases import CASES, TSO, Cases, Fields, Model

SENT_OF: dict[Model, Model] = {
    TicdcRowSent: TicdcRow,
    TicdcDdlSent: TicdcDdl,
    TicdcWatermarkSent: TicdcWatermark,
    CanalRowSent: CanalRow,
    CanalDdlSent: CanalDdl,
    CanalStatementSent: CanalStatement,
    CanalNoteSent: CanalNote,
    DataWorksRowSent: DataWorksRow,
    DataWorksDdlSent: DataWorksDdl,
    DataWorksNoteSent: DataWorksNote,
}
"""Contract of the complete message → contract of the fields that decoding reads."""

# ---- Canal-JSON

_NO_TYPES: Fields = dict.fromkeys(("mysqlType", "sqlType", "valueKinds"))
_TYPES: Fields = {
    "mysqlType": {"id": "int", "v": "varchar"},
    "sqlType": {"id": 4, "v": 12},
    "valueKinds": {"id": "STRING", "v": "VOID"},
}
_TYPED: dict[str, tuple[Fields, ...]] = {
    "types_are_of_rows": ({"pkNames": []}, {"mysqlType": {}}, {"sqlType": {"id": 4}}),
}


def _column(mysql_type: str, value: str | None, code: int, **more: Any) -> Fields:
    """A row of one column."""
    kinds = {"c": "VOID" if value is None else "STRING"}
    row = {"data": [{"c": value}], "pkNames": [], "mysqlType": {"c": mysql_type}, "sqlType": {"c": code}}
    return {**row, "valueKinds": kinds, **more}


# ticdc-canal-json "Integer types": type, smallest and largest value of a range, code
INTEGERS = (
    ("tinyint", "-128", "127", -6),
    ("tinyint unsigned", "0", "127", -6),
    ("tinyint unsigned", "128", "255", 5),
    ("smallint", "-32768", "32767", 5),
    ("smallint unsigned", "0", "32767", 5),
    ("smallint unsigned", "32768", "65535", 4),
    ("mediumint", "-8388608", "8388607", 4),
    ("mediumint unsigned", "0", "8388607", 4),
    ("mediumint unsigned", "8388608", "16777215", 4),
    ("int", "-2147483648", "2147483647", 4),
    ("int unsigned", "0", "2147483647", 4),
    ("int unsigned", "2147483648", "4294967295", -5),
    ("bigint", "-9223372036854775808", "9223372036854775807", -5),
    ("bigint unsigned", "0", "9223372036854775807", -5),
    ("bigint unsigned", "9223372036854775808", "18446744073709551615", 3),
)
# ticdc-canal-json "SQL Type field"
OTHERS = {
    "boolean": -6,
    "float": 7,
    "double": 8,
    "decimal": 3,
    "char": 1,
    "varchar": 12,
    "binary": 2004,
    "varbinary": 2004,
    "tinytext": 2005,
    "text": 2005,
    "mediumtext": 2005,
    "longtext": 2005,
    "tinyblob": 2004,
    "blob": 2004,
    "mediumblob": 2004,
    "longblob": 2004,
    "date": 91,
    "datetime": 93,
    "timestamp": 93,
    "time": 92,
    "year": 12,
    "enum": 4,
    "set": -7,
    "bit": -7,
    "json": 12,
    "vector": 12,
}
_WRITTEN = {"decimal": "DECIMAL(12,2) unsigned", "enum": "enum('a unsigned','b')", "char": " Char(9)"}
_RIGHT_CODES = (
    *(_column(kind, value, code) for kind, low, high, code in INTEGERS for value in (low, high)),
    *(_column(kind, None, code) for kind, low, _, code in INTEGERS if low == "0" or low.startswith("-")),
    *(_column(_WRITTEN.get(kind, kind), "1", code) for kind, code in OTHERS.items()),
    *(_column(kind, "1", code, ts=0) for kind, code in java_types.CODES_BEFORE_5_4.items()),
    _column("a type of the future", "1", 77),
    _column("int(10) unsigned zerofill", "42", 4),
)
_WRONG_CODES = (
    _column("tinyint unsigned", "128", -6),
    _column("tinyint unsigned", "127", 5),
    _column("tinyint", "127", 5),
    _column("tinyint", "127", -6, ts=0),
    _column("int", "1", -5),
    _column("bigint unsigned", "9223372036854775808", -5),
    _column("varchar", "1", 1),
    _column("json", "1", 1111),
    _column("text", "1", 12),
)
_ROW_RULES: Mapping[str, Sequence[Fields]] = {
    "mysql_type_is_map": ({"mysqlType": None}, {"mysqlType": {"id": "int", "v": None}}),
    "mysql_type_fits_data": (
        {"mysqlType": {"id": "int"}, "sqlType": {"id": 4, "v": 12}},
        {"mysqlType": {**_TYPES["mysqlType"], "w": "int"}},
    ),
    "sql_type_fits_data": (
        *({"sqlType": codes} for codes in (None, {}, {"id": 4}, {"id": 4, "v": 12, "w": 4}, {"id": 4, "w": 12})),
        {"sqlType": {"id": 4, "v": None}},
    ),
    "old_is_of_data": ({"type": "UPDATE", "old": [{"w": "1"}]}, {"type": "UPDATE", "old": [{"id": "1", "w": "1"}]}),
    "values_are_texts": tuple(
        {"valueKinds": {"id": kind, "v": "VOID"}} for kind in ("BIGINT", "BOOLEAN", "DECIMAL(2,1)", "OBJECT<a: VOID>")
    ),
}

# ---- DataWorks

_COLUMNS = [{"name": "id", "type": "LONG"}, {"name": "v", "type": "STRING"}]
_SOURCE: Fields = {
    "dataColumn": _COLUMNS,
    "dbType": "MySQL",
    "dbVersion": None,
    "scn": None,
    "checkpointTime": FIRST_MS,
    "ddlMeta": None,
    "version": "0.0.1",
    "valueKinds": {"id": "BIGINT", "v": "VOID"},
}
_SENT_RULES: dict[str, tuple[Fields, ...]] = {
    "checkpoint_time_is_ms": tuple({"checkpointTime": ms} for ms in (0, FIRST_MS - 1, LAST_MS + 1)),
    "version_is_there": ({"version": None}, {"version": ""}),
}
_TABLE_RULES: dict[str, tuple[Fields, ...]] = {
    **_SENT_RULES,
    "db_type_is_there": ({"dbType": None}, {"dbType": ""}),
    "sequence_is_there": ({"sequenceId": None},),
    "scn_is_of_oracle": ({"scn": "17"}, {"scn": "17", "dbType": "PostgreSQL"}),
}


def _value(kind: str, json_type: str) -> Fields:
    columns = [{"name": "id", "type": kind}, {"name": "v", "type": "STRING"}]
    return {"dataColumn": columns, "valueKinds": {"id": json_type, "v": "VOID"}}


# value type → the JSON types of its values, and others
_JSON_TYPES = {
    "BOOLEAN": (("BOOLEAN",), ("BIGINT", "STRING")),
    "DOUBLE": (("DOUBLE", "BIGINT", "DECIMAL(3,1)"), ("STRING", "BOOLEAN")),
    "LONG": (("BIGINT", "DECIMAL(20,0)"), ("DOUBLE", "DECIMAL(3,1)", "STRING")),
    "DATE": (("BIGINT",), ("STRING", "DOUBLE")),
    "BYTES": (("STRING",), ("BIGINT", "OBJECT<a: VOID>")),
    "STRING": (("STRING",), ("BIGINT", "BOOLEAN", "ARRAY<BIGINT>")),
}


def _of(model: Model, sent: Fields, good: Sequence[Fields], broken: Mapping[str, Sequence[Fields]]) -> Cases:
    base = CASES[SENT_OF[model]].base
    return Cases({**base, **sent}, tuple(good), broken={name: tuple(rows) for name, rows in broken.items()})


_TICDC: Fields = {"id": 0}
_TICDC_RULES: dict[str, tuple[Fields, ...]] = {
    "id_is_zero": ({"id": 1}, {"id": None}),
    "watermark_ts_is_of_watermarks": ({"watermarkTs": TSO},),
}
SENT_CASES: dict[Model, Cases] = {
    TicdcRowSent: _of(
        TicdcRowSent,
        {**_TICDC, **_TYPES},
        [*_RIGHT_CODES, {"type": "UPDATE", "old": [{"id": "0"}]}, {"pkNames": []}],
        {
            **_ROW_RULES,
            **_TICDC_RULES,
            "pk_names_is_list": ({"pkNames": None},),
            "sql_type_is_of_mysql_type": _WRONG_CODES,
        },
    ),
    TicdcDdlSent: _of(TicdcDdlSent, {**_TICDC, **_NO_TYPES}, [], {**_TYPED, **_TICDC_RULES}),
    TicdcWatermarkSent: _of(
        TicdcWatermarkSent,
        {**_TICDC, **_NO_TYPES},
        [{"database": "", "table": "", "sql": ""}],
        {
            **_TYPED,
            "id_is_zero": _TICDC_RULES["id_is_zero"],
            "watermark_is_of_no_table": ({"database": "d"}, {"table": "t"}, {"sql": "x"}),
            "watermark_has_its_ts_alone": ({"commitTs": TSO},),
        },
    ),
    CanalRowSent: _of(
        CanalRowSent,
        {"id": 7, **_TYPES},
        [
            {"type": "DELETE", "data": None, "old": [{"id": "1", "v": None}], "valueKinds": None},
            *(_column(kind, "1", code) for kind, codes in java_types.CANAL_CODES.items() for code in codes),
            *(_column(kind, "1", code) for kind, _, _, code in INTEGERS),
            _column("SET('a')", "1", 2004),
            _column("bigint unsigned", "1", 3),
        ],
        {
            **_ROW_RULES,
            "sql_type_is_of_mysql_type": (
                _column("INT", "1", 12),
                _column("varchar(9)", "1", 1),
                _column("set", "1", 4),
            ),
        },
    ),
    CanalDdlSent: _of(CanalDdlSent, {"id": 7, **_NO_TYPES}, [], _TYPED),
    CanalStatementSent: _of(CanalStatementSent, {"id": 7, **_NO_TYPES}, [], _TYPED),
    CanalNoteSent: _of(CanalNoteSent, {"id": 7, **_NO_TYPES}, [], _TYPED),
    DataWorksRowSent: _of(
        DataWorksRowSent,
        _SOURCE,
        [
            {"checkpointTime": None, "dbVersion": "8.0"},
            {"scn": "17", "dbType": "Oracle"},
            {"scn": "", "valueKinds": None},
            {"dataColumn": [*_COLUMNS, {"name": ROW_ID, "type": "LONG"}]},
            {"primaryKey": None},
            *(_value(kind, found) for kind, (right, _) in _JSON_TYPES.items() for found in (*right, "VOID")),
        ],
        {
            **_TABLE_RULES,
            "columns_are_typed": (
                *(
                    {"dataColumn": [{"name": "id", "type": kind}, _COLUMNS[1]]}
                    for kind in (None, "", "long", "DECIMAL")
                ),
                {"dataColumn": [*_COLUMNS, {"name": "", "type": "LONG"}]},
                {"dataColumn": None, "valueKinds": None},
            ),
            "columns_are_of_image": (
                {"dataColumn": _COLUMNS[:1], "primaryKey": None},
                {"dataColumn": [], "primaryKey": []},
            ),
            "values_fit_types": [_value(kind, found) for kind, (_, wrong) in _JSON_TYPES.items() for found in wrong],
            "ddl_meta_is_of_ddl": ({"ddlMeta": "eA=="},),
        },
    ),
    DataWorksDdlSent: _of(
        DataWorksDdlSent,
        {**_SOURCE, "ddlMeta": "rO0ABXQABQ=="},
        [{"ddlMeta": "eA=="}, {"ddlMeta": ""}, {"dataColumn": None}],
        {**_TABLE_RULES, "ddl_meta_is_base64": tuple({"ddlMeta": text} for text in (None, "[text]", "eA", "eA==\n"))},
    ),
    DataWorksNoteSent: _of(
        DataWorksNoteSent,
        {**_SOURCE, "dataColumn": None, "primaryKey": None, "dbType": None, "valueKinds": None, "sequenceId": None},
        [{"sequenceId": "17", "checkpointTime": None}],
        {
            **_SENT_RULES,
            "note_is_of_no_table": (*({"dataColumn": []}, {"primaryKey": []}, {"dbName": "d"}, {"tableName": "t"}),),
            "note_has_no_statement": ({"ddlText": "BEGIN"},),
        },
    ),
}
