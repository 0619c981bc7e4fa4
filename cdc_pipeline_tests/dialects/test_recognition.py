"""The dialect of each record: all dialects in one topic, and a pipeline that declares one."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.contracts.rules import model_rules, rejecting_rules
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.counts import ObservedFrame
from cdc_pipeline.dialects.decode import EXPECTATIONS, DialectName, decode, decode_with_reasons, has_one_row
from cdc_pipeline.dialects.dialect import COLUMNS
from cdc_pipeline.dialects.envelope import JSON_RULES
from cdc_pipeline.dialects.traits import DIALECTS
from cdc_pipeline_tests.support.dialect_cases import Columns, by_name, changed, raw, without
from cdc_pipeline_tests.support.messages import canal, canal_ddl, dataworks, ddl, row, watermark

_ROW: dict[str, str | None] = {"id": "1", "v": "a"}
_OF_ORACLE = dataworks("ERASE", "t", 2, sql='DROP TABLE "t"').replace("MySQL", "Oracle").encode()
# (dialect, kind) → messages
_MESSAGES: dict[str, dict[str, tuple[bytes, str]]] = {
    "ticdc": {
        "row": (row("INSERT", "t", 1, _ROW, key=["id"]).encode(), unified.ROW),
        "row without the extension": (row("INSERT", "t", 1, _ROW, extension=False).encode(), unified.ROW),
        "row with the extension only": (without(row("INSERT", "t", 1, _ROW), "id"), unified.ROW),
        "row with an empty extension": (changed(row("INSERT", "t", 1, _ROW), _tidb={}, id=3), unified.DEAD),
        "ddl": (ddl("DROP TABLE t", 2, table="t", kind="ERASE").encode(), unified.DDL),
        "ddl without the extension": (ddl("DROP TABLE t", 2, table="t", extension=False).encode(), unified.DDL),
        "watermark": (watermark(3).encode(), unified.WATERMARK),
    },
    "canal": {
        "row": (canal("INSERT", "t", 1, [_ROW], key=["id"]).encode(), unified.ROW),
        "rows": (canal("INSERT", "t", 1, [_ROW, _ROW]).encode(), unified.ROW),
        "row without a batch number": (without(canal("INSERT", "t", 1, [_ROW]), "id"), unified.ROW),
        "ddl": (canal_ddl("DROP TABLE t", 2, table="t", kind="ERASE").encode(), unified.DDL),
        "statement": (canal("UPDATE", "t", 3, None, sql="UPDATE t SET v = 1").encode(), unified.STATEMENT),
        "query": (canal("QUERY", "", 4, None, database="", sql="DELETE FROM t").encode(), unified.QUERY_TEXT),
        "xa": (canal("XAROLLBACK", "", 5, None, database="", sql="XA ROLLBACK X'7832',X'',1").encode(), unified.XA),
    },
    "dataworks": {
        "row": (dataworks("INSERT", "t", 1, after=dict(_ROW)).encode(), unified.ROW),
        "ddl": (dataworks("ERASE", "t", 2, sql="DROP TABLE t").encode(), unified.DDL),
        "ddl of another database": (_OF_ORACLE, unified.OTHER_DDL),
        "heartbeat": (dataworks("MHEARTBEAT", None, 3).encode(), unified.HEARTBEAT),
        "transaction": (dataworks("TRANSACTION_BEGIN", None, 3).encode(), unified.TRANSACTION),
        "xa": (dataworks("XACOMMIT", None, 3).encode(), unified.XA),
    },
}
_OWNERS = {f"{dialect} {name}": dialect for dialect, messages in _MESSAGES.items() for name in messages}
_KINDS = {f"{dialect} {name}": kind for dialect, messages in _MESSAGES.items() for name, (_, kind) in messages.items()}
_VALUES: dict[str, bytes | None] = {
    **{f"{dialect} {name}": value for dialect, messages in _MESSAGES.items() for name, (value, _) in messages.items()},
    "tombstone": None,
    "no JSON": b"{",
    "another JSON document": b'{"order": 1}',
}
_DIALECTS: tuple[DialectName, ...] = ("ticdc", "canal", "dataworks")


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[DialectName, Columns]:
    names: tuple[DialectName, ...] = ("auto", *_DIALECTS)
    records = raw(spark, _VALUES)
    return {name: by_name(decode_with_reasons(records, name), _VALUES) for name in names}


def test_each_record_of_a_mixed_topic_is_recognised(rows: dict[DialectName, Columns]) -> None:
    found = {name: (rows["auto"][name]["dialect"], rows["auto"][name]["kind"]) for name in _OWNERS}
    assert found == {name: (dialect, _KINDS[name]) for name, dialect in _OWNERS.items()}


@pytest.mark.parametrize("dialect", _DIALECTS)
def test_a_fixed_dialect_reads_its_own_messages_as_auto_does(
    dialect: DialectName, rows: dict[DialectName, Columns]
) -> None:
    own = [name for name, owner in _OWNERS.items() if owner == dialect]
    assert {name: rows[dialect][name] for name in own} == {name: rows["auto"][name] for name in own}


@pytest.mark.parametrize("expected", [("ticdc",), ("canal",), ("dataworks",), ("canal", "ticdc")])
def test_messages_of_unexpected_dialects_have_no_kind(
    expected: tuple[str, ...], rows: dict[DialectName, Columns], spark: SparkSession
) -> None:
    """Those of expected ones, and what no dialect can have written, are decoded as ever."""
    frame = decode(raw(spark, _VALUES), "auto", expected)
    found, wanted = by_name(frame, _VALUES), rows["auto"]
    own = {name for name in _VALUES if wanted[name]["dialect"] in expected or name in ("tombstone", "no JSON")}
    assert {name for name in _VALUES if found[name]["kind"] is not None} == own
    columns = ["kind", "rule", "dialect", *COLUMNS]
    rows_of = [name for name in own if wanted[name]["kind"] == unified.ROW]
    assert [[found[name][column] for column in columns] for name in rows_of] == [
        [wanted[name][column] for column in columns] for name in rows_of
    ]
    single = has_one_row("auto", expected)
    assert single is ("canal" not in expected)
    taken, exploded = (unified.row_changes(ObservedFrame(frame).frame, one_row=one_row) for one_row in (single, False))
    assert sorted(map(str, taken.collect())) == sorted(map(str, exploded.collect()))


# Without the TiDB extension only `id` separates TiCDC from Canal: then the declared dialect wins.
_TAKEN = {
    "ticdc": {"canal row", "canal row without a batch number", "canal ddl"},
    "canal": {"ticdc row without the extension", "ticdc ddl without the extension"},
    "dataworks": set[str](),
}


@pytest.mark.parametrize("dialect", _DIALECTS)
def test_a_fixed_dialect_takes_no_message_that_is_surely_of_another(
    dialect: DialectName, rows: dict[DialectName, Columns]
) -> None:
    others = {name: rows[dialect][name]["kind"] for name, owner in _OWNERS.items() if owner != dialect}
    assert {name for name, kind in others.items() if kind != unified.DEAD} == _TAKEN[dialect]


def test_the_rule_of_a_message_of_another_dialect(rows: dict[DialectName, Columns]) -> None:
    found = rows["canal"]["ticdc watermark"]
    assert (found["rule"], found["reason"]) == (
        "dialect_is_declared",
        "expected: the message has the dialect that the pipeline declares",
    )


@pytest.mark.parametrize("dialect", ["auto", *_DIALECTS])
def test_what_is_of_no_dialect(dialect: DialectName, rows: dict[DialectName, Columns]) -> None:
    found = {name: rows[dialect][name]["kind"] for name in _VALUES if name not in _OWNERS}
    assert found == {"tombstone": unified.EMPTY, "no JSON": unified.DEAD, "another JSON document": unified.DEAD}


def test_expectations_are_those_of_all_contracts() -> None:
    """The tests of the dialects together have a case for each rule."""
    forms = [form for dialect in DIALECTS for form in dialect.forms]
    rules = {rule.name for form in forms for rule in rejecting_rules(model_rules(form.contract))}
    assert set(EXPECTATIONS) == {*rules, *JSON_RULES, "dialect_is_declared", "table_is_declared"}
