"""DDL in histories: each kind occurs, messages equal those of real encoders, and its effect is that of MySQL."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model import schema_changes
from cdc_pipeline_tests.histories.ddl import (
    FIRST,
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    Clause,
    Column,
    DropColumn,
    DropKey,
    DropTables,
    EmptyParts,
    ExchangePartition,
    RenameColumn,
    RenameTables,
    Repartition,
    Statement,
    alter,
)
from cdc_pipeline_tests.histories.encoders import MODES, has_watermarks
from cdc_pipeline_tests.histories.history import History
from cdc_pipeline_tests.histories.message import physical_ms
from cdc_pipeline_tests.histories.shapes import Partitioning, Table
from cdc_pipeline_tests.histories.strategies import history_of_seed
from cdc_pipeline_tests.histories.tables import table_of
from cdc_pipeline_tests.histories.ticdc import TICDC_MODES
from cdc_pipeline_tests.histories.upstream import START_TSO, Ddl, Transaction, Upstream
from cdc_pipeline_tests.support.messages import EPOCH_MS

_SEEDS = range(150)
_TYPES = {"CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX", "QUERY"}


@cache
def _history(seed: int, mode: str) -> History:
    return history_of_seed(seed, transactions=15, mode=mode, ambiguous=False)


def _ddl(mode: str) -> Iterator[tuple[History, Ddl]]:
    """The DDL statements after the initial CREATE TABLE statements."""
    for seed in _SEEDS:
        history = _history(seed, mode)
        for event in history.upstream.events:
            if isinstance(event, Ddl) and event.commit_ts >> 18 >= EPOCH_MS:
                yield history, event


def _kinds(statement: Statement) -> set[str]:
    found = {type(statement).__name__}
    if isinstance(statement, AlterTable):
        found |= {f"{type(clause).__name__}" for clause in statement.clauses}
        found |= {_detail(clause, statement.before) for clause in statement.clauses}
        found |= {"two clauses"} if len(statement.clauses) > 1 else set()
    if isinstance(statement, RenameTables):
        found.add(f"{len(statement.pairs)} pairs")
        old, new = statement.pairs[0]
        found |= {"to another database"} if old.database != new.database else set()
    return found


def _detail(clause: Clause, table: Table) -> str:
    if isinstance(clause, AddColumn):
        kind = "default" if clause.column.default is not None else "zero" if clause.column.not_null else "null"
        return f"add {kind}" if clause.place is None else "add first" if clause.place == FIRST else "add after"
    if isinstance(clause, RenameColumn):
        return "rename of key" if clause.name in table.key else "rename"
    if isinstance(clause, ChangeColumn):
        return f"{table.types[clause.name]} to {clause.column.type}"
    if isinstance(clause, EmptyParts):
        kind = "hash" if table.partitioning is not None and not table.partitioning.bounds else "range"
        return f"{'drop' if clause.drop else 'truncate'} partition of {kind}"
    if isinstance(clause, Repartition):
        return "reorganize" if clause.parts else "add partition"
    return ""


def test_all_kinds_occur() -> None:
    found: Counter[str] = Counter()
    for mode in MODES:
        for _, event in _ddl(mode):
            found.update(_kinds(event.statement))
    expected = {
        *("CreateTable", "CreateLike", "TruncateTable", "DropTables", "DropDatabase", "CreateDatabase"),
        *("RenameTables", "1 pairs", "2 pairs", "3 pairs", "to another database", "ExchangePartition"),
        *("DropColumn", "DropKey", "AddKey", "two clauses", "rename of key", "rename"),
        *("add null", "add default", "add zero", "add first", "add after", "reorganize", "add partition"),
        *("varchar(20) to varchar(40)", "int to bigint", "int to varchar(20)", "decimal(10,2) to decimal(14,4)"),
        *("truncate partition of hash", "truncate partition of range", "drop partition of range"),
    }
    assert expected <= found.keys()


def test_most_histories_have_ddl() -> None:
    counts = [len({id(history) for history, _ in _ddl(mode)}) for mode in MODES]
    assert min(counts) > len(_SEEDS) / 2


@pytest.mark.parametrize("mode", MODES)
def test_ddl_is_in_partition_0_with_its_type(mode: str) -> None:
    for seed in _SEEDS:
        for record in _history(seed, mode).records:
            if record.kind != "ddl":
                continue
            body = json.loads(record.payload)
            assert record.partition == 0
            if mode == "dataworks":
                assert body["payload"]["op"] in _TYPES
                assert body["payload"]["ddl"]["text"]
            else:
                assert body["isDdl"] or mode == "canal"
                assert body["type"] in _TYPES
                assert body.get("data") is body.get("old") is body.get("mysqlType") is None
                assert (body["table"] == "") == (body["sql"].upper().find("DATABASE") > 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_statement_is_one_message_except_for_ticdc_renames(mode: str) -> None:
    several = 0
    for history, event in _ddl(mode):
        messages = [message for message in history.messages if message.commit_ts == event.commit_ts]
        pairs = len(event.statement.pairs) if isinstance(event.statement, RenameTables) else 1
        assert len(messages) == (pairs if mode not in ("canal", "dataworks") else 1)
        several += pairs > 1
        if isinstance(event.statement, DropTables):
            assert len(event.statement.tables) == 1 or mode in ("canal", "dataworks") or messages[0].op == "QUERY"
    assert several


def test_without_watermarks_no_event_shares_the_time_of_ddl() -> None:
    for mode, unit in (("default", 1), ("canal", 1000)):
        for history, event in _ddl(mode):
            place = physical_ms(event.commit_ts) // unit
            others = [other for other in history.upstream.events if physical_ms(other.commit_ts) // unit == place]
            assert others == [event]


def test_without_watermarks_files_keep_ddl_and_rows_in_order() -> None:
    """New records of a file are later than those of earlier files, unless DDL only empties tables."""
    count = 0
    for mode in (mode for mode in MODES if not has_watermarks(mode)):
        for seed in _SEEDS:
            history = _history(seed, mode)
            if not history.settings.ddl or history.settings.plain_ddl:
                continue
            seen: set[str] = set()
            newest = 0
            for part in history.slices:
                new = [record for record in part.records if _without_send_time(record.payload) not in seen]
                assert all(record.commit_ts >= newest for record in new)
                newest = max((record.commit_ts for record in new), default=newest)
                seen |= {_without_send_time(record.payload) for record in part.records}
            count += len(history.slices) > 1
    assert count > 10


def _without_send_time(payload: str) -> str:
    """The message without its fields about sending."""
    body = json.loads(payload)
    return json.dumps({name: value for name, value in body.items() if name not in ("ts", "id")})


def test_ddl_is_resent() -> None:
    """After a restart, and as a retry."""
    found = 0
    for seed in _SEEDS:
        history = _history(seed, "extension")
        sent = Counter(id(sent.message) for sent in history.timeline if sent.message.kind == "ddl")
        found += any(number > 1 for number in sent.values())
    assert found > 10


def test_a_renamed_table_changes_its_partition() -> None:
    """The rows of a table, its DDL, and its rows after a RENAME can be in three partitions."""
    moved = 0
    for history, event in _ddl("extension"):
        statement = event.statement
        if history.settings.dispatcher != "table" or not isinstance(statement, RenameTables):
            continue
        old, new = (
            {message.partition for message in history.messages if message.table is table}
            for table in statement.pairs[0]
        )
        moved += bool(old and new and old != new)
    assert moved


@pytest.mark.parametrize("mode", MODES)
def test_the_parser_supports_all_alter_statements(mode: str) -> None:
    """With the package's parser."""
    for history, event in _ddl(mode):
        statement = event.statement
        for message in history.messages:
            if message.commit_ts != event.commit_ts:
                continue
            body = message.body
            sql = body["payload"]["ddl"]["text"] if "payload" in body else body["sql"]
            if isinstance(statement, ExchangePartition) or "alter" not in sql.lower()[:40]:
                continue
            quoting = Quoting.TIDB if mode in TICDC_MODES else Quoting.MYSQL
            found = parse_ddl(sql, statement.tables[0].database, quotings=[quoting])
            assert not [change for change in found if isinstance(change, schema_changes.NotSupported)], sql


