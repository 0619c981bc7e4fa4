from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.dataworks import ROW_ID
from cdc_pipeline.dialects.message_types import MessageTypes, read_message_types
from cdc_pipeline.mysql.types.wire_values import JSON_BYTES, TEXT_BYTES
from cdc_pipeline_tests.support.dialect_cases import changed, raw, without
from cdc_pipeline_tests.support.messages import canal, dataworks, row

_ROW: dict[str, str | None] = {"id": "1", "j": "{}", "name": None}
_TYPES = {"id": "bigint(20) unsigned", "j": "json", "name": "enum('a','c,d')"}
_TICDC = row("INSERT", "t", 1, _ROW, types=_TYPES)


def _canal(json_type: str, sql_type: int | None) -> bytes:
    types, sql_types = {"id": "BIGINT", "j": json_type, "b": "LONGBLOB"}, {"id": -5, "b": 2004}
    return canal(
        "INSERT", "t", 1, [_ROW], types=types, sql_types=sql_types | ({} if sql_type is None else {"j": sql_type})
    ).encode()


def _of_canal(json_type: str, wires: dict[str, str]) -> MessageTypes:
    return MessageTypes({"id": "BIGINT", "j": json_type, "b": "LONGBLOB"}, wires)


_SIX = {"f": "BOOLEAN", "n": "LONG", "d": "DOUBLE", "t": "DATE", "b": "BYTES", "s": "STRING"}
_SIX_TYPES = {
    "f": "tinyint(1)",
    "n": "bigint",
    "d": "double",
    "t": "timestamp(3)",
    "b": "longblob",
    "s": "longtext",
}
_DATAWORKS = dataworks("INSERT", "t", 1, after={}, types={**_SIX, ROW_ID: "LONG"})
# dialect, value, its types; None if the record cannot be parsed
_CASES: dict[str, tuple[str, bytes | None, MessageTypes | None]] = {
    "TiCDC": ("ticdc", _TICDC.encode(), MessageTypes(_TYPES)),
    "TiCDC, labels with backslashes": (
        "ticdc",
        changed(_TICDC, mysqlType={"a": r"enum('C:\new','\')", "b": "set('it''s','\\''')"}),
        MessageTypes({"a": r"enum('C:\\new','\\')", "b": "set('it''s','\\\\''')"}),
    ),
    "TiCDC, mysqlType null": ("ticdc", changed(_TICDC, mysqlType=None, sqlType=None), MessageTypes()),
    "TiCDC, no types": ("ticdc", without(_TICDC, "mysqlType", "sqlType"), MessageTypes()),
    "TiCDC, mysqlType a text": ("ticdc", changed(_TICDC, mysqlType="int"), MessageTypes()),
    "TiCDC, mysqlType a list": ("ticdc", changed(_TICDC, mysqlType=[]), MessageTypes()),
    "TiCDC, a type that is null": (
        "ticdc",
        changed(_TICDC, mysqlType={"id": None, "j": "json"}),
        MessageTypes({"id": "", "j": "json"}),
    ),
    "TiCDC, sqlType null": ("ticdc", changed(_TICDC, sqlType=None), MessageTypes(_TYPES)),
    "TiCDC, sqlType a text": ("ticdc", changed(_TICDC, sqlType="x"), MessageTypes(_TYPES)),
    "TiCDC, sqlTypes as texts": ("ticdc", changed(_TICDC, sqlType={"id": "x"}), MessageTypes(_TYPES)),
    "TiCDC's JSON": ("ticdc", changed(_TICDC, sqlType={"j": 12}), MessageTypes(_TYPES)),
    "Canal, labels with backslashes": (
        "canal",
        changed(_canal("json", 1111).decode(), mysqlType={"a": r"ENUM('C:\new','\')"}),
        MessageTypes({"a": r"ENUM('C:\\new','\\')"}),
    ),
    "Canal, MySQL's JSON": ("canal", _canal("json", 1111), _of_canal("json", {})),
    "Canal, MariaDB's JSON": ("canal", _canal("json", 2004), _of_canal("json", {"j": JSON_BYTES})),
    "Canal, MariaDB's JSON as the DDL wrote it": (
        "canal",
        _canal("JSON ", 2004),
        _of_canal("JSON ", {"j": JSON_BYTES}),
    ),
    "Canal, NULL in MariaDB's JSON, up to 1.1.6": ("canal", _canal("json", -4), _of_canal("json", {"j": JSON_BYTES})),
    "Canal, types that contradict each other": (
        "canal",
        _canal("json", 4),
        MessageTypes({"id": "BIGINT", "j": "json", "b": "LONGBLOB"}, {}, ("j",)),
    ),
    "Canal, JSON without sqlType": ("canal", _canal("json", None), _of_canal("json", {})),
    **{
        f"Canal, {text} with sqlType {code}": (
            "canal",
            _canal(text, code),
            _of_canal(text, {} if code == 2005 else {"j": TEXT_BYTES}),
        )
        for text, code in (
            ("TEXT(500)", 2004),
            ("MediumText (9)", 2004),
            ("LONG", 2004),
            ("TEXT(500)", -4),
            ("TEXT", 2005),
        )
    },
    "Canal, a text with the code of bytes": (
        "canal",
        _canal("TEXT", 2004),
        MessageTypes({"id": "BIGINT", "j": "TEXT", "b": "LONGBLOB"}, {}, ("j",)),
    ),
    "Canal, a hidden row id": (
        "canal",
        canal(
            "INSERT",
            "t",
            1,
            [{"a": "1", "_drds_implicit_id_": "5"}],
            types={"a": "int", "_drds_implicit_id_": "bigint"},
        ).encode(),
        MessageTypes({"a": "int"}),
    ),
    "Canal, a blob": ("canal", _canal("blob", 2004), _of_canal("blob", {})),
    "DataWorks": ("dataworks", _DATAWORKS.encode(), MessageTypes(_SIX_TYPES, _SIX)),
    "DataWorks, another type": (
        "dataworks",
        dataworks("INSERT", "t", 1, after={}, types={"a": "DECIMAL"}).encode(),
        MessageTypes({"a": ""}, {"a": "DECIMAL"}),
    ),
    "DataWorks, no columns": ("dataworks", dataworks("INSERT", "t", 1, after={}).encode(), MessageTypes()),
    "DataWorks, schema null": ("dataworks", changed(_DATAWORKS, schema=None), MessageTypes()),
    "DataWorks, schema a text": ("dataworks", changed(_DATAWORKS, schema="x"), MessageTypes()),
    "DataWorks, columns null or without a name": (
        "dataworks",
        changed(_DATAWORKS, schema={"dataColumn": [None, {"type": "LONG"}, {"name": "n", "type": "LONG"}]}),
        MessageTypes({"n": "bigint"}, {"n": "LONG"}),
    ),
    "DataWorks, a column without a type": (
        "dataworks",
        changed(_DATAWORKS, schema={"dataColumn": [{"name": "n"}]}),
        MessageTypes({"n": ""}),
    ),
    "no value": ("canal", None, None),
}


@pytest.fixture(scope="module")
def types(spark: SparkSession) -> dict[str, MessageTypes]:
    """All cases, read in one query, among other records."""
    values = {name: value for name, (_, value, _) in _CASES.items()}
    records = raw(spark, {**values, "not asked for": _TICDC.encode()})
    places = {(1, "topic", 0, offset): dialect for offset, (dialect, _, _) in enumerate(_CASES.values())}
    places_and_others = {**places, (2, "topic", 0, len(_CASES)): "ticdc", (1, "other", 0, 0): "ticdc"}
    found = read_message_types(
        lambda first, last: records.where(F.col("batch_id").between(first, last)), places_and_others
    )
    assert set(found) <= set(places)
    return {list(_CASES)[place[3]]: types for place, types in found.items()}


@pytest.mark.parametrize("name", _CASES)
def test_types_of_a_message(name: str, types: dict[str, MessageTypes]) -> None:
    assert types.get(name) == _CASES[name][2]


def test_no_places(spark: SparkSession) -> None:
    assert read_message_types(lambda first, last: raw(spark, {}), {}) == {}
