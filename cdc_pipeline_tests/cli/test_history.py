"""`cdc-pipeline history`: what was rejected, and what was released, does not look like what was applied."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake

from cdc_pipeline.cli.history import history_lines, message_lines, table_history
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths

_TEXTS = pa.map_(pa.string(), pa.string())
_KEY = pa.list_(pa.string())


def _position(offset: int) -> dict[str, Any]:
    return {"batch_id": 1, "topic": "t", "partition": 0, "offset": offset}


def _change(offset: int, amount: str) -> dict[str, Any]:
    row = {"id": "7", "amount": amount}.items()
    times = {"dialect": "ticdc", "commit_ts": offset, "es": 1, "ts": 1, "message_id": None, "row": 0}
    image = {"op": "INSERT", "key_names": ["id"], "before": None, "after": list(row)}
    return {**_position(offset), "database": "crm", "table": "visits", **times, **image}


def _letter(offset: int, rule: str) -> dict[str, Any]:
    reason = {"rule": rule, "reason": f"reason {offset}", "value": b'{"id": "7"}'}
    return {**_position(offset), "database": "crm", "table": "visits", **reason}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(None, LakePaths(str(tmp_path_factory.mktemp("history")), "p"))  # type: ignore[arg-type]

    def write(table: str, *rows: dict[str, Any], **types: pa.DataType) -> None:
        known = pa.Table.from_pylist([{name: row[name] for name in row if name not in types} for row in rows])
        for name, kind in types.items():
            known = known.append_column(name, pa.array([row[name] for row in rows], kind))
        write_deltalake(lake.paths.table(table), known)

    changes = [_change(offset, amount) for offset, amount in enumerate(["1", "12,5", "12,50", "3"])]
    write("change_log", *changes, before=_TEXTS, after=_TEXTS, key_names=_KEY, message_id=pa.int64())
    # the first one has the name of the mirror (`routes`)
    write("dead_letters", {**_letter(1, "value_has_type"), "table": "all_visits"}, _letter(4, "type_is_known"))
    released = [
        {
            **_position(2),
            "released_at": datetime(2026, 11, 22, tzinfo=timezone.utc),
            "run_id": "first",
            "note": "ticket 7",
        },
        {**_position(3), "released_at": datetime(2026, 11, 23, tzinfo=timezone.utc), "run_id": "again", "note": ""},
    ]
    for row, replacement in zip(released, (b"as repaired", None), strict=True):
        row["replacement"] = replacement
    write("dead_letter_releases", *released)
    write("raw_topic_snapshot", *({**_position(offset), "value": b"as sent"} for offset in range(5)))
    return lake


@pytest.mark.parametrize("key", [(), ("7",)])
def test_rejected_and_released_changes(lake: Lake, key: tuple[str, ...]) -> None:
    rows = table_history(lake, "crm", "visits", {}, key)
    lines = [line.splitlines() for line in history_lines(rows)]
    assert lines[0] == [
        "batch 1 t/0@0 ticdc commit_ts 0 ts 1  INSERT (key id)",
        "    before None",
        "    after  {'id': '7', 'amount': '1'}",
    ]
    assert [line[3:] for line in lines[1:4]] == [
        ["    rejected (dead letter) value_has_type: reason 1"],
        ["    released with a replacement by run first at 2026-11-22 00:00:00: ticket 7"],
        ["    released as it is by run again at 2026-11-23 00:00:00"],
    ]
    # never decoded, so it is in no other table
    assert lines[4] == ["batch 1 t/0@4  MESSAGE", "    rejected (dead letter) type_is_known: reason 4"]
    assert message_lines(lake, rows[0]) == ["    message as sent"]
    assert message_lines(lake, rows[2]) == ["    message as repaired", "    replaced as sent"]
    assert message_lines(lake, rows[3]) == ["    message as sent"]


def test_the_outcome_of_a_statement_is_not_said_twice() -> None:
    outcome = {"status": "not applied yet", "effect": "not applied yet: TRUNCATE PARTITION p0: why", "cut_id": 43}
    statement = {**_position(7), **dict.fromkeys(("dialect", "released", "rejected", "message_id")), **outcome}
    (line,) = history_lines([{**statement, "sql": "ALTER TABLE t\n TRUNCATE PARTITION p0"}])
    assert line.splitlines() == [
        "batch 1 t/0@7  DDL ALTER TABLE t TRUNCATE PARTITION p0",
        "    not applied yet in cut 43: TRUNCATE PARTITION p0: why",
    ]


def test_a_rejected_message_that_does_not_contain_the_key(lake: Lake) -> None:
    assert table_history(lake, "crm", "visits", {}, ("8",)) == []
