"""The order of the messages of one RENAME TABLE of TiCDC, and statements under the former name of a table. No Spark."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from pyspark.sql import Row

from cdc_pipeline.mirrors.model.ddl_events import BEFORE_CHANGEFEED, DdlEvent, ddl_event, in_upstream_order
from cdc_pipeline.mirrors.model.upstream_tables import qualified_events
from cdc_pipeline.mirrors.planning.plan_draft import PlanDraft
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.cut_settings import CutSettings
from cdc_pipeline.mysql.model.change_names import folded
from cdc_pipeline.mysql.model.schema_changes import CreateTable, NotSupported
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.messages import tso
from cdc_pipeline_tests.support.plans import by_hand
from cdc_pipeline_tests.support.plans.by_hand import mirror_state

_BACKUP = ["orders > backup", "orders_new > orders"]  # tiflow #12745
_SHIFT = ["t1 > t4", "t2 > t1", "t3 > t2"]  # tiflow #12449
_SWAP = ["orders > _swap", "orders_new > orders", "_swap > orders_new"]


def _renames(*pairs: str, topics: bool = False) -> list[DdlEvent]:
    """A message per pair in this order: in one partition, or each in the topic of its old name."""
    events = []
    for offset, (old, new) in enumerate(pair.split(" > ") for pair in pairs):
        event = replace(by_hand.ddl_event(9, f"RENAME TABLE {old} TO {new}"), offset=offset, dialect="ticdc", table=new)
        events.append(replace(event, topic=f"db_{old}", offset=0) if topics else event)
    return events


def _pairs(events: list[DdlEvent]) -> list[str]:
    named = [pair for event in events for change in event.changes for pair in change.names().renamed]
    return [f"{old.table} > {new.table}" for old, new in named]


def _ordered(events: list[DdlEvent], *known: str) -> list[str]:
    tables = [TableName("db", name) for name in known]
    return _pairs(qualified_events(in_upstream_order(events), lambda: tables, folded))


@pytest.mark.parametrize("topics", [False, True])
@pytest.mark.parametrize("pairs", [_BACKUP, _SHIFT, [*_BACKUP, *_SHIFT]])
def test_a_name_is_given_up_before_it_is_taken(pairs: list[str], topics: bool) -> None:
    for sent in permutations(pairs):
        found = _ordered(_renames(*sent, topics=topics))
        assert [pair for pair in found if pair in _BACKUP] == [pair for pair in pairs if pair in _BACKUP]
        assert [pair for pair in found if pair in _SHIFT] == [pair for pair in pairs if pair in _SHIFT]


def test_a_swap_begins_with_the_name_that_no_table_has() -> None:
    for sent in permutations(_SWAP):
        assert _ordered(_renames(*sent, topics=True), "orders", "orders_new") == _SWAP


def test_a_swap_of_unknown_tables_is_in_the_order_in_which_it_was_sent() -> None:
    assert _ordered(_renames(*_SWAP)) == _SWAP
    sent = [replace(event, ts=ts) for ts, event in enumerate(_renames(*_SWAP, topics=True))]
    assert _ordered(sent[::-1]) == _SWAP


def test_the_copies_of_a_swap_are_in_its_order() -> None:
    copies = [replace(event, offset=event.offset + 3) for event in _renames(*_SWAP)]
    assert _pairs(in_upstream_order([*_renames(*_SWAP), *copies])) == [pair for pair in _SWAP for _ in range(2)]


@pytest.mark.parametrize("pairs", [["a > b", "c > a", "a > d"], ["a > b", "b > c", "d > b"], ["t > T"]])
def test_names_with_several_orders_stay_as_they_were_sent(pairs: list[str]) -> None:
    assert _ordered(_renames(*pairs)) == pairs


def test_other_statements_keep_their_places() -> None:
    create = replace(by_hand.ddl_event(9, "CREATE TABLE c (id INT)"), topic="db_c")
    backup, orders = _renames(*_BACKUP, topics=True)
    last = replace(orders, topic="a")
    assert in_upstream_order([backup, create, last]) == [backup, create, last]
    later = replace(last, commit_ts=tso(10))
    assert in_upstream_order([later, create, backup]) == [create, backup, later]
    # without TiDB's extension they are of one ms
    parts = [replace(event, exact_ts=False) for event in (backup, create, last)]
    assert in_upstream_order(parts[::-1]) == parts
    # a message of DataWorks has all pairs of a statement
    parts = [replace(event, dialect="dataworks") for event in parts]
    assert in_upstream_order(parts) == parts[::-1]


def test_mirrors_of_swapped_tables_have_the_rows_of_each_other() -> None:
    known = {TableName("db", name): mirror_state(name) for name in ("orders", "orders_new")}
    draft = PlanDraft([], known.get, frozenset(known), 1, CutSettings("UTC"))
    events = in_upstream_order(_renames(*_SWAP, topics=True))
    Planner(draft).plan(qualified_events(events, lambda: known, folded))
    found = {name.table: state.mirror_id for name in draft.names() if (state := draft.state(name))}
    assert found == {"orders": "orders_new@1", "orders_new": "orders@1"}


def _event(sql: str, table: str, database: str = "db", dialect: str = "ticdc", kind: str = "ALTER") -> DdlEvent:
    values = {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "commit_ts": tso(1),
        "exact_ts": True,
        "es": 1,
        "ts": 1,
        "at": 1,
    }
    named = {"database": database, "table": table, "kind": "ddl", "type": kind, "message_id": None}
    return ddl_event(Row(**values, **named, sql=sql, dialect=dialect))


def _tables(sql: str, table: str, database: str = "db", dialect: str = "ticdc") -> list[str]:
    """The tables that the statement of a message with this `table` changes or reads."""
    event = _event(sql, table, database, dialect)
    names = [name for change in event.changes for name in (*change.names().touched, *change.names().read)]
    return [name.table if name.database == "db" else str(name) for name in names]


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE `former` ADD UNIQUE `u`(`v`), ADD COLUMN `c` DOUBLE NULL DEFAULT _UTF8MB4'1.6'",
        "ALTER TABLE `db`.`former` MODIFY COLUMN `v` ENUM('x','a')",
        "ALTER TABLE `other`.`former` DROP PARTITION `p0`",
        "TRUNCATE TABLE `former`",
        "CREATE INDEX `i` ON `former` (`v`)",
        "DROP INDEX `i` ON `former`",
        "DROP TABLE `db`.`former`",
    ],
)
def test_a_statement_under_the_former_name_is_about_the_table_of_its_message(sql: str) -> None:
    assert _tables(sql, "present") == ["present"]
    assert _tables(sql.replace("former", "present"), "present", "other") == ["other.present"]


def test_a_statement_that_cannot_be_read_is_about_both_tables() -> None:
    assert _tables("CREATE INDEX `i` ON `former` (`v`) FOR SOMETHING", "present") == ["former", "present"]


@pytest.mark.parametrize(
    ("sql", "table", "tables"),
    [
        # the message has the new name of a RENAME, and in the new architecture the second table of an EXCHANGE
        ("RENAME TABLE `db`.`a` TO `db`.`b`", "b", ["a", "b"]),
        ("ALTER TABLE `a` RENAME AS `b`", "b", ["a", "b"]),
        ("ALTER TABLE `db`.`a` EXCHANGE PARTITION `p` WITH TABLE `db`.`b`", "b", ["a", "b"]),
        ("CREATE TABLE `a` LIKE `b`", "b", ["a", "b"]),
        ("CREATE TABLE `a` (`id` INT SOME WORDS)", "b", ["a"]),
        ("DROP TABLE `a`, `b`", "b", ["a", "b"]),
        # no table in the message, and a name in another case
        ("TRUNCATE TABLE `a`", "", ["a"]),
        ("TRUNCATE TABLE `A`", "a", ["A"]),
    ],
)
def test_other_statements_are_about_the_tables_that_they_name(sql: str, table: str, tables: list[str]) -> None:
    assert _tables(sql, table) == tables


def test_a_message_of_canal_may_name_another_table() -> None:
    assert _tables("TRUNCATE TABLE a", "b", dialect="canal") == ["a"]


def test_definitions_of_the_storage_sink() -> None:
    """Their table is older than the changefeed. A broken file stays an unsupported statement, which has a gap."""
    (created,) = _event("CREATE TABLE IF NOT EXISTS `db`.`t` (`id` INT)", "t", kind="DEFINITION").changes
    assert isinstance(created, CreateTable)
    assert created.gaps == (BEFORE_CHANGEFEED,)
    (broken,) = _event('{"Table": "t"}', "t", kind="DEFINITION").changes
    assert isinstance(broken, NotSupported)