# ---- effect of the statements


def _after(
    table: Table, rows: list[dict[str, str | None]], *clauses: Clause
) -> tuple[Table, list[dict[str, str | None]]]:
    upstream = Upstream()
    upstream.rows[table] = dict(enumerate(rows))
    statement = alter(table, *clauses)
    upstream.execute(statement, START_TSO)
    return statement.after, list(upstream.rows[statement.after].values())


_TABLE = Table("db", "t", (("id", "int"), ("a", "int"), ("d", "decimal(10,2)")), ("id",))
_ROW: dict[str, str | None] = {"id": "1", "a": None, "d": "1.50"}


def test_added_columns_have_their_defaults() -> None:
    table, rows = _after(
        _TABLE,
        [_ROW],
        AddColumn(Column("x", "decimal(10,2)", not_null=True), FIRST),
        AddColumn(Column("y", "varchar(20)", default="é"), "id"),
        AddColumn(Column("z", "int")),
    )
    assert table.names == ("x", "id", "y", "a", "d", "z")
    assert rows == [{"x": "0.00", "id": "1", "y": "é", "a": None, "d": "1.50", "z": None}]


def test_columns_change_names_and_types() -> None:
    table, rows = _after(_TABLE, [_ROW], RenameColumn("id", "a"), RenameColumn("a", "id"))
    assert (table.names, table.key, rows) == (("a", "id", "d"), ("a",), [{"a": "1", "id": None, "d": "1.50"}])
    table, rows = _after(_TABLE, [_ROW], ChangeColumn("d", Column("e", "decimal(14,4)"), FIRST), DropColumn("a"))
    assert (table.columns, rows) == ((("e", "decimal(14,4)"), ("id", "int")), [{"e": "1.5000", "id": "1"}])


