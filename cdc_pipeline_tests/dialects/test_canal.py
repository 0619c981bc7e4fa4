from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.contracts.limits import COLUMNS, STATEMENT
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.decode import EXPECTATIONS, decode_with_reasons
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
from cdc_pipeline_tests.support.messages import EPOCH_MS, canal, canal_ddl

_Image = dict[str, "str | None"]


def _row(key: int, name: str | None = "a") -> _Image:
    return {"id": str(key), "name": name}


_ONE, _TWO, _THREE = _row(1), _row(2, "b"), _row(3, None)
_INSERT = canal("INSERT", "t", 1, [_ONE, _TWO, _THREE], key=["id"])
_UPDATE = canal("UPDATE", "t", 2, [_ONE, _TWO], old=[{"name": "x"}, {"name": "y"}], key=["id"])
_DELETE = canal("DELETE", "t", 3, [_ONE, _TWO], key=["id"])
_DDL = canal_ddl("ALTER TABLE t ADD COLUMN c INT", 4, table="t")
_QUERY = canal("QUERY", "", 5, None, database="", sql="INSERT INTO t VALUES (1, 'a')")
_COMMIT = canal("XACOMMIT", "", 6, None, database="", sql="XA COMMIT X'7831',X'',1")
_ROLLBACK = canal("XAROLLBACK", "", 7, None, database="", sql="XA ROLLBACK X'7832',X'',1")
_STATEMENT = canal("UPDATE", "st", 8, None, sql="UPDATE st SET v=v*10")
_JSON_TYPES = {"id": "int", "j": "json", "note": "longtext"}
_ES = EPOCH_MS + 1000


def _json(column: str, value: str) -> str:
    """An UPDATE of two rows, the second of which has the value."""
    whole: _Image = {"id": "1", "j": "{}", "note": ""}
    old: list[_Image] = [{column: "1"}, {column: "2"}]
    return canal("UPDATE", "t", 1, [whole, {**whole, column: value}], old=old, types=_JSON_TYPES, key=["id"])


def _nulls_left_out() -> Good:
    """Messages without the columns that are NULL. `_THREE` has a NULL name."""
    sparse: list[_Image] = [{"id": "1", "name": "a"}, {"id": "3"}]
    types = {"id": "int", "name": "enum('},\"','b')"}
    insert = canal("INSERT", "t", 1, sparse, types=types)
    whole = {"key_names": None, "rows": [(None, _ONE), (None, _THREE)]}
    compact = json.dumps(json.loads(insert), separators=(",", ":"))
    codes = {"id": 4, "name": 12}
    named_so: _Image = {"mysqlType": "1", "sqlType": '"mysqlType":{"x":1}'}
    return {
        "nulls left out": (insert.encode(), whole),
        "nulls left out, written without spaces": (compact.encode(), whole),
        "nulls left out, spaces before colons": (insert.replace(":", " : ").encode(), {"rows": whole["rows"]}),
        "nulls left out, and pkNames": (without(insert, "pkNames"), {**whole, "key_names": []}),
        "nulls left out, sqlType alone": (changed(insert, mysqlType=None, sqlType=codes), whole),
        "nulls left out, no mysqlType": (without(changed(insert, sqlType=codes).decode(), "mysqlType"), whole),
        "columns that no type names": (
            changed(insert, mysqlType=None, sqlType=None),
            {"rows": [(None, _ONE), (None, {"id": "3"})]},
        ),
        "columns named like fields": (
            canal(
                "UPDATE", "t", 1, [named_so], old=[named_so], types={**dict.fromkeys(named_so, "text"), "x": "int"}
            ).encode(),
            {"rows": [(named_so, {**named_so, "x": None})]},
        ),
        "update to null with nulls left out": (
            without(canal("UPDATE", "t", 1, [{"id": "3"}], old=[{"name": "x"}], types=types), "pkNames"),
            {"key_names": [], "rows": [({"name": "x"}, _THREE)]},
        ),
        "delete with nulls left out": (
            canal("DELETE", "t", 1, sparse, types=types).encode(),
            {"rows": [(_ONE, None), (_THREE, None)]},
        ),
        "delete with nulls left out, rows in old": (
            changed(canal("DELETE", "t", 1, None, types=types), old=sparse),
            {"rows": [(_ONE, None), (_THREE, None)]},
        ),
        "a minimal insert": (
            canal("INSERT", "t", 1, [{"name": "a"}], types={"name": "int"}).encode(),
            {"rows": [(None, {"name": "a"})]},
        ),
        "a type fewer than columns": (
            canal("INSERT", "t", 1, [_ONE], types={"name": "int"}).encode(),
            {"rows": [(None, _ONE)]},
        ),
    }


