"""The statements and row changes of one table in stream order, each with the position of its message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from cdc_pipeline.dialects.contents import RELEASES
from cdc_pipeline.lake.control_tables import iterate_rows, read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.ddl_history import NOT_APPLIED
from cdc_pipeline.mirrors.changes.dead_letters import VALUE_HAS_TYPE
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.merge.baseline_rows import FILE, ROW
from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC, DEFINITION
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT, event_changes
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, POSITION, Position

Row = Mapping[str, Any]

_POSITION = ("batch_id", "topic", "partition", "offset", "dialect", "commit_ts", "es", "ts", "message_id")
_ROW_COLUMNS = (*_POSITION, "row", "op", "key_names", "before", "after")
_LETTER_COLUMNS = (*BATCH_POSITION, "rule", "reason")
_RELEASE_COLUMNS = (*POSITION, "run_id", "released_at", "note", "replacement")
_STATEMENT_COLUMNS = (*_POSITION, "kind", "type", "sql", "status", "effect", "cut_id")


def table_history(
    lake: Lake, database: str, table: str, where: Mapping[str, str], key: Sequence[str] = ()
) -> list[Row]:
    """The table's rows of `ddl_history` (those with `sql`) and of `change_log`, in stream order, then those of
    `dead_letters` without a row change. A row has `rejected` and `released` if its message was.

    `database`, `table`: as upstream names them. `where`: column → text; keeps only changes with an image that has these
    texts. `key`: texts of the key's columns, in the order of the message; keeps only changes of this row. With one of them
    also the rows of exports that the table begins with, and only dead letters whose message contains the texts.
    """
    named = (("database", "=", database), ("table", "=", table))
    statements = read_rows(lake, "ddl_history", *named, columns=_STATEMENT_COLUMNS)  # type: ignore[arg-type]
    changes = iterate_rows(lake, "change_log", *named, columns=_ROW_COLUMNS)  # type: ignore[arg-type]
    kept = (change for change in changes if _is_wanted(change, where, key))
    exported = (
        row for event in statements for row in _exported_rows(lake, TableName(database, table), event, where, key)
    )
    found = sorted([*statements, *kept, *exported], key=_order)
    texts = [text.encode() for text in (*key, *where.values())]
    columns = (*_LETTER_COLUMNS, "value") if texts else _LETTER_COLUMNS
    letters = read_rows(lake, "dead_letters", *named, columns=columns)  # type: ignore[arg-type]
    # with the name of the mirror, which may be another one
    by_value = read_rows(lake, "dead_letters", ("rule", "=", VALUE_HAS_TYPE), columns=_LETTER_COLUMNS)
    rejected = {_place(letter): f"{letter['rule']}: {letter['reason']}" for letter in (*letters, *by_value)}
    releases: dict[Position, Row] = {}
    for row in sorted(read_rows(lake, RELEASES, columns=_RELEASE_COLUMNS), key=lambda row: row["released_at"]):
        earlier = releases.get(_place(row), row)["replacement"]
        releases[_place(row)] = {**row, "replacement": row["replacement"] or earlier}
    found += [
        {**dict.fromkeys(_ROW_COLUMNS), **letter, "op": "MESSAGE"}
        for letter in sorted(letters, key=_place)
        # a row with a wrong value is in the change log
        if letter["rule"] != VALUE_HAS_TYPE and all(text in (letter["value"] or b"") for text in texts)
    ]
    return [{**row, "rejected": rejected.get(_place(row)), "released": releases.get(_place(row))} for row in found]


def _place(row: Row) -> Position:
    return Position(*(row[name] for name in POSITION))


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


def similar_tables(lake: Lake, table: str) -> list[str]:
    """Names of `ddl_history` and of mirrors that are like `table`, the most similar first."""
    events = read_rows(lake, "ddl_history", columns=["database", "table"])
    known = {f"{row['database']}.{row['table']}" for row in (*events, *published_cut(lake).mirrors) if row["table"]}
    return get_close_matches(table, sorted(known), n=5)


def message_value(lake: Lake, row: Row) -> bytes:
    """The bytes of the message behind a row of the history; empty if the raw snapshot lacks it."""
    names = ("batch_id", "topic", "partition", "offset")
    records = read_rows(lake, "raw_topic_snapshot", *((name, "=", row[name]) for name in names), columns=["value"])
    return bytes(records[0]["value"] or b"") if records else b""


def _is_wanted(change: Row, where: Mapping[str, str], key: Sequence[str]) -> bool:
    """Whether an image of the row has the wanted texts."""
    names = change["key_names"] or ()
    if key and len(names) != len(key):
        return False
    wanted = {**where, **dict(zip(names, key, strict=False))}
    images = [dict(change[side] or ()) for side in ("before", "after")]
    return any(all(image.get(name) == text for name, text in wanted.items()) for image in images)


def _order(row: Row) -> tuple[Any, ...]:
    return (row["commit_ts"] or 0, row["ts"] or 0, row["topic"], row["partition"], row["offset"], row.get("row") or 0)


def history_lines(rows: Iterable[Row]) -> list[str]:
    """One text per row: its position, its content, and whether it was rejected or released."""
    return [f"{_position(row)}  {_statement(row) if 'sql' in row else _change(row)}{_letter(row)}" for row in rows]


def _letter(row: Row) -> str:
    lines = ""
    if (release := row["released"]) is not None:
        how = "as it is" if release["replacement"] is None else "with a replacement"
        note = f": {release['note']}" if release["note"] else ""
        lines += f"\n    released {how} by run {release['run_id']} at {release['released_at']:%Y-%m-%d %H:%M:%S}{note}"
    # a Canal message may have rows without a mistake, too
    return lines if row["rejected"] is None else f"{lines}\n    rejected (dead letter) {row['rejected']}"


def message_lines(lake: Lake, row: Row) -> list[str]:
    """The message of a row of the history; of a replaced one both."""
    arrived = message_value(lake, row).decode(errors="replace")
    if row["released"] is None or row["released"]["replacement"] is None:
        return [f"    message {arrived}"]
    return [f"    message {bytes(row['released']['replacement']).decode(errors='replace')}", f"    replaced {arrived}"]


def _position(row: Row) -> str:
    message = "" if row["message_id"] is None else f" id {row['message_id']}"
    times = "" if row["dialect"] is None else f" {row['dialect']} commit_ts {row['commit_ts']} ts {row['ts']}{message}"
    return f"batch {row['batch_id']} {_place(row)}{times}"


def _statement(row: Row) -> str:
    effect = "" if not row["effect"] else f": {row['effect'].removeprefix(f'{NOT_APPLIED}: ')}"
    cut = "" if row["cut_id"] is None else f" in cut {row['cut_id']}"
    return f"DDL {' '.join((row['sql'] or '').split())}\n    {row['status']}{cut}{effect}"


def _change(row: Row) -> str:
    before, after = (None if row[side] is None else dict(row[side]) for side in ("before", "after"))
    if before is None and after is None:
        return str(row["op"])
    key = ", ".join(row["key_names"] or ()) or "none"
    return f"{row['op']} (key {key})\n    before {before}\n    after  {after}"
