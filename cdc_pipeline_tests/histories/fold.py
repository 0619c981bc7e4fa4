"""Reads records and computes the tables from the payloads alone. It shares no code with the encoders."""

from __future__ import annotations

import base64
import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from cdc_pipeline_tests.histories.delivery import Record
from cdc_pipeline_tests.histories.early_ticdc import read_early
from cdc_pipeline_tests.histories.fold_ddl import run
from cdc_pipeline_tests.histories.fold_tables import FoldTable, as_label, as_type
from cdc_pipeline_tests.histories.shapes import Content, Image, Name, Row, State, sort_key

_ROWS = ("INSERT", "UPDATE", "DELETE")
_DDL = ("CREATE", "ALTER", "ERASE", "TRUNCATE", "RENAME", "CINDEX", "DINDEX")

Place: TypeAlias = "tuple[str, int]"
"""Topic and partition."""
_Raw: TypeAlias = "dict[str, Any]"
_Items: TypeAlias = "tuple[tuple[str, Any], ...]"
_Images: TypeAlias = "tuple[_Items | None, _Items | None]"


class RowChange(NamedTuple):
    """A change as its payload shows it.

    `order`: sorts the changes of a row. `time`, `step`: identify and count the changes of keyless tables. `closed`: it came
    after a watermark at or above its time.
    """

    name: Name
    op: str
    before: _Raw | None
    after: _Raw | None
    order: tuple[int, ...]
    time: int
    step: int
    closed: bool = False


class DdlChange(NamedTuple):
    """A DDL statement as its payload shows it. `place` orders the statements of one time."""

    time: int
    place: tuple[int, int]
    sql: str
    database: str
    table: str


