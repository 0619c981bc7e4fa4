"""The statements and row changes of one table in stream order, each with the position of its message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from cdc_pipeline.lake.control_tables import iterate_rows, read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.merge.baseline_rows import FILE, ROW
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC, DEFINITION
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT, event_changes
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import TableName

Row = Mapping[str, Any]

_POSITION = ("batch_id", "topic", "partition", "offset", "dialect", "commit_ts", "es", "ts", "message_id")
_ROW_COLUMNS = (*_POSITION, "row", "op", "key_names", "before", "after")
_STATEMENT_COLUMNS = (*_POSITION, "kind", "type", "sql", "status", "effect", "cut_id")


def table_history(
    lake: Lake, database: str, table: str, where: Mapping[str, str], key: Sequence[str] = ()
) -> list[Row]:
    """The table's rows of `ddl_history` (those with `sql`) and of `change_log`, in stream order.

    `database`, `table`: as upstream names them. `where`: column → text; keeps only changes with an image that has these
    texts. `key`: texts of the key's columns, in the order of the message; keeps only changes of this row. With one of them
    also the rows of exports that the table begins with.
    """
    named = (("database", "=", database), ("table", "=", table))
    statements = read_rows(lake, "ddl_history", *named, columns=_STATEMENT_COLUMNS)  # type: ignore[arg-type]
    changes = iterate_rows(lake, "change_log", *named, columns=_ROW_COLUMNS)  # type: ignore[arg-type]
    kept = (change for change in changes if _has_values(change, _wanted(change, where, key)))
    exported = (
        row for event in statements for row in _exported_rows(lake, TableName(database, table), event, where, key)
    )
    return sorted([*statements, *kept, *exported], key=_order)


def _exported_rows(
    lake: Lake, name: TableName, event: Row, where: Mapping[str, str], key: Sequence[str]
) -> Iterator[Row]:
    """The rows of the baseline of the event, if it is one and has rows."""
    if event["kind"] != BASELINE_EVENT or event["type"] == DEFINITION or not (where or key):
        return
    created = event_changes(event["kind"], name.database, name.table, event["sql"])[0]
    if not isinstance(created, CreateTable):
        return
    names = created.schema.row_key
    if key and len(names) != len(key):
        return
    wanted = {**where, **dict(zip(names, key, strict=False))}
    if not wanted.keys() <= {*created.schema.column_names}:
        return  # the export lacks a column
    path = lake.paths.baseline(event["topic"].removeprefix(BASELINE_TOPIC), name)
    rows = read_rows(
        lake, path.removeprefix(f"{lake.paths.home}/"), *((one, "=", text) for one, text in wanted.items())
    )
    for row in rows:
        place = {"partition": row.pop(FILE), "offset": row.pop(ROW)}
        shown = {column: event[column] for column in _POSITION}
        yield {**shown, **place, "op": "EXPORTED", "key_names": names, "before": None, "after": row}


def message_value(lake: Lake, row: Row) -> bytes:
    """The bytes of the message behind a row of the history; empty if the raw snapshot lacks it."""
    names = ("batch_id", "topic", "partition", "offset")
    records = read_rows(lake, "raw_topic_snapshot", *((name, "=", row[name]) for name in names), columns=["value"])
    return bytes(records[0]["value"] or b"") if records else b""


def _wanted(change: Row, where: Mapping[str, str], key: Sequence[str]) -> dict[str, str] | None:
    """Column → text that an image must have; None if the row cannot be the wanted one."""
    names = change["key_names"] or ()
    if key and len(names) != len(key):
        return None
    return {**where, **dict(zip(names, key, strict=False))}


def _has_values(change: Row, wanted: Mapping[str, str] | None) -> bool:
    if not wanted:
        return wanted is not None
    images = [dict(change[side] or ()) for side in ("before", "after")]
    return any(all(image.get(name) == text for name, text in wanted.items()) for image in images)


def _order(row: Row) -> tuple[Any, ...]:
    return (row["commit_ts"] or 0, row["ts"] or 0, row["topic"], row["partition"], row["offset"], row.get("row") or 0)


def history_lines(rows: Iterable[Row]) -> list[str]:
    """One text per row: its position and content."""
    return [f"{_position(row)}  {_statement(row) if 'sql' in row else _change(row)}" for row in rows]


def _position(row: Row) -> str:
    message = "" if row["message_id"] is None else f" id {row['message_id']}"
    position = f"{row['topic']}/{row['partition']}@{row['offset']}"
    return f"batch {row['batch_id']} {position} {row['dialect']} commit_ts {row['commit_ts']} ts {row['ts']}{message}"


def _statement(row: Row) -> str:
    effect = "" if not row["effect"] else f": {row['effect']}"
    cut = "" if row["cut_id"] is None else f" in cut {row['cut_id']}"
    return f"DDL {' '.join((row['sql'] or '').split())}\n    {row['status']}{cut}{effect}"


def _change(row: Row) -> str:
    before, after = (None if row[side] is None else dict(row[side]) for side in ("before", "after"))
    key = ", ".join(row["key_names"] or ()) or "none"
    return f"{row['op']} (key {key})\n    before {before}\n    after  {after}"
