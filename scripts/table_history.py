"""Prints the statements and row changes of one table in stream order.

    python scripts/table_history.py data/lake/shop shop.orders --where id=7 --last 40

Reads the decoded tables with the package `deltalake`, without Spark. Writes nothing.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

_POSITION = ("batch_id", "topic", "partition", "offset", "dialect", "commit_ts", "es", "ts", "message_id")
_ROW_COLUMNS = (*_POSITION, "row", "op", "key_names", "before", "after")
_STATEMENT_COLUMNS = (*_POSITION, "sql", "status", "effect", "cut_id")


def history(pipeline: Path, database: str, table: str, where: Mapping[str, str]) -> list[Row]:
    """The table's rows of `ddl_history` (those with `sql`) and of `change_log`, in stream order.

    `where`: column → text; keeps only changes with an image that has these texts.
    """
    named = [("database", "=", database), ("table", "=", table)]
    changes = _read(pipeline / "change_log", _ROW_COLUMNS, named)
    statements = _read(pipeline / "ddl_history", _STATEMENT_COLUMNS, named)
    found = [*statements, *(change for change in changes if not where or _has_values(change, where))]
    return sorted(found, key=_order)


def _read(path: Path, columns: Sequence[str], filters: list[tuple[str, str, str]]) -> list[Row]:
    if not DeltaTable.is_deltatable(str(path)):
        raise SystemExit(f"no Delta table at {path}: expected a pipeline's folder, such as data/lake/shop")
    rows: list[Row] = DeltaTable(str(path)).to_pyarrow_table(columns=list(columns), filters=filters).to_pylist()
    return rows


def _order(row: Row) -> tuple[Any, ...]:
    return (row["commit_ts"] or 0, row["ts"] or 0, row["topic"], row["partition"], row["offset"], row.get("row") or 0)


def _has_values(change: Row, where: Mapping[str, str]) -> bool:
    images = [dict(change[side] or ()) for side in ("before", "after")]
    return any(all(image.get(name) == text for name, text in where.items()) for image in images)


def lines(rows: Iterable[Row]) -> list[str]:
    """One line per row: its position and content."""
    return [f"{_position(row)}  {_statement(row) if 'sql' in row else _change(row)}" for row in rows]


def _position(row: Row) -> str:
    batch = "" if row["message_id"] is None else f" id {row['message_id']}"
    position = f"{row['topic']}/{row['partition']}@{row['offset']}"
    return f"batch {row['batch_id']} {position} {row['dialect']} commit_ts {row['commit_ts']} ts {row['ts']}{batch}"


def _statement(row: Row) -> str:
    effect = "" if not row["effect"] else f": {row['effect']}"
    cut = "" if row["cut_id"] is None else f" in cut {row['cut_id']}"
    return f"DDL {' '.join((row['sql'] or '').split())}\n    {row['status']}{cut}{effect}"


def _change(row: Row) -> str:
    before, after = (None if row[side] is None else dict(row[side]) for side in ("before", "after"))
    key = ", ".join(row["key_names"] or ()) or "none"
    return f"{row['op']} (key {key})\n    before {before}\n    after  {after}"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipeline", type=Path, help="a pipeline's folder in the lake: <lake>/<name>")
    parser.add_argument("table", help="database.table, as upstream names it")
    parser.add_argument("--where", action="append", default=[], metavar="COLUMN=TEXT", help="only rows with this text")
    parser.add_argument("--last", type=int, metavar="N", help="only the last N lines")
    given = parser.parse_args(arguments)
    database, dot, table = given.table.partition(".")
    if not dot:
        parser.error(f"table: expected database.table, got {given.table!r}")
    where = dict(pair.split("=", 1) for pair in given.where if "=" in pair)
    if len(where) != len(given.where):
        parser.error(f"--where: expected COLUMN=TEXT, got {given.where}")
    found = lines(history(given.pipeline, database, table, where))
    print(*(found[-given.last :] if given.last else found), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