def _hidden_keys() -> Good:
    """Rows of tables without a primary key on Alibaba RDS and PolarDB-X."""
    found: Good = {}
    for name in ("#alibaba_rds_row_id#", "__#alibaba_rds_row_id#__", "_drds_implicit_id_"):
        types = {"id": "int", "name": "text", name: "bigint"}
        row, changed_row = {**_ONE, name: "15"}, {**_TWO, name: "16"}
        found |= {
            f"insert with {name}": (
                canal("INSERT", "t", 1, [row, changed_row], types=types, key=[name]).encode(),
                {"key_names": None, "rows": [(None, _ONE), (None, _TWO)]},
            ),
            f"update with {name}": (
                canal("UPDATE", "t", 1, [row], old=[{"name": "x"}], types=types, key=[name]).encode(),
                {"key_names": None, "rows": [({"name": "x"}, _ONE)]},
            ),
            f"delete with {name}": (
                canal("DELETE", "t", 1, [row], types=types, key=[name]).encode(),
                {"key_names": None, "rows": [(_ONE, None)]},
            ),
        }
    return found


_GOOD: Good = {
    "insert of several rows": (
        _INSERT.encode(),
        {
            "kind": unified.ROW,
            "rule": None,
            "column": None,
            "reason": None,
            "dialect": "canal",
            "database": "db",
            "table": "t",
            "type": "INSERT",
            "op": "INSERT",
            "commit_ts": _ES << 18,
            "exact_ts": False,
            "watermark_ts": None,
            "es": _ES,
            "ts": _ES + 312,
            "sql": "",
            "key_names": ["id"],
            "rows": [(None, _ONE), (None, _TWO), (None, _THREE)],
        },
    ),
    "insert of equal rows": (
        canal("INSERT", "t", 1, [_ONE, _TWO, _ONE, _ONE]).encode(),
        {"kind": unified.ROW, "rows": [(None, _ONE), (None, _TWO), (None, _ONE), (None, _ONE)]},
    ),
    "insert with an empty old": (changed(_INSERT, old=[]), {"kind": unified.ROW}),
    "a row of a full load": (
        changed(_INSERT, type="INIT"),
        {"kind": unified.ROW, "rule": None, "op": "INSERT", "rows": [(None, _ONE), (None, _TWO), (None, _THREE)]},
    ),
    "update with the changed columns in old": (
        _UPDATE.encode(),
        {"kind": unified.ROW, "op": "UPDATE", "rows": [({"name": "x"}, _ONE), ({"name": "y"}, _TWO)]},
    ),
    "update from null": (
        changed(_UPDATE, old=[{"name": None}, {"name": "y"}]),
        {"rows": [({"name": None}, _ONE), ({"name": "y"}, _TWO)]},
    ),
    "old has a column that changed in an earlier row": (
        canal("UPDATE", "t", 2, [_row(1, "b"), _row(3, "c")], old=[{"id": "2"}, {"id": "3", "name": "b"}]).encode(),
        {"kind": unified.ROW, "rows": [({"id": "2"}, _row(1, "b")), ({"id": "3", "name": "b"}, _row(3, "c"))]},
    ),
    **{
        f"update, {name}": (value, {"kind": unified.ROW, "rule": None, "rows": [(None, _ONE), (None, _TWO)]})
        for name, value in {
            "old null": changed(_UPDATE, old=None),
            "old absent": without(_UPDATE, "old"),
            "old empty": changed(_UPDATE, old=[]),
            "old shorter": changed(_UPDATE, old=[{"name": "x"}]),
            "old longer": changed(_UPDATE, old=[{"name": "x"}, {"name": "y"}, {"name": "z"}]),
            "old null and no pkNames": without(changed(_UPDATE, old=None).decode(), "pkNames"),
            "rows of old without columns, and no pkNames": without(changed(_UPDATE, old=[{}, {}]).decode(), "pkNames"),
        }.items()
    },
    "one row of old is empty": (
        changed(_UPDATE, old=[{"name": "x"}, {}]),
        {"kind": unified.ROW, "rows": [({"name": "x"}, _ONE), (None, _TWO)]},
    ),
    "one row of old is null": (
        changed(_UPDATE, old=[None, {"name": "y"}]),
        {"kind": unified.ROW, "rows": [(None, _ONE), ({"name": "y"}, _TWO)]},
    ),
    **_nulls_left_out(),
    "a chain of keys": (
        canal("UPDATE", "t", 2, [_row(4), _row(3), _row(2)], old=[{"id": "3"}, {"id": "2"}, {"id": "1"}]).encode(),
        {"rows": [({"id": "3"}, _row(4)), ({"id": "2"}, _row(3)), ({"id": "1"}, _row(2))]},
    ),
    "delete with rows in data": (
        _DELETE.encode(),
        {"kind": unified.ROW, "op": "DELETE", "rows": [(_ONE, None), (_TWO, None)]},
    ),
    "delete of equal rows": (
        canal("DELETE", "t", 3, [_ONE, _ONE]).encode(),
        {"rows": [(_ONE, None), (_ONE, None)]},
    ),
    "delete with rows in old, data null": (
        changed(_DELETE, data=None, old=[_ONE, _TWO]),
        {"kind": unified.ROW, "rows": [(_ONE, None), (_TWO, None)]},
    ),
    "delete with rows in old, data empty": (
        changed(_DELETE, data=[], old=[_ONE, _TWO]),
        {"kind": unified.ROW, "rows": [(_ONE, None), (_TWO, None)]},
    ),
    "delete of the key only": (
        canal("DELETE", "t", 3, [{"id": "1"}]).encode(),
        {"kind": unified.ROW, "rows": [({"id": "1"}, None)]},
    ),
    "a text column that begins like an expression": (
        _json("note", "JSON_SET(`j`, '$.a', 2)").encode(),
        {"kind": unified.ROW, "rule": None},
    ),
    "a JSON text that begins like an expression": (
        _json("j", '"JSON_SET(a"').encode(),
        {"kind": unified.ROW, "rule": None},
    ),
    "what begins like an expression, without types": (
        changed(_json("note", "JSON_SET(`j`, '$.a', 2)"), mysqlType="longtext"),
        {"kind": unified.ROW, "rule": None},
    ),
    "what begins like an expression only in old": (
        changed(_json("j", "{}"), old=[{"j": "JSON_SET(a"}, {"j": "1"}]),
        {"kind": unified.ROW, "rule": None},
    ),
    "a statement whose rows follow": (
        _QUERY.encode(),
        {"kind": unified.QUERY_TEXT, "dialect": "canal", "rule": None, "rows": None},
    ),
    "a statement whose rows follow, from MySQL": (changed(_QUERY, table="st"), {"kind": unified.QUERY_TEXT}),
    **{
        f"{sql[:90]}, as Canal 1.1.2 to 1.1.4 send it": (
            canal("QUERY", "", 5, None, database="lab", sql=sql).encode(),
            {"kind": kind, "database": "lab", "sql": sql},
        )
        for sql, kind in {
            "DROP DATABASE lab": unified.DDL,
            "/* gh-ost */ -- x\n# y\n alter table t add c int invisible": unified.DDL,
            "/*!50003 ALTER TABLE t ADD c INT */": unified.DDL,
            "/*M!100301 CREATE OR REPLACE TABLE t (a INT) */": unified.DDL,
            "TRUNCATE t": unified.DDL,
            "CREATE TABLE t (a INT) COMMENT='a table to select' PARTITION BY RANGE (a) (PARTITION p VALUES LESS THAN (1))": (
                unified.DDL
            ),
            "/* create table v2 */ ALTER TABLE t ADD `select` INT INVISIBLE": unified.DDL,
            "/* x */" + " \n" * 50_000 + "-- y\n" * 9_000 + "DROP DATABASE lab": unified.DDL,
            "CREATE TABLE t VALUES (1), (2)": unified.QUERY_TEXT,
            "/* web */ INSERT INTO log(q) VALUES ('/* gh-ost */ alter table x')": unified.QUERY_TEXT,
            "CREATE TABLE t SELECT 1 AS a": unified.QUERY_TEXT,
            "CREATE TABLE t (a INT) TABLE s": unified.QUERY_TEXT,
            "/* ALTER */ UPDATE t SET a = 1": unified.QUERY_TEXT,
            "-- DROP\nREPLACE INTO t VALUES (1)": unified.QUERY_TEXT,
            "altered": unified.QUERY_TEXT,
        }.items()
    },
    **_hidden_keys(),
    "XA COMMIT": (_COMMIT.encode(), {"kind": unified.XA, "type": "XACOMMIT", "rule": None}),
    "XA ROLLBACK": (_ROLLBACK.encode(), {"kind": unified.XA, "type": "XAROLLBACK", "rule": None}),
    **{
        f"{op} as its statement": (
            changed(_STATEMENT, type=op),
            {
                "kind": unified.STATEMENT,
                "rule": None,
                "database": "db",
                "table": "st",
                "type": op,
                "sql": "UPDATE st SET v=v*10",
                "rows": None,
            },
        )
        for op in ("INSERT", "UPDATE", "DELETE")
    },
    **{
        f"database {written}": (changed(_DDL, database=written, table=""), {"kind": unified.DDL, "database": name})
        for written, name in {
            "`lab1`": "lab1",
            "lab1": "lab1",
            "`a``b`": "a`b",
            "a`b": "a`b",
            "``": "``",
            "`": "`",
            "`数据`": "数据",
        }.items()
    },
    "gtid": (changed(_INSERT, gtid="3E11FA47-71CA-11E1-9E33-C80AA9429562:1-108"), {"kind": unified.ROW}),
    "13 keys, no gtid": (without(_INSERT, "gtid"), {"kind": unified.ROW, "dialect": "canal"}),
    "no key": (changed(_INSERT, pkNames=None), {"kind": unified.ROW, "key_names": None}),
    "a stale key": (changed(_INSERT, pkNames=["gone"]), {"kind": unified.ROW, "key_names": ["gone"]}),
    "another batch": (changed(_INSERT, id=1), {"kind": unified.ROW, "dialect": "canal"}),
    "sql null": (changed(_INSERT, sql=None), {"kind": unified.ROW, "sql": None}),
    "no ts": (without(_INSERT, "ts"), {"kind": unified.ROW, "ts": None}),
    "the first es": (changed(_INSERT, es=10**12), {"commit_ts": 10**12 << 18}),
    "the last es": (changed(_INSERT, es=10**13 - 1), {"commit_ts": (10**13 - 1) << 18}),
    **{
        f"ddl {kind}": (
            changed(_DDL, type=kind),
            {
                "kind": unified.DDL,
                "dialect": "canal",
                "type": kind,
                "table": "t",
                "sql": "ALTER TABLE t ADD COLUMN c INT",
                "commit_ts": (EPOCH_MS + 4000) << 18,
                "exact_ts": False,
                "rows": None,
            },
        )
        for kind in ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "QUERY", "NEW")
    },
    **{
        f"ddl {kind} that isDdl does not mark": (
            changed(_DDL, type=kind, isDdl=False),
            {"kind": unified.DDL, "rule": None, "table": "t", "type": kind, "sql": "ALTER TABLE t ADD COLUMN c INT"},
        )
        for kind in ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "DDL", "INIT_DDL")
    },
    "ddl QUERY that Canal could not read": (
        changed(_DDL, type="QUERY", database="", table=""),
        {"kind": unified.DDL, "database": "", "table": ""},
    ),
    "ddl without a type": (changed(_DDL, type=None), {"kind": unified.DDL, "type": None}),
}