@dataclass
class _Read:
    """The changes and DDL of all records. Changes are by table name and partition."""

    changes: dict[Name, dict[Place, list[RowChange]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    ddl: list[DdlChange] = field(default_factory=list)


def folded(mode: str, records: Iterable[Record], resolved: int | None) -> State:
    """The existing tables after all changes below `resolved`. None: all changes."""
    read = _read(mode, records)
    statements = _statements(read.ddl, resolved)
    times = [statement.time for statement in statements]
    tables: dict[Name, FoldTable] = {}
    # a row with the time of a statement precedes it
    keyed: dict[tuple[int, Name], list[RowChange]] = defaultdict(list)
    counted: dict[tuple[int, Name], Counter[_Items]] = defaultdict(Counter)
    for name, parts in read.changes.items():
        for change in (change for changes in parts.values() for change in changes):
            if resolved is None or change.time < resolved:
                keyed[bisect_left(times, change.time), name].append(change)
        for (time, _, images), number in _counted_changes(parts.values()).items():
            if resolved is not None and time >= resolved:
                continue
            for image, sign in zip(images, (-1, 1), strict=True):
                if image is not None:
                    counted[bisect_left(times, time), name][image] += sign * number
    for segment in range(len(statements) + 1):
        for (place, name), changes in keyed.items():
            if place == segment:
                table = tables[name]
                table.rows = (
                    _by_key(mode, table, changes) if table.key else _by_count(mode, table, counted[segment, name])
                )
        if segment < len(statements):
            statement = statements[segment]
            run(statement.sql, statement.database, tables, printed=mode not in ("canal", "dataworks"))
    return {
        name: Content(
            tuple(table.columns),
            sorted((tuple(row[column] for column, _ in table.columns) for row in table.rows), key=sort_key),
        )
        for name, table in tables.items()
    }


def _statements(ddl: Iterable[DdlChange], resolved: int | None) -> list[DdlChange]:
    """The statements below `resolved` in order, without duplicates."""
    first: dict[tuple[int, str, str, str], DdlChange] = {}
    for statement in sorted(ddl):
        if resolved is None or statement.time < resolved:
            first.setdefault((statement.time, statement.sql, statement.database, statement.table), statement)
    return list(first.values())


def _read(mode: str, records: Iterable[Record]) -> _Read:
    unique = {(record.topic, record.partition, record.offset): record for record in records}
    found = _Read()
    watermarks: dict[Place, int] = defaultdict(int)
    for (topic, partition, offset), record in sorted(unique.items()):
        body = json.loads(record.payload)
        tidb = body.get("_tidb", {})
        place = topic, partition
        if record.kind == "note" and tidb:
            continue  # a watermark from the future: records are never sent before their time
        watermarks[place] = max(watermarks[place], tidb.get("watermarkTs", 0))
        if statement := _statement(mode, body, (partition, offset)):
            found.ddl.append(statement)
            continue
        for change in _changes(mode, body, record):
            closed = bool(tidb) and change.time <= watermarks[place]
            found.changes[change.name][place].append(change._replace(closed=closed))
    return found


def _statement(mode: str, body: _Raw, place: tuple[int, int]) -> DdlChange | None:
    if mode == "dataworks":
        payload, source = body["payload"], body["schema"]["source"]
        if payload["ddl"] is None:
            return None
        text, table = payload["ddl"]["text"], source["tableName"]
        if payload["op"] == "ALTER" and "alter" not in text.lower():
            text = f"ALTER TABLE `{table}` {text}"
        return DdlChange(int(payload["sequenceId"]), place, text, source["dbName"], table or "")
    if not body["isDdl"] and (mode != "canal" or body["type"] not in _DDL):
        return None
    time = body["_tidb"]["commitTs"] if "_tidb" in body else body["es"]
    return DdlChange(time, place, body["sql"], body["database"], body["table"])


def _changes(mode: str, body: _Raw, record: Record) -> Iterator[RowChange]:
    if mode == "dataworks":
        yield from _dataworks(body)
        return
    if body["type"] not in _ROWS:
        return
    name, op = (body["database"], body["table"]), body["type"]
    offset = (record.partition, record.offset)
    order: tuple[int, ...]
    if mode == "canal":
        time, step, order = body["es"], body["id"] or body["ts"], (body["es"], body["ts"], *offset)
    elif mode == "default":
        time, step, order = body["es"], body["es"], (body["es"], *offset)
    else:
        time = step = body["_tidb"]["commitTs"]
        order = (time,)
    olds = body.get("old") or []
    for number, sent in enumerate(body["data"]):
        # Canal may omit columns that are NULL, and entries of `old`
        row = read_early(body, {name: sent.get(name) for name in body["mysqlType"]} if mode == "canal" else sent)
        changed = read_early(body, olds[number]) if op == "UPDATE" and len(olds) == len(body["data"]) else {}
        old = {**row, **changed} if op == "UPDATE" else None
        before, after = (row, None) if op == "DELETE" else (old, row)
        # Canal applies the rows of one message in their order
        yield RowChange(name, op, before, after, (*order, number) if len(order) > 1 else order, time, step)


def _dataworks(body: _Raw) -> Iterator[RowChange]:
    payload, source = body["payload"], body["schema"]["source"]
    before, after = payload["before"], payload["after"]
    if before is None and after is None:
        return
    sequence = int(payload["sequenceId"])
    rows = [None if image is None else _without_row_id(image["dataColumn"]) for image in (before, after)]
    name = source["dbName"], source["tableName"]
    op = payload["op"].split("_")[0]
    yield RowChange(name, op, rows[0], rows[1], (sequence, int(before is None)), sequence, 0)


def _without_row_id(row: _Raw) -> _Raw:
    return {name: value for name, value in row.items() if name != "#alibaba_rds_row_id#"}


def _texts(mode: str, table: FoldTable, row: _Raw) -> Row:
    found: Row = {}
    for name, mysql_type in table.columns:
        if name not in row:
            continue
        value = row[name]
        if value is not None and mysql_type.startswith("decimal"):
            value = as_type(str(value), mysql_type)
        elif mode != "dataworks" and mysql_type.startswith(("enum", "set")):
            value = as_label(value, mysql_type)
        elif isinstance(value, int):
            value = str(value)
        elif value is not None and mysql_type.startswith("varbinary") and mode == "dataworks":
            value = base64.b64decode(value).decode("latin-1")
        found[name] = value
    assert row.keys() == found.keys()
    return found


def _by_key(mode: str, table: FoldTable, changes: Iterable[RowChange]) -> list[Row]:
    """The table's rows by key. At one `order`, the deleted images precede the inserted ones."""

    def key_of(row: Row) -> Image:
        return tuple(row[name] for name in table.key)

    entries: list[tuple[tuple[int, ...], Image, Row | None]] = []
    for change in changes:
        if change.before is not None:
            entries.append(((*change.order, 0), key_of(_texts(mode, table, change.before)), None))
        if change.after is not None:
            after = _texts(mode, table, change.after)
            entries.append(((*change.order, 1), key_of(after), after))
    rows = {key_of(row): row for row in table.rows}
    for _, key, row in sorted(entries, key=lambda entry: entry[0]):
        rows.pop(key, None)
        if row is not None:
            rows[key] = row
    return list(rows.values())


def _by_count(mode: str, table: FoldTable, changes: Counter[_Items]) -> list[Row]:
    """The table's rows, each as often as its count and the changes of its count say."""
    counts: Counter[Image] = Counter()
    for row in table.rows:
        counts[tuple(row[name] for name, _ in table.columns)] += 1
    for image, number in changes.items():
        texts = _texts(mode, table, dict(image))
        counts[tuple(texts[name] for name, _ in table.columns)] += number
    assert all(number >= 0 for number in counts.values())
    names = [name for name, _ in table.columns]
    return [dict(zip(names, image, strict=True)) for image, number in counts.items() for _ in range(number)]


def _counted_changes(parts: Iterable[list[RowChange]]) -> Counter[tuple[int, str, _Images]]:
    """Each change, counted as often as in the fullest segment of each partition.

    A segment ends where `step` decreases, for any row of the table's name, unresolved ones included.
    """
    found: Counter[tuple[int, str, _Images]] = Counter()
    for changes in parts:
        fullest: Counter[tuple[int, str, _Images]] = Counter()
        segment: Counter[tuple[int, str, _Images]] = Counter()
        last = 0
        for change in changes:
            if change.closed:
                continue
            if change.step < last:
                fullest |= segment
                segment.clear()
            last = change.step
            segment[change.time, change.op, (_items(change.before), _items(change.after))] += 1
        fullest |= segment
        found.update(fullest)
    return found


def _items(row: _Raw | None) -> _Items | None:
    return None if row is None else tuple(row.items())