def test_a_key_is_dropped_and_added() -> None:
    table, _ = _after(_TABLE, [_ROW], DropKey())
    assert (table.keyless, table.not_null, table.clustered) == (True, frozenset({"id"}), False)
    assert _after(table, [_ROW], AddKey(("id",)))[0].key == ("id",)


def test_dropped_and_truncated_partitions_lose_their_rows() -> None:
    table = replace(_TABLE, partitioning=Partitioning("id", ("p0", "p1", "p2"), (10, 20, None)))
    rows = [{**_ROW, "id": number} for number in ("-5", "9", "10", "20")]
    after, left = _after(table, rows, EmptyParts(("p1",), drop=True))
    assert [row["id"] for row in left] == ["-5", "9", "20"]
    assert after.part_of({"id": "10"}) == "p2"
    after, left = _after(table, rows, EmptyParts(("p0",), drop=False))
    assert [row["id"] for row in left] == ["10", "20"]
    assert after.part_of({"id": "1"}) == "p0"
    assert [Partitioning("id", ("p0", "p1", "p2")).part_of(key) for key in ("4", "-5")] == ["p1", "p2"]


def test_a_partition_and_a_table_exchange_their_rows() -> None:
    table, other = table_of("range", "db", "t"), replace(table_of("range", "db", "o"), partitioning=None)
    upstream = Upstream()
    row: dict[str, str | None] = {"id": "1", "note": None, "amount": None}
    upstream.rows = {table: {1: row, 2: {**row, "id": "11"}}, other: {3: {**row, "id": "2"}}}
    upstream.execute(ExchangePartition(table, "p0", other), START_TSO)
    state = upstream.state_at(START_TSO)
    assert [image[0] for image in state["db", "t"].rows] == ["11", "2"]
    assert [image[0] for image in state["db", "o"].rows] == ["1"]


def test_rows_fit_their_partitions() -> None:
    count = 0
    for mode in MODES:
        for seed in _SEEDS:
            for event in _history(seed, mode).upstream.events:
                for change in event.net if isinstance(event, Transaction) else ():
                    if change.table.partitioning is not None:
                        count += 1
                        assert change.table.part_of(change.row) is not None
    assert count > 100
