from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import LAST_TSO
from cdc_pipeline.contracts.limits import COLUMNS, STATEMENT
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decode import EXPECTATIONS, decode_with_reasons
from cdc_pipeline.dialects.envelope import JSON_RULES
from cdc_pipeline.dialects.ticdc import TICDC
from cdc_pipeline.mysql.types.charsets import LOST_BYTE
from cdc_pipeline_tests.support.dialect_cases import (
    Bad,
    Columns,
    Good,
    breakable,
    broken_by_form,
    by_name,
    changed,
    named,
    raw,
    says,
    without,
)
from cdc_pipeline_tests.support.messages import EPOCH_MS, ddl, row, tso, watermark, watermark_tso

_NEW = {"zeta": "1", "Alpha": "2", "mid": None}
_KEY = {"zeta": "1"}
_OLD = {"zeta": "0", "Alpha": "2", "mid": None}
_INSERT = row("INSERT", "t", 1, _NEW, key=["zeta"])
_UPDATE = row("UPDATE", "t", 2, _NEW, old=_OLD, key=["zeta"])
_DELETE = row("DELETE", "t", 3, _NEW, key=["zeta"])
_DDL = ddl("CREATE TABLE `t` (`a` INT)", 4, table="t", kind="CREATE")
_WATERMARK = watermark(5)
_ES = EPOCH_MS + 1000
_LAST_MS = 10**13 - 1
_EARLY_TYPES = {
    "b": "binary",
    "v": "varbinary",
    "lost": "varbinary",
    "blob": "blob",
    "s": "varchar",
    "null": "varbinary",
}
_WIDE = {f"c{place}": "1" for place in range(COLUMNS + 1)}


def _referring(location: str) -> bytes:
    return changed(_UPDATE, old=[_KEY], data=[_KEY], _tidb={"commitTs": tso(2), "claimCheckLocation": location})


def _escaped(text: bytes) -> bytes:
    """An INSERT whose only value is these bytes, quoted in the JSON."""
    message = row("INSERT", "t", 1, {"a": "HERE"}).encode()
    return message.replace(b'"HERE"', b'"' + text + b'"')


# ---- valid messages: name → (value, expected columns)

_V6_ORDER = json.dumps(
    {
        **dict.fromkeys(("id", "database", "table", "pkNames", "isDdl", "type", "es", "ts", "sql")),
        **json.loads(_UPDATE),
        "sqlType": {"Alpha": 12, "mid": 12, "zeta": 12},
        "mysqlType": {"Alpha": "int", "mid": "int", "zeta": "int"},
        "data": [{"Alpha": "2", "mid": None, "zeta": "1"}],
        "old": [{"Alpha": "2", "mid": None, "zeta": "0"}],
    }
).encode()

