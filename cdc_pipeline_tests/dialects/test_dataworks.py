from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.contracts.dataworks import ROW_ID
from cdc_pipeline.contracts.limits import ANY_COLUMNS, STATEMENT
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.dataworks import DATAWORKS
from cdc_pipeline.dialects.decode import EXPECTATIONS, decode_with_reasons
from cdc_pipeline_tests.support.dialect_cases import (
    Bad,
    Columns,
    Good,
    breakable,
    broken_by_form,
    by_name,
    named,
    raw,
    says,
)
from cdc_pipeline_tests.support.messages import EPOCH_MS, dataworks

_ABSENT = object()
_OLD = {"id": 1, "name": "a"}
_NEW = {"id": 1, "name": "b"}
_OLD_TEXT, _NEW_TEXT = {"id": "1", "name": "a"}, {"id": "1", "name": "b"}
_TIME = EPOCH_MS + 1000
_SEQUENCE = "1620457642589000001"
_INSERT = dataworks("INSERT", "t", 1, after=_NEW, key=["id"], sequence=_SEQUENCE)
_UPDATE = dataworks("UPDATE_AFTER", "t", 1, before=_OLD, after=_NEW, key=["id"], sequence=_SEQUENCE)
_BEFORE = dataworks("UPDATE_BEFOR", "t", 1, before=_OLD, key=["id"], sequence=_SEQUENCE)
_AFTER = dataworks("UPDATE_AFTER", "t", 1, after=_NEW, key=["id"], sequence=_SEQUENCE)
_DELETE = dataworks("DELETE", "t", 1, before=_OLD, key=["id"], sequence=_SEQUENCE)
_ALTER = dataworks("ALTER", "t", 1, sql="ALTER TABLE t ADD COLUMN c INT", sequence=_SEQUENCE)
_HEARTBEAT = dataworks("MHEARTBEAT", None, 1)
_BEGIN = dataworks("TRANSACTION_BEGIN", None, 1, sequence=_SEQUENCE)
_XA = dataworks("XACOMMIT", None, 1)
_OTHER_DDL = _ALTER.replace('"dbType": "MySQL"', '"dbType": "Oracle"')
_FORMS = {
    "row": _INSERT,
    "ddl": _ALTER,
    "other ddl": _OTHER_DDL,
    "heartbeat": _HEARTBEAT,
    "transaction": _BEGIN,
    "xa": _XA,
}
_NO_ROWS = {form: message for form, message in _FORMS.items() if form != "row"}
_NAMED = ("row", "ddl", "other ddl")
_KEYS = dataworks(
    "INSERT", "t", 1, after={f"k{place}": 1 for place in range(33)}, key=[f"k{place}" for place in range(33)]
)
_WIDE = {f"c{place}": 1 for place in range(ANY_COLUMNS + 1)}
_DDL_OPS = ("CREATE", "ALTER", "ERASE", "QUERY", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")


def _at(message: str, path: str, value: Any = _ABSENT) -> bytes:
    """The message with another value at this path, or without the key."""
    document = json.loads(message)
    *folders, leaf = path.split(".")
    place = document
    for folder in folders:
        place = place[folder]
    if value is _ABSENT:
        del place[leaf]
    else:
        place[leaf] = value
    return json.dumps(document, ensure_ascii=False).encode()


def _raw_number(text: str) -> bytes:
    """An INSERT with this JSON text as a value."""
    return dataworks("INSERT", "t", 1, after={"a": "HERE"}).replace('"HERE"', text).encode()


def _document(op: str, before: str | None, after: str | None) -> bytes:
    """The messages that the document shows for a table without a key."""

    def row(sex: str | None) -> dict[str, Any] | None:
        return None if sex is None else {"name": "name11", "job": "job11", "sex": sex, ROW_ID: 15}

    types = {"name": "STRING", "job": "STRING", "sex": "STRING", ROW_ID: "LONG"}
    database, table = "pkset_test", "pkset_test_no_pk"
    return dataworks(
        op, table, 1, before=row(before), after=row(after), types=types, database=database, sequence=_SEQUENCE
    ).encode()


def _documented(sex: str) -> dict[str, str]:
    return {"name": "name11", "job": "job11", "sex": sex}


def _ddl(op: str, sql: str, table: str | None = "t") -> bytes:
    return dataworks(op, table, 1, sql=sql).encode()


def _source(message: str, kind: str | None, schema: str | None) -> bytes:
    document = json.loads(message)
    document["schema"]["source"] |= {"dbType": kind, "schemaName": schema}
    return json.dumps(document).encode()


# dbType, schemaName, whether the DDL is MySQL's, the database of the mirror
_SOURCES = (
    ("MySQL", None, True, "db"),
    ("mysql", "mySchema", True, "db"),
    ("MariaDB", "", True, "db"),
    ("PolarDB-X", None, True, "db"),
    ("PolarDB", None, True, "db"),
    ("PolarDB", "public", False, "db.public"),
    ("PostgreSQL", "public", False, "db.public"),
    ("postgresql", "db", False, "db"),
    ("SQLServer", "dbo", False, "db.dbo"),
    ("SQL Server", None, False, "db"),
    ("Oracle", "HR", False, "db.HR"),
    ("a database of the future", "s", False, "db.s"),
    (None, "public", False, "db.public"),
    ("", "", True, "db"),
    (None, "db", True, "db"),
    (None, None, True, "db"),
)
_STATEMENTS = {
    "a clause": ("ADD COLUMN c INT", "ALTER TABLE `t` ADD COLUMN c INT"),
    "a clause after white space": (" \n drop column c", "ALTER TABLE `t`  \n drop column c"),
    "clauses": ("ADD COLUMN c INT, DROP COLUMN d", "ALTER TABLE `t` ADD COLUMN c INT, DROP COLUMN d"),
    "a clause on a column that begins with alter": ("ADD alter1 INT", "ALTER TABLE `t` ADD alter1 INT"),
    "a statement": ("ALTER TABLE t ADD c INT", "ALTER TABLE t ADD c INT"),
    "small letters": ("\talter table t add c int", "\talter table t add c int"),
    "a comment before it": ("/* a */ ALTER TABLE t ADD c INT", "/* a */ ALTER TABLE t ADD c INT"),
    "a line comment": ("-- a\nALTER TABLE t ADD c INT", "-- a\nALTER TABLE t ADD c INT"),
    "a shell comment": ("# a\nALTER TABLE t ADD c INT", "# a\nALTER TABLE t ADD c INT"),
}
_GOOD: Good = {
    "insert": (
        _INSERT.encode(),
        {
            "kind": unified.ROW,
            "rule": None,
            "column": None,
            "reason": None,
            "dialect": "dataworks",
            "database": "db",
            "table": "t",
            "type": "INSERT",
            "op": "INSERT",
            "commit_ts": int(_SEQUENCE),
            "exact_ts": False,
            "watermark_ts": None,
            "es": _TIME,
            "ts": _TIME + 779,
            "sql": None,
            "key_names": ["id"],
            "rows": [(None, _NEW_TEXT)],
        },
    ),
    "update in one record": (
        _UPDATE.encode(),
        {"kind": unified.ROW, "type": "UPDATE_AFTER", "op": "UPDATE", "rows": [(_OLD_TEXT, _NEW_TEXT)]},
    ),
    "update's first half": (
        _BEFORE.encode(),
        {
            "kind": unified.ROW,
            "type": "UPDATE_BEFOR",
            "op": "UPDATE",
            "commit_ts": int(_SEQUENCE),
            "rows": [(_OLD_TEXT, None)],
        },
    ),
    "update's second half": (
        _AFTER.encode(),
        {
            "kind": unified.ROW,
            "type": "UPDATE_AFTER",
            "op": "UPDATE",
            "commit_ts": int(_SEQUENCE),
            "rows": [(None, _NEW_TEXT)],
        },
    ),
    "delete": (_DELETE.encode(), {"kind": unified.ROW, "op": "DELETE", "rows": [(_OLD_TEXT, None)]}),
    "heartbeat": (
        _at(_HEARTBEAT, "payload.timestamp.systemTime"),
        {
            "kind": unified.HEARTBEAT,
            "dialect": "dataworks",
            "rule": None,
            "es": _TIME,
            "ts": None,
            "commit_ts": _TIME << 18,
        },
    ),
    **{
        op: (_at(_BEGIN, "payload.op", op), {"kind": unified.TRANSACTION, "rule": None, "type": op})
        for op in ("TRANSACTION_BEGIN", "TRANSACTION_END", "GTID")
    },
    **{op: (_at(_XA, "payload.op", op), {"kind": unified.XA, "type": op}) for op in ("XACOMMIT", "XAROLLBACK")},
    **{
        f"ddl {op}": (
            _at(_ALTER, "payload.op", op),
            {
                "kind": unified.DDL,
                "rule": None,
                "dialect": "dataworks",
                "database": "db",
                "table": "t",
                "type": op,
                "sql": "ALTER TABLE t ADD COLUMN c INT",
                "commit_ts": int(_SEQUENCE),
            },
        )
        for op in _DDL_OPS
    },
    **{
        f"alter by {name}": (_ddl("ALTER", text), {"kind": unified.DDL, "sql": sql})
        for name, (text, sql) in _STATEMENTS.items()
    },
    "a clause for a table with a back-tick": (_ddl("ALTER", "DROP c", "a`b"), {"sql": "ALTER TABLE `a``b` DROP c"}),
    "a clause without a table": (_ddl("ALTER", "DROP c", None), {"kind": unified.DDL, "sql": "DROP c"}),
    "no clause of an ALTER": (_ddl("CREATE", "CREATE TABLE t (a INT)"), {"sql": "CREATE TABLE t (a INT)"}),
    "the document's insert": (
        _document("INSERT", None, "man"),
        {"kind": unified.ROW, "database": "pkset_test", "key_names": None, "rows": [(None, _documented("man"))]},
    ),
    "the document's before image": (
        _document("UPDATE_BEFOR", "man", None),
        {"kind": unified.ROW, "rows": [(_documented("man"), None)]},
    ),
    "the document's after image": (
        _document("UPDATE_AFTER", None, "woman"),
        {"kind": unified.ROW, "rows": [(None, _documented("woman"))]},
    ),
    "the document's update": (
        _document("UPDATE_AFTER", "man", "woman"),
        {"kind": unified.ROW, "rows": [(_documented("man"), _documented("woman"))]},
    ),
    "the document's delete": (
        _document("DELETE", "woman", None),
        {"kind": unified.ROW, "rows": [(_documented("woman"), None)]},
    ),
    "the row id as key": (
        dataworks("INSERT", "t", 1, after={"a": "x", ROW_ID: 15}, key=[ROW_ID]).encode(),
        {"kind": unified.ROW, "key_names": [], "rows": [(None, {"a": "x"})]},
    ),
    "sequenceId null": (_at(_INSERT, "payload.sequenceId", None), {"kind": unified.ROW, "commit_ts": _TIME << 18}),
    "sequenceId absent": (_at(_INSERT, "payload.sequenceId"), {"kind": unified.ROW, "commit_ts": _TIME << 18}),
    "sequenceId 0": (_at(_INSERT, "payload.sequenceId", "0"), {"kind": unified.ROW, "commit_ts": 0}),
    "the largest sequenceId": (_at(_INSERT, "payload.sequenceId", str(2**63 - 1)), {"commit_ts": 2**63 - 1}),
    "sequenceId a JSON number": (_at(_INSERT, "payload.sequenceId", 2**53 + 1), {"commit_ts": 2**53 + 1}),
    "the first eventTime": (_at(_INSERT, "payload.timestamp.eventTime", 10**12), {"es": 10**12}),
    "the last eventTime": (_at(_INSERT, "payload.timestamp.eventTime", 10**13 - 1), {"es": 10**13 - 1}),
    "scn, rowid and later fields": (_at(_INSERT, "payload.scn", {"a": [1]}), {"kind": unified.ROW}),
    "no primaryKey": (_at(_INSERT, "schema.primaryKey"), {"kind": unified.ROW, "key_names": None}),
    "an empty primaryKey": (_at(_INSERT, "schema.primaryKey", []), {"kind": unified.ROW, "key_names": []}),
    **{
        f"{kind}, schemaName {schema!r}": (_source(_INSERT, kind, schema), {"kind": unified.ROW, "database": database})
        for kind, schema, _, database in _SOURCES
    },
    **{
        f"ddl of {kind}, schemaName {schema!r}": (
            _source(_ALTER, kind, schema),
            {
                "kind": unified.DDL if is_mysql else unified.OTHER_DDL,
                "rule": None,
                "database": database,
                "table": "t",
                "sql": "ALTER TABLE t ADD COLUMN c INT",
            },
        )
        for kind, schema, is_mysql, database in _SOURCES
    },
    "a clause of another database": (
        _source(_ddl("ALTER", "ADD COLUMN c INT").decode(), "PostgreSQL", "public"),
        {"kind": unified.OTHER_DDL, "sql": "ADD COLUMN c INT"},
    ),
    **{
        f"the value {text}": (_raw_number(text), {"kind": unified.ROW, "rows": [(None, {"a": value})]})
        for text, value in {
            "9007199254740993": "9007199254740993",
            "-9223372036854775808": "-9223372036854775808",
            "18446744073709551615": "18446744073709551615",
            "1.0E10": "1.0E10",
            "1.7976931348623157E308": "1.7976931348623157E308",
            "-0.0": "-0.0",
            "0.1": "0.1",
            "12345678901.25": "1.234567890125E10",
            "true": "true",
            "false": "false",
            "null": None,
            '"null"': "null",
            '""': "",
            '"é😀"': "é😀",
        }.items()
    },
}

_BAD: Bad = {
    "op.not_null": {"null": _at(_INSERT, "payload.op", None), "absent": _at(_INSERT, "payload.op")},
    "op.isin": {
        "unknown": _at(_INSERT, "payload.op", "UPSERT"),
        "small letters": _at(_INSERT, "payload.op", "insert"),
        "in full": _at(_INSERT, "payload.op", "UPDATE_BEFORE"),
        "a number": _at(_INSERT, "payload.op", 5),
    },
    "dbName.not_null": {
        "no source": _at(_INSERT, "schema.source", None),
        "no schema": _at(_INSERT, "schema", None),
        "absent": _at(_INSERT, "schema.source.dbName"),
    },
    "dbName.str_length": {
        "empty": _at(_INSERT, "schema.source.dbName", ""),
        **{f"{form}, long": _at(_FORMS[form], "schema.source.dbName", "d" * 129) for form in _NAMED},
    },
    "schemaName.str_length": {
        form: _at(message, "schema.source", {"dbName": "d", "tableName": "t", "schemaName": "s" * 129})
        for form, message in _FORMS.items()
    }
    | {"mysql's ddl": _at(_ALTER, "schema.source.schemaName", "s" * 129)}
    | {"its dbType is MySQL": _at(_ALTER, "schema.source", {"dbType": "mysql", "schemaName": "s" * 129})},
    "images_are_of_row_changes": {
        form: _at(message, "payload.after", {"dataColumn": _NEW}) for form, message in _NO_ROWS.items()
    }
    | {"before": _at(_ALTER, "payload.before", {"dataColumn": _OLD})},
    "ddl_is_of_ddl": {"a row change": _at(_INSERT, "payload.ddl", {"text": "DROP TABLE t"})},
    "primary_key_is_short": {"33 names": _KEYS.encode()},
    "image_has_few_columns": {"30,001 columns": _at(_INSERT, "payload.after.dataColumn", {"id": 1, **_WIDE})},
    "names_of_image_are_short": {"129 characters": _at(_INSERT, "payload.after.dataColumn", {"id": 1, "n" * 129: 1})},
    "tableName.not_null": {"absent": _at(_INSERT, "schema.source.tableName")},
    "tableName.str_length": {
        "empty": _at(_INSERT, "schema.source.tableName", ""),
        **{f"{form}, long": _at(_FORMS[form], "schema.source.tableName", "t" * 129) for form in _NAMED},
    },
    "eventTime.not_null": {form: _at(message, "payload.timestamp.eventTime", None) for form, message in _FORMS.items()}
    | {"no timestamp": _at(_INSERT, "payload.timestamp"), "absent": _at(_INSERT, "payload.timestamp.eventTime")},
    "eventTime.in_range": {
        f"{form}, 10 digits": _at(message, "payload.timestamp.eventTime", _TIME // 1000)
        for form, message in _FORMS.items()
    }
    | {
        "0": _at(_INSERT, "payload.timestamp.eventTime", 0),
        "12 digits": _at(_INSERT, "payload.timestamp.eventTime", 10**12 - 1),
        "14 digits": _at(_INSERT, "payload.timestamp.eventTime", 10**13),
    },
    "systemTime.in_range": {form: _at(message, "payload.timestamp.systemTime", 2) for form, message in _FORMS.items()},
    "ddlText.not_null": {
        "no ddl": _at(_ALTER, "payload.ddl", None),
        "null": _at(_ALTER, "payload.ddl.text", None),
        "another database's": _at(_OTHER_DDL, "payload.ddl", None),
    },
    "ddlText.str_length": {
        f"{form}, {name}": _at(message, "payload.ddl.text", text)
        for form, message in {"ddl": _ALTER, "another database's": _OTHER_DDL}.items()
        for name, text in {"empty": "", "of 4 MB": "x" * (STATEMENT + 1)}.items()
    },
    "sequence_is_number": {
        **{
            f"{text!r}": _at(_INSERT, "payload.sequenceId", text)
            for text in ("XXX", "", " ", "12a", "-1", "+1", "1.5", "1e3", " 1", "1 ", "1\n", "１", "0x1F", "9" * 20)
        },
        "2^63": _at(_INSERT, "payload.sequenceId", str(2**63)),
        "a JSON fraction": _at(_INSERT, "payload.sequenceId", 1.5),
        "ddl": _at(_ALTER, "payload.sequenceId", "XXX"),
        "another database's ddl": _at(_OTHER_DDL, "payload.sequenceId", "XXX"),
    },
    "images_fit_op": {
        "insert without after": _at(_INSERT, "payload.after", None),
        "insert of no columns": _at(_INSERT, "payload.after.dataColumn", {}),
        "insert without dataColumn": _at(_INSERT, "payload.after", {}),
        "insert with before": _at(_UPDATE, "payload.op", "INSERT"),
        "delete without before": _at(_DELETE, "payload.before", None),
        "no columns but the row id": dataworks("INSERT", "t", 1, after={ROW_ID: 15}).encode(),
        "delete of the row id alone": dataworks("DELETE", "t", 1, before={ROW_ID: 15}).encode(),
        "delete of no columns": _at(_DELETE, "payload.before.dataColumn", {}),
        "delete with after": _at(_UPDATE, "payload.op", "DELETE"),
        "first half with after": _at(_UPDATE, "payload.op", "UPDATE_BEFOR"),
        "first half without before": _at(_BEFORE, "payload.before", None),
        "second half without after": _at(_AFTER, "payload.after", None),
        "update without after": _at(_UPDATE, "payload.after", None),
    },
    "key_is_in_image": {
        "insert": _at(_INSERT, "schema.primaryKey", ["no"]),
        "one of two": _at(_UPDATE, "schema.primaryKey", ["id", "no"]),
        "other letters": _at(_INSERT, "schema.primaryKey", ["ID"]),
        "first half": _at(_BEFORE, "schema.primaryKey", ["no"]),
        "delete": _at(_DELETE, "schema.primaryKey", ["no"]),
    },
    "value_is_json_object": {
        "a payload that is a text": _at(_INSERT, "payload", "x"),
        "an eventTime that is a text": _at(_INSERT, "payload.timestamp.eventTime", str(_TIME)),
        "an eventTime that is a fraction": _at(_INSERT, "payload.timestamp.eventTime", _TIME + 0.5),
        "an image that is a list": _at(_INSERT, "payload.after.dataColumn", [1]),
        "a primaryKey that is a text": _at(_INSERT, "schema.primaryKey", "id"),
        "a source that is a text": _at(_INSERT, "schema.source", "x"),
        "cut short": _INSERT.encode()[:-1],
    },
    "isDdl.not_null": {"a payload that is null": _at(_INSERT, "payload", None)},
}
_VALUES = named(_GOOD, _BAD)
_OF_OTHERS = {"value_is_json_object", "isDdl.not_null"}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> Columns:
    return by_name(decode_with_reasons(raw(spark, _VALUES)), _VALUES)


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
    assert says(found["reason"], rule, value), found["reason"]


def test_each_rule_has_a_case(spark: SparkSession) -> None:
    identified_by = {form.name: ["op"] for form in DATAWORKS.forms if form.kind != unified.ROW}
    wanted = breakable(DATAWORKS, identified_by)
    assert broken_by_form(spark, _BAD, DATAWORKS) >= wanted
    assert set(_BAD) - _OF_OTHERS == {rule for _, rule in wanted}


def test_reason_names_what_is_there(rows: Columns) -> None:
    ops = "INSERT, UPDATE_BEFOR, UPDATE_AFTER, DELETE"
    wanted = {
        "op.isin: unknown": f"expected: op is one of {ops}, found UPSERT",
        "eventTime.in_range: 0": "expected: eventTime is between 1000000000000 and 9999999999999, found 0",
        "eventTime.not_null: absent": "expected: eventTime is not null, found null",
        "key_is_in_image: insert": "expected: each column of primaryKey is in the row",
    }
    assert {name: rows[name]["reason"] for name in wanted} == wanted


def test_columns_are_in_the_order_of_the_message(rows: Columns) -> None:
    found = rows["good: the document's update"]
    assert found["before_names"] == found["after_names"] == [["name", "job", "sex"]]