_MINIMAL = canal("UPDATE", "t", 2, [{"name": "b"}], old=[{}])
_FORMS = {
    "row": _INSERT,
    "ddl": _DDL,
    "statement": _STATEMENT,
    "query": _QUERY,
    "xa": _COMMIT,
}
_WIDE = {f"c{place}": "1" for place in range(COLUMNS + 1)}
_BAD: Bad = {
    "es.in_range": {f"{form}, 10 digits": changed(value, es=_ES // 1000) for form, value in _FORMS.items()}
    | {
        "12 digits": changed(_INSERT, es=10**12 - 1),
        "14 digits": changed(_INSERT, es=10**13),
        "0": changed(_INSERT, es=0),
        "before 1970": changed(_INSERT, es=-_ES),
    },
    "es.not_null": {form: without(value, "es") for form, value in _FORMS.items()} | {"null": changed(_INSERT, es=None)},
    "ts_is_ms": {form: changed(value, ts=_ES * 1000) for form, value in _FORMS.items()},
    "rows_are_of_row_changes": {
        "a ddl with rows": changed(_DDL, data=[_ONE]),
        "a ddl with rows in old": changed(_DDL, old=[_ONE]),
        "the text of a statement with rows": changed(_QUERY, data=[_ONE]),
        "the end of a transaction with rows": changed(_COMMIT, old=[_ONE]),
    },
    "database_is_short": {
        "a name of 65 characters": changed(_DDL, database="d" * 65),
        "one of 65 in quotes": changed(_DDL, database="`" + "``" * 64 + "d`"),
    },
    "columns_are_few": {
        "4,097 columns": changed(_INSERT, data=[_WIDE]),
        "4,097 columns in the second row": changed(_INSERT, data=[_ONE, _WIDE]),
        "4,097 columns in old": changed(_UPDATE, old=[_ONE, _WIDE]),
    },
    "column_names_are_short": {"a name of 65 characters": changed(_INSERT, data=[{"n" * 65: "1"}])},
    "key_is_short": {"33 names": changed(_INSERT, pkNames=[f"k{place}" for place in range(33)])},
    "isDdl.not_null": {form: changed(value, isDdl=None) for form, value in _FORMS.items() if form != "ddl"}
    | {
        "absent": without(_INSERT, "isDdl"),
        "a ddl without it": without(_DDL, "isDdl"),
    },
    "database.not_null": {"null": changed(_INSERT, database=None)},
    "database.str_length": {"empty": changed(_INSERT, database=""), "long": changed(_INSERT, database="d" * 65)},
    "table.not_null": {"row": changed(_INSERT, table=None), "statement": changed(_STATEMENT, table=None)},
    "table.str_length": {"row": changed(_INSERT, table=""), "statement": changed(_STATEMENT, table="")}
    | {f"{form}, 65 characters": changed(_FORMS[form], table="t" * 65) for form in ("row", "ddl", "statement")},
    "type.not_null": {"null": changed(_INSERT, type=None)},
    "type.isin": {
        "unknown": changed(_INSERT, type="REPLACE"),
        "small letters": changed(_INSERT, type="insert"),
        "ddl that isDdl does not mark, with rows": changed(_DDL, isDdl=False, data=[_ONE]),
        "ddl that isDdl does not mark, without a statement": changed(_DDL, isDdl=False, sql=""),
    },
    "sql.not_null": {"ddl": changed(_DDL, sql=None)},
    "sql.str_length": {"ddl": changed(_DDL, sql=""), "a ddl of 4 MB": changed(_DDL, sql="x" * (STATEMENT + 1))},
    "sql_is_of_ddl": {"a row with its statement": changed(_INSERT, sql="INSERT INTO t VALUES (1)")},
    "old_is_of_update": {
        "insert": changed(_INSERT, old=[_ONE, _TWO, _THREE]),
        "full load": changed(_INSERT, type="INIT", old=[_ONE, _TWO, _THREE]),
    },
    "data_has_rows": {
        **{
            f"{op}, data null and no statement": changed(_STATEMENT, type=op, sql=sql)
            for op, sql in {"INSERT": "", "UPDATE": None, "DELETE": ""}.items()
        },
        "insert of no rows": changed(_INSERT, data=[]),
        "a full load without rows": changed(_INSERT, type="INIT", data=None),
        "update of no rows": changed(_UPDATE, data=[], old=[]),
        "insert of a null row": changed(_INSERT, data=[_ONE, None]),
        "insert of a row without columns": changed(_INSERT, data=[{}, _ONE]),
        "update to a null row": changed(_UPDATE, data=[None, _TWO]),
        "delete of no rows": changed(_DELETE, data=[], old=[]),
        "delete of a null row": changed(_DELETE, data=[_ONE, None]),
        "delete of a null row in old": changed(_DELETE, data=None, old=[None]),
        "delete of a row without columns in old": changed(_DELETE, data=None, old=[_ONE, {}]),
        "insert with rows in old only": changed(_INSERT, data=None, old=[]),
    },
    "old_keeps_the_key": {
        "one old less": changed(_UPDATE, old=[_ONE]),
        "one old more": changed(_UPDATE, old=[_ONE, _TWO, _THREE]),
        "one old less, without a key": changed(_UPDATE, old=[{"name": "x"}], pkNames=None),
        "one old less, without pkNames": without(changed(_UPDATE, old=[{"name": "x"}]).decode(), "pkNames"),
    },
    "values_are_whole": {
        "JSON_SET": _json("j", "JSON_SET(`j`, '$.a', 2)").encode(),
        "JSON_REPLACE": _json("j", "JSON_REPLACE(j, '$.a', 2)").encode(),
        "JSON_REMOVE in capitals' type": changed(
            _json("j", "JSON_REMOVE(j, '$.a')"), mysqlType={**_JSON_TYPES, "j": "JSON"}
        ),
    },
    "image_has_key": {
        "a minimal image": _MINIMAL.encode(),
        "a minimal image, old null": changed(_MINIMAL, old=None),
        "written without spaces": json.dumps(json.loads(_MINIMAL), separators=(",", ":")).encode(),
        "one of two rows": changed(_UPDATE, old=[{"name": "x"}, {}], pkNames=None),
        "one of two rows, null": changed(_UPDATE, old=[{"name": "x"}, None], pkNames=None),
    },
    "value_is_json_object": {
        "data an object": changed(_INSERT, data=_ONE),
        "SeaTunnel": b'{"data":{"id":1,"name":"a"},"type":"INSERT"}',
        "es a text": changed(_INSERT, es=str(_ES)),
        "cut short": _INSERT.encode()[:-2],
    },
}
_VALUES = named(_GOOD, _BAD)


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> Iterator[DataFrame]:
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
    assert says(found["reason"], rule, value), found["reason"]


def test_each_rule_has_a_case(spark: SparkSession) -> None:
    identified_by = {
        "canal_ddl": ["isDdl"],
        "canal_statement": ["type", "sql"],
        "canal_query": ["type"],
        "canal_xa": ["type"],
    }
    wanted = breakable(CANAL, identified_by)
    assert broken_by_form(spark, _BAD, CANAL) >= wanted
    assert {rule for rule in _BAD if rule != "value_is_json_object"} == {rule for _, rule in wanted}


def test_reason_names_what_is_there(rows: Columns) -> None:
    wanted = {
        "type.isin: unknown": "expected: type is one of INSERT, UPDATE, DELETE, found REPLACE",
        "es.in_range: 0": "expected: es is between 1000000000000 and 9999999999999, found 0",
        "isDdl.not_null: row": "expected: isDdl is not null, found null",
        "data_has_rows: insert of no rows": f"expected: {EXPECTATIONS['data_has_rows'][0]}",
    }
    assert {name: rows[name]["reason"] for name in wanted} == wanted


def test_rows_of_a_message_are_numbered(frame: DataFrame) -> None:
    names = ["insert of equal rows", "a chain of keys", "delete with rows in old, data null"]
    offsets = {list(_VALUES).index(f"good: {name}"): name for name in names}
    changes = unified.row_changes(frame).where(f"offset IN ({', '.join(map(str, offsets))})")
    found: dict[str, list[Any]] = {name: [] for name in names}
    for change in sorted(changes.collect(), key=lambda change: (change["offset"], change["row"])):
        found[offsets[change["offset"]]].append((change["row"], change["before"], change["after"]))
    assert found == {name: [(place, *images) for place, images in enumerate(_GOOD[name][1]["rows"])] for name in names}


def test_columns_are_in_the_order_of_the_message(rows: Columns) -> None:
    assert rows["good: insert of several rows"]["after_names"] == [["id", "name"]] * 3
    assert list(json.loads(_INSERT)["data"][0]) == ["id", "name"]