_GOOD: Good = {
    "insert": (
        _INSERT.encode(),
        {
            "kind": unified.ROW,
            "rule": None,
            "reason": None,
            "dialect": "ticdc",
            "database": "db",
            "table": "t",
            "op": "INSERT",
            "commit_ts": tso(1),
            "exact_ts": True,
            "watermark_ts": None,
            "es": tso(1) >> 18,
            "ts": (tso(1) >> 18) + 5,
            "key_names": ["zeta"],
            "rows": [(None, _NEW)],
        },
    ),
    "update with the whole old row": (
        _UPDATE.encode(),
        {"kind": unified.ROW, "op": "UPDATE", "commit_ts": tso(2), "rows": [(_OLD, _NEW)]},
    ),
    "delete has its row in data": (
        _DELETE.encode(),
        {"kind": unified.ROW, "op": "DELETE", "commit_ts": tso(3), "rows": [(_NEW, None)]},
    ),
    "update with the changed columns in old": (
        changed(_UPDATE, old=[{"zeta": "0"}]),
        {"kind": unified.ROW, "rows": [({"zeta": "0"}, _NEW)]},
    ),
    "update with null in old": (
        changed(_UPDATE, old=[{"zeta": None}]),
        {"kind": unified.ROW, "rows": [({"zeta": None}, _NEW)]},
    ),
    "update of no visible column": (
        changed(_UPDATE, old=[{}]),
        {"kind": unified.ROW, "rows": [({}, _NEW)]},
    ),
    "delete with the handle key only": (
        changed(_DELETE, data=[{"zeta": "1"}], mysqlType={"zeta": "int"}),
        {"kind": unified.ROW, "rows": [({"zeta": "1"}, None)]},
    ),
    "delete before v5.4, its row also in old": (
        changed(_DELETE, old=[_NEW]),
        {"kind": unified.ROW, "op": "DELETE", "rows": [(_NEW, None)]},
    ),
    "insert with no row in old": (changed(_INSERT, old=[]), {"kind": unified.ROW, "rows": [(None, _NEW)]}),
    "v6 key order": (_V6_ORDER, {"kind": unified.ROW, "rows": [(_OLD, _NEW)]}),
    "row without the extension": (
        row("INSERT", "t", 1, _NEW, extension=False).encode(),
        {"kind": unified.ROW, "commit_ts": (tso(1) >> 18) + 1 << 18, "exact_ts": False},
    ),
    "extension that is null": (changed(_INSERT, _tidb=None), {"kind": unified.ROW, "exact_ts": False}),
    "commitTs counts inside its millisecond": (
        changed(_INSERT, _tidb={"commitTs": tso(1) + 1}),
        {"commit_ts": tso(1) + 1, "exact_ts": True},
    ),
    "the largest commitTs": (
        changed(_INSERT, es=_LAST_MS, _tidb={"commitTs": (_LAST_MS << 18) + 2**18 - 1}),
        {"kind": unified.ROW, "commit_ts": (_LAST_MS << 18) + 2**18 - 1, "exact_ts": True},
    ),
    "the first es": (changed(_INSERT, es=10**12, _tidb=None), {"kind": unified.ROW, "commit_ts": 10**12 << 18}),
    "the last es": (changed(_INSERT, es=_LAST_MS, _tidb=None), {"kind": unified.ROW, "commit_ts": _LAST_MS << 18}),
    "onlyHandleKey false": (
        changed(_INSERT, _tidb={"commitTs": tso(1), "onlyHandleKey": False}),
        {"kind": unified.ROW, "commit_ts": tso(1), "only_key": False},
    ),
    "handle key only, update": (
        changed(_UPDATE, old=[_KEY], data=[_KEY], _tidb={"commitTs": tso(2), "onlyHandleKey": True}),
        {"kind": unified.ROW, "only_key": True, "rows": [(_KEY, _KEY)]},
    ),
    "handle key only, insert": (
        changed(_INSERT, data=[_KEY], _tidb={"commitTs": tso(1), "onlyHandleKey": True}),
        {"kind": unified.ROW, "only_key": True, "rows": [(None, _KEY)]},
    ),
    "handle key only, delete": (
        changed(_DELETE, data=[_KEY], _tidb={"commitTs": tso(3), "onlyHandleKey": True}),
        {"kind": unified.ROW, "only_key": False, "rows": [(_KEY, None)]},
    ),
    "a row key and fields of later versions": (
        changed(_INSERT, _tidb={"commitTs": tso(1), "rowkey": "dGFibGU="}, later={"a": [1, {"b": None}]}),
        {"kind": unified.ROW, "commit_ts": tso(1), "rows": [(None, _NEW)]},
    ),
    "before v5.4": (
        changed(_INSERT, ts=0, old=[None], _tidb=None),
        {"kind": unified.ROW, "ts": None, "commit_ts": (tso(1) >> 18) << 18, "rows": [(None, _NEW)]},
    ),
    "an update before v5.4": (changed(_UPDATE, ts=0, _tidb=None), {"kind": unified.ROW, "rows": [(_OLD, _NEW)]}),
    "a delete before v5.4": (
        changed(_DELETE, ts=0, old=[dict(reversed(_NEW.items()))], _tidb=None),
        {"kind": unified.ROW, "rows": [(_NEW, None)]},
    ),
    "bytes before v5.4": (
        changed(
            _INSERT,
            ts=0,
            old=[None],
            pkNames=[],
            data=[{"b": "\0aé", "v": "é中", "lost": "a\ufffdb", "blob": "é", "s": "é中", "null": None}],
            mysqlType=_EARLY_TYPES,
            sqlType={"b": 1, "v": 12, "lost": 12, "blob": 2004, "s": 12, "null": 12},
        ),
        {
            "kind": unified.ROW,
            "rows": [
                (
                    None,
                    {
                        "b": "\0aÃ\xa9",
                        "v": "Ã\xa9ä\xb8\xad",
                        "lost": "a\ufffdb",
                        "blob": "é",
                        "s": "é中",
                        "null": None,
                    },
                )
            ],
        },
    ),
    "bytes since v5.4": (
        changed(_INSERT, pkNames=[], data=[{"v": "é"}], mysqlType={"v": "varbinary"}, sqlType={"v": 12}),
        {"rows": [(None, {"v": "é"})]},
    ),
    "a byte that was lost, the character, and the six characters": (
        changed(
            _UPDATE,
            data=[{"zeta": "1", "lost": "LOST", "true": "\ufffd", "six": r"\ufffd", "slash": r"\LOST"}],
            old=[{"zeta": "1", "lost": "aLOSTLOST", "true": "b", "six": r"\\ufffd", "slash": "c"}],
        ).replace(b"LOST", rb"\ufffd"),
        {
            "kind": unified.ROW,
            "rows": [
                (
                    {"zeta": "1", "lost": f"a{LOST_BYTE}{LOST_BYTE}", "true": "b", "six": r"\\ufffd", "slash": "c"},
                    {"zeta": "1", "lost": LOST_BYTE, "true": "\ufffd", "six": r"\ufffd", "slash": f"\\{LOST_BYTE}"},
                )
            ],
        },
    ),
    "ddl before v5.4": (changed(_DDL, ts=0, _tidb=None), {"kind": unified.DDL, "ts": None}),
    "es is not of the commitTs": (
        changed(_INSERT, _tidb={"commitTs": tso(7) + 1}),
        {"kind": unified.ROW, "rule": None, "commit_ts": tso(7) + 1, "es": tso(1) >> 18},
    ),
    "a small commitTs": (changed(_INSERT, _tidb={"commitTs": 7}), {"kind": unified.ROW, "commit_ts": 7}),
    "ddl, es is not of the commitTs": (changed(_DDL, _tidb={"commitTs": tso(5)}), {"commit_ts": tso(5), "rule": None}),
    "watermark, es is not its own": (
        changed(_WATERMARK, _tidb={"watermarkTs": tso(4)}),
        {"kind": unified.WATERMARK, "watermark_ts": tso(4)},
    ),
    "watermark without ts": (changed(_WATERMARK, ts=0), {"kind": unified.WATERMARK, "ts": None}),
    "a column selector without the key": (
        changed(_INSERT, pkNames=["id"]),
        {"kind": unified.ROW, "rule": None, "key_names": None, "rows": [(None, _NEW)]},
    ),
    "a column selector without a part of the key": (changed(_INSERT, pkNames=["zeta", "id"]), {"key_names": None}),
    "a name of 64 characters": (changed(_INSERT, table="t" * 64), {"kind": unified.ROW, "table": "t" * 64}),
    "no key": (changed(_INSERT, pkNames=None), {"kind": unified.ROW, "key_names": None}),
    "no ts": (without(_INSERT, "ts"), {"kind": unified.ROW, "ts": None}),
    "no types": (changed(_INSERT, mysqlType=None), {"kind": unified.ROW, "rows": [(None, _NEW)]}),
    "types absent": (without(_INSERT, "mysqlType", "sqlType"), {"kind": unified.ROW, "rows": [(None, _NEW)]}),
    "mysqlType a text": (changed(_INSERT, mysqlType="int"), {"kind": unified.ROW, "rows": [(None, _NEW)]}),
    "mysqlType a list": (changed(_INSERT, mysqlType=[]), {"kind": unified.ROW, "rows": [(None, _NEW)]}),
    "sql null": (changed(_INSERT, sql=None), {"kind": unified.ROW, "sql": None}),
    "a key of two columns": (
        changed(_INSERT, pkNames=["mid", "zeta"]),
        {"kind": unified.ROW, "key_names": ["mid", "zeta"]},
    ),
    "ddl": (
        _DDL.encode(),
        {
            "kind": unified.DDL,
            "rule": None,
            "database": "db",
            "table": "t",
            "type": "CREATE",
            "commit_ts": tso(4),
            "exact_ts": True,
            "sql": "CREATE TABLE `t` (`a` INT)",
            "dialect": "ticdc",
        },
    ),
    "ddl without the extension": (
        ddl("DROP TABLE t", 4, extension=False).encode(),
        {"kind": unified.DDL, "commit_ts": (tso(4) >> 18) + 1 << 18, "exact_ts": False},
    ),
    "ddl whose type names a row change": (changed(_DDL, type="INSERT"), {"kind": unified.DDL}),
    "ddl without a type": (changed(_DDL, type=None), {"kind": unified.DDL}),
    "ddl on a database": (changed(_DDL, table=""), {"kind": unified.DDL, "table": ""}),
    "watermark": (
        _WATERMARK.encode(),
        {
            "kind": unified.WATERMARK,
            "rule": None,
            "watermark_ts": watermark_tso(5),
            "exact_ts": False,
            "dialect": "ticdc",
        },
    ),
    "watermark inside its millisecond": (
        changed(_WATERMARK, es=1_700_000_000_123, _tidb={"watermarkTs": (1_700_000_000_123 << 18) + 5}),
        {"kind": unified.WATERMARK, "watermark_ts": (1_700_000_000_123 << 18) + 5},
    ),
    "the last type of two counts": (
        _INSERT.encode()[:-1] + b', "type": "DELETE"}',
        {"op": "DELETE", "rows": [(_NEW, None)]},
    ),
    "the last value of two counts": (
        row("INSERT", "t", 1, {"a": "X"}).encode().replace(b'"a": "X"', b'"a": "first", "a": "last"'),
        {"kind": unified.ROW, "rows": [(None, {"a": "last"})]},
    ),
    "5 million characters": (
        _escaped(b"x" * 5_000_000),
        {"kind": unified.ROW, "rows": [(None, {"a": "x" * 5_000_000})]},
    ),
    "white space around": (b" \r\n\t" + _INSERT.encode() + b"\r\n \t\n", {"kind": unified.ROW, "rows": [(None, _NEW)]}),
    "NUL as an escape": (_escaped(b"a\\u0000b"), {"kind": unified.ROW, "rows": [(None, {"a": "a\0b"})]}),
    "escapes of easyjson": (_escaped(b"\\u003c\\u003E\\u0026\\u001f"), {"rows": [(None, {"a": "<>&\x1f"})]}),
    "a surrogate pair as escapes": (_escaped(b"\\ud83d\\ude00\\uD83D\\uDE00"), {"rows": [(None, {"a": "😀😀"})]}),
    "an emoji as UTF-8": (_escaped("😀".encode()), {"rows": [(None, {"a": "😀"})]}),
    "characters beside the surrogates": (_escaped(b"\\ud7ff\\ue000"), {"rows": [(None, {"a": "\ud7ff\ue000"})]}),
    "a backslash before ud800": (_escaped(b"\\\\ud800"), {"kind": unified.ROW, "rows": [(None, {"a": "\\ud800"})]}),
    "two backslashes before ud800": (
        _escaped(b"\\\\\\\\udc00"),
        {"kind": unified.ROW, "rows": [(None, {"a": "\\\\udc00"})]},
    ),
    "C1 controls as they are": (_escaped("\x7f\x80\x9f".encode()), {"rows": [(None, {"a": "\x7f\x80\x9f"})]}),
    "integers in place of strings keep their digits": (
        changed(_INSERT, database=5, pkNames=["a"], data=[{"a": 18446744073709551615, "b": True}]),
        {"kind": unified.ROW, "database": "5", "rows": [(None, {"a": "18446744073709551615", "b": "true"})]},
    ),
    "tombstone": (None, {"kind": unified.EMPTY, "rule": None, "reason": None}),
    "empty value": (b"", {"kind": unified.EMPTY, "rule": None, "reason": None}),
}

# ---- records that break a rule: rule → name → value

_BAD: Bad = {
    "value_is_utf8": {
        "a byte that no character has": _escaped(b"\xff"),
        "an overlong character": _escaped(b"\xc0\xaf"),
        "a surrogate as UTF-8": _escaped(b"\xed\xa0\x80"),
        "a cut character": _escaped("é".encode()[:1]),
        "another encoding": _INSERT.encode("utf-16"),
        "all bytes": bytes(range(256)),
        "bytes of lz4": b"\x04\x22\x4d\x18" + bytes(range(200, 256)),
    },
    "value_is_json_object": {
        "cut short": _INSERT.encode()[:-1],
        "cut in the middle": _INSERT.encode()[: len(_INSERT) // 2],
        "white space": b" \r\n\t",
        "a list": b"[]",
        "a list of a message": b"[" + _INSERT.encode() + b"]",
        "null": b"null",
        "a text": b'"text"',
        "a number": b"123",
        "a brace": b"}",
        "no field": b"{}",
        "two messages": _INSERT.encode() + _INSERT.encode(),
        "two messages in two lines": _INSERT.encode() + b"\n" + _INSERT.encode() + b"\n",
        "text after it": _INSERT.encode() + b"x",
        "text before it": b"x" + _INSERT.encode(),
        "a comma before the brace": _INSERT.encode()[:-1] + b",}",
        "a name without quotes": _INSERT.encode().replace(b'"type"', b"type"),
        "single quotes": _INSERT.encode().replace(b'"2"', b"'2'"),
        "NaN": _INSERT.encode().replace(b'"2"', b"NaN"),
        "an unknown escape": _escaped(b"\\x"),
        "a line end in a text": _escaped(b"a\nb"),
        "a NUL in a text": _escaped(b"a\0b"),
        "pkNames no list": changed(_INSERT, pkNames="a"),
        "isDdl a text": changed(_INSERT, isDdl="false"),
        "isDdl a number": changed(_INSERT, isDdl=0),
        "es a text": changed(_INSERT, es="1"),
        "es a fraction": changed(_INSERT, es=1.5),
        "es beyond 64 bits": changed(_INSERT, es=2**63),
        "ts a text": changed(_INSERT, ts="1"),
        "data an object": changed(_INSERT, data=_NEW),
        "data a text": changed(_INSERT, data="x"),
        "data of texts": changed(_INSERT, data=["x"]),
        "old a text": changed(_UPDATE, old="x"),
        "_tidb a text": changed(_INSERT, _tidb="x"),
        "_tidb a list": changed(_INSERT, _tidb=[1]),
        "commitTs a text": changed(_INSERT, _tidb={"commitTs": "1"}),
        "commitTs a fraction": changed(_INSERT, _tidb={"commitTs": 4.5e17}),
        "commitTs beyond 63 bits": changed(_INSERT, _tidb={"commitTs": 2**63}),
        "watermarkTs a text": changed(_WATERMARK, _tidb={"watermarkTs": "1"}),
        "onlyHandleKey a text": changed(_INSERT, _tidb={"commitTs": 1, "onlyHandleKey": "true"}),
    },
    "escapes_are_characters": {
        "a high half alone": _escaped(b"a\\ud800b"),
        "a high half at the end": _escaped(b"\\uDBFF"),
        "a low half alone": _escaped(b"\\udc00"),
        "halves in the wrong order": _escaped(b"\\ude00\\ud83d"),
        "a low half after a pair": _escaped(b"\\ud83d\\ude00\\ude00"),
        "a high half before a pair": _escaped(b"\\ud83d\\ud83d\\ude00"),
        "a half after a backslash": _escaped(b"\\\\\\ud800"),
        "a half in a name": _escaped(b"x").replace(b'"a"', b'"\\ud800"'),
    },
    "database.not_null": {
        "null": changed(_INSERT, database=None),
    },
    "database.str_length": {
        "empty": changed(_INSERT, database=""),
        "long": changed(_INSERT, database="d" * 65),
        "long in a ddl": changed(_DDL, database="d" * 65),
    },
    "table.not_null": {"null": changed(_INSERT, table=None), "absent": without(_INSERT, "table")},
    "table.str_length": {
        "empty": changed(_INSERT, table=""),
        "long": changed(_INSERT, table="t" * 70),
        "long in a ddl": changed(_DDL, table="t" * 65),
    },
    "isDdl.not_null": {
        "another JSON document": b'{"order": 1}',
        "absent": without(_INSERT, "isDdl"),
        "null": changed(_INSERT, isDdl=None),
        "absent in a ddl": changed(_DDL, isDdl=None, type="INSERT"),
        "null in a watermark": changed(_WATERMARK, isDdl=None),
    },
    "type.not_null": {"absent": without(_INSERT, "type"), "null": changed(_INSERT, type=None)},
    "type.isin": {
        "small letters": changed(_INSERT, type="insert"),
        "another word": changed(_INSERT, type="REPLACE"),
        "a DDL's word": changed(_INSERT, type="QUERY"),
        "a number": changed(_INSERT, type=1),
        "a text of 200 characters": changed(_INSERT, type="x" * 200),
    },
    "watermarkTs.not_null": {
        "no extension": without(_WATERMARK, "_tidb"),
        "null": changed(_WATERMARK, _tidb={"watermarkTs": None}),
        "a commitTs instead": changed(_WATERMARK, _tidb={"commitTs": tso(5)}),
    },
    "es.not_null": {
        "row": without(_INSERT, "es", "_tidb"),
        "row with a commitTs": without(_INSERT, "es"),
        "ddl": without(_DDL, "es", "_tidb"),
        "ddl that calls itself a watermark": changed(_DDL, es=None, _tidb=None, type="TIDB_WATERMARK"),
        "watermark": without(_WATERMARK, "es"),
    },
    "es.in_range": {
        "beyond a TSO": changed(_INSERT, es=2**45, _tidb=None),
        "the last that a TSO can have": changed(_INSERT, es=2**45 - 1, _tidb=None),
        "beyond a TSO beside a commitTs": changed(_INSERT, es=2**45),
        "before 1970": changed(_INSERT, es=-1, _tidb=None),
        "0": changed(_INSERT, es=0, _tidb=None),
        "seconds": changed(_INSERT, es=_ES // 1000, _tidb=None),
        "12 digits": changed(_INSERT, es=10**12 - 1, _tidb=None),
        "14 digits": changed(_INSERT, es=10**13, _tidb=None),
        "ddl": changed(_DDL, es=_ES // 1000),
        "watermark": changed(_WATERMARK, es=_ES // 1000),
    },
    "ts_is_ms": {
        "row": changed(_INSERT, ts=_ES // 1000),
        "ddl": changed(_DDL, ts=10**13),
        "watermark": changed(_WATERMARK, ts=-1),
    },
    "commitTs.in_range": {
        "beyond any time": changed(_INSERT, _tidb={"commitTs": 2**63 - 1}),
        "0": changed(_INSERT, _tidb={"commitTs": 0}),
        "ddl": changed(_DDL, _tidb={"commitTs": -1}),
    },
    "watermarkTs.in_range": {
        "0": changed(_WATERMARK, _tidb={"watermarkTs": 0}),
        "beyond any time": changed(_WATERMARK, _tidb={"watermarkTs": LAST_TSO + 1}),
    },
    "extension_has_commit_ts": {
        "row": changed(_INSERT, _tidb={}),
        "null": changed(_INSERT, _tidb={"commitTs": None}),
        "a watermarkTs instead": changed(_INSERT, _tidb={"watermarkTs": tso(1)}),
        "ddl": changed(_DDL, _tidb={}),
    },
    "rows_are_of_row_changes": {
        "a ddl with rows": changed(_DDL, data=[_NEW]),
        "a ddl with rows in old": changed(_DDL, old=[_OLD]),
        "a row that calls itself a ddl": changed(_INSERT, isDdl=True, sql="x"),
        "a watermark with rows": changed(_WATERMARK, data=[_NEW]),
    },
    "watermark_is_not_ahead": {
        "of the year 2286": changed(_WATERMARK, _tidb={"watermarkTs": LAST_TSO}),
        "an hour and a ms": changed(_WATERMARK, _tidb={"watermarkTs": tso(5) + (3_600_006 << 18)}),
    },
    "old_of_delete_is_data": {
        "another row": changed(_DELETE, old=[_OLD]),
        "a part of it": changed(_DELETE, old=[_KEY]),
        "two rows": changed(_DELETE, old=[_NEW, _NEW]),
    },
    "columns_are_few": {
        "4,097 columns": changed(_INSERT, data=[_WIDE], pkNames=[]),
        "4,097 columns in old": changed(_UPDATE, old=[_WIDE]),
    },
    "column_names_are_short": {"a name of 65 characters": changed(_INSERT, data=[{**_NEW, "n" * 65: "1"}])},
    "key_is_short": {"33 names": changed(_INSERT, pkNames=[f"k{place}" for place in range(33)])},
    "sql.not_null": {"null": changed(_DDL, sql=None), "absent": without(_DDL, "sql")},
    "sql.str_length": {"empty": changed(_DDL, sql=""), "long": changed(_DDL, sql="x" * (STATEMENT + 1))},
    "sql_is_of_ddl": {"a row with a statement": changed(_INSERT, sql="INSERT INTO t VALUES (1, 2, NULL)")},
    "old_is_of_update": {"insert with a row in old": changed(_INSERT, old=[_OLD])},
    "claim_is_resolved": {
        "a file": _referring("file:///tmp/b/1a-2.json"),
        "no file": _referring(""),
        "credentials": _referring("s3://key:secret@b/x?secret-access-key=secret"),
        "the handle key only as well": changed(
            _UPDATE, _tidb={"commitTs": tso(2), "claimCheckLocation": "1.json", "onlyHandleKey": True}
        ),
    },
    "data_has_one_row": {
        "data null": changed(_INSERT, data=None),
        "data absent": without(_DELETE, "data"),
        "no row": changed(_UPDATE, data=[]),
        "a row that is null": changed(_INSERT, data=[None]),
        "a row without columns": changed(_INSERT, data=[{}]),
        "two rows": changed(_INSERT, data=[_NEW, _OLD]),
        "no key": changed(_INSERT, data=None, pkNames=None),
    },
    "old_has_one_row": {
        "old null": changed(_UPDATE, old=None),
        "old absent": without(_UPDATE, "old"),
        "no row": changed(_UPDATE, old=[]),
        "a row that is null": changed(_UPDATE, old=[None]),
        "two rows": changed(_UPDATE, old=[_OLD, _OLD]),
    },
}
_VALUES = named(_GOOD, _BAD)
_NO_STORE = "; no claim_store is configured to look up {}"
_CLAIM_ENDS = {
    "a file": _NO_STORE.format("the file 1a-2.json"),
    "the handle key only as well": _NO_STORE.format("the file 1.json"),
    "no file": _NO_STORE.format("a location without a plain file name"),
    "credentials": _NO_STORE.format("a location without a plain file name"),
}


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    """All cases, decoded once."""
    frame = decode_with_reasons(raw(spark, _VALUES)).persist()
    yield frame
    frame.unpersist()


@pytest.fixture(scope="module")
def rows(frame: DataFrame) -> Columns:
    return by_name(frame, _VALUES)


@pytest.mark.parametrize("name", _GOOD)
def test_good_message(name: str, rows: Columns) -> None:
    _, wanted = _GOOD[name]
    found = rows[f"good: {name}"]
    assert {field: found[field] for field in wanted} == wanted


@pytest.mark.parametrize(("rule", "name"), [(rule, name) for rule, cases in _BAD.items() for name in cases])
def test_broken_rule(rule: str, name: str, rows: Columns) -> None:
    found, value = rows[f"{rule}: {name}"], _BAD[rule][name]
    assert (found["kind"], found["rule"]) == (unified.DEAD, rule)
    assert found["column"] == EXPECTATIONS[rule][1]
    end = _CLAIM_ENDS.get(name, "")
    assert found["reason"].endswith(end)
    assert says(found["reason"].removesuffix(end), rule, value), found["reason"]


def test_each_rule_has_a_case(spark: SparkSession) -> None:
    identified_by = {"ticdc_ddl": ["isDdl"], "ticdc_watermark": ["type"]}
    # rules of the storage sink's files: test_ticdc_storage
    wanted = {found for found in breakable(TICDC, identified_by) if not found[0].startswith("ticdc_storage")}
    assert broken_by_form(spark, _BAD, TICDC) >= wanted
    assert set(_BAD) >= set(JSON_RULES)


def test_reason_names_what_is_there(rows: Columns) -> None:
    wanted = {
        "es.in_range: seconds": "expected: es is between 1000000000000 and 9999999999999, found 1795248691",
        "type.isin: small letters": "expected: type is one of INSERT, UPDATE, DELETE, found insert",
        "type.not_null: null": "expected: type is not null, found null",
        "table.str_length: empty": "expected: table has 1 to 64 characters, found 0 characters: ",
        "table.str_length: long": "expected: table has 1 to 64 characters, found 70 characters: " + "t" * 60,
        "sql.str_length: long": f"expected: sql has 1 to 4,194,304 characters, found 4,194,305 characters: {'x' * 60}",
        "columns_are_few: 4,097 columns in old": "expected: a row has at most 4,096 columns, found 4,097 columns",
        "column_names_are_short: a name of 65 characters": "expected: the name of a column has at most 64 characters, "
        "found a name of 65 characters",
        "key_is_short: 33 names": "expected: pkNames has at most 32 names, found 33 names",
        "watermark_is_not_ahead: of the year 2286": f"expected: {EXPECTATIONS['watermark_is_not_ahead'][0]}, "
        f"found {LAST_TSO}, which is 2286-11-20 17:46:39.999 UTC, sent or read at 2026-11-21 08:11:35.005",
    }
    assert {name: rows[name]["reason"] for name in wanted} == wanted


def test_columns_are_in_the_order_of_the_message(rows: Columns) -> None:
    update, v6 = rows["good: update with the whole old row"], rows["good: v6 key order"]
    assert update["after_names"] == update["before_names"] == [["zeta", "Alpha", "mid"]]
    assert v6["after_names"] == v6["before_names"] == [["Alpha", "mid", "zeta"]]


def test_each_record_becomes_one_row_of_one_table(frame: DataFrame, rows: Columns) -> None:
    tables = {
        unified.ROW: unified.row_changes(frame),
        unified.DDL: unified.ddl_events(frame),
        unified.WATERMARK: frame.where(F.col("kind") == unified.WATERMARK),
        unified.DEAD: unified.dead_letters(frame),
        unified.EMPTY: frame.where(F.col("kind") == unified.EMPTY),
    }
    offsets = {kind: sorted(row[0] for row in table.select("offset").collect()) for kind, table in tables.items()}
    assert offsets == {
        kind: [offset for offset, name in enumerate(_VALUES) if rows[name]["kind"] == kind] for kind in tables
    }


def test_dead_letters_keep_the_bytes(frame: DataFrame) -> None:
    offset = list(_VALUES).index("value_is_utf8: all bytes")
    (letter,) = unified.dead_letters(frame).where(F.col("offset") == offset).collect()
    assert (letter["batch_id"], letter["value"]) == (1, bytearray(range(256)))
