"""A plain reader of records: what the tables must be, by the payloads alone. It shares no code with the encoders."""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from cdc_pipeline_tests.histories.upstream import sort_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cdc_pipeline_tests.histories.delivery import Record
    from cdc_pipeline_tests.histories.upstream import Image, Row, State, Table

_ROWS = ("INSERT", "UPDATE", "DELETE")


Place: TypeAlias = "tuple[str, int]"
"""Topic and partition."""
_Items: TypeAlias = "tuple[tuple[str, str | None], ...]"
_Counts: TypeAlias = "Counter[tuple[int, str, tuple[_Items | None, _Items | None]]]"


class RowChange(NamedTuple):
    """A change as a payload tells it. `order`: sorts the changes of a row; `step` and `time` are for keyless tables."""

    table: Table
    op: str
    before: Row | None
    after: Row | None
    order: tuple[int, ...]
    time: int
    step: int


def folded(mode: str, tables: Iterable[Table], records: Iterable[Record], resolved: int | None) -> State:
    """The sorted rows of each table that was created, from the changes up to `resolved` (all if None)."""
    by_name = {table.full_name: table for table in tables}
    unique = {(record.topic, record.partition, record.offset): record for record in records}
    changes: dict[Table, dict[Place, list[RowChange]]] = defaultdict(lambda: defaultdict(list))
    state: State = {}
    watermarks: dict[Place, int] = defaultdict(int)
    for (topic, partition, _), record in sorted(unique.items()):
        body = json.loads(record.payload)
        tidb = body.get("_tidb", {})
        place = topic, partition
        watermarks[place] = max(watermarks[place], tidb.get("watermarkTs", 0))
        if created := _created(body):
            if resolved is None or tidb["commitTs"] <= resolved:
                state[created] = []
            continue
        for change in _changes(mode, by_name, body, record):
            beyond = resolved is not None and change.time > resolved
            if beyond and not change.table.keyless:
                continue
            if change.table.keyless and tidb and change.time <= watermarks[place]:
                continue
            changes[change.table][place].append(change)
    for table, parts in changes.items():
        if table.full_name not in state:
            continue  # its statement is beyond `resolved`
        rows = _multiset(parts.values(), resolved) if table.keyless else _by_key(chain.from_iterable(parts.values()))
        state[table.full_name] = sorted((table.image(row) for row in rows), key=sort_key)
    return state


def _created(body: dict[str, Any]) -> tuple[str, str] | None:
    if "payload" in body:
        source = body["schema"]["source"]
        return (source["dbName"], source["tableName"]) if body["payload"]["op"] == "CREATE" else None
    return (body["database"], body["table"]) if body["type"] == "CREATE" else None


def _changes(
    mode: str, by_name: dict[tuple[str, str], Table], body: dict[str, Any], record: Record
) -> Iterator[RowChange]:
    if mode == "dataworks":
        yield from _dataworks(by_name, body)
        return
    if body["type"] not in _ROWS:
        return
    table, op = by_name[body["database"], body["table"]], body["type"]
    offset = (record.partition, record.offset)
    order: tuple[int, ...]
    if mode == "canal":
        time, step, order = body["es"], body["id"], (body["es"], body["ts"], *offset)
    elif mode == "default":
        time, step, order = body["es"], body["es"], (body["es"], *offset)
    else:
        time = step = body["_tidb"]["commitTs"]
        order = (time,)
    for number, data in enumerate(body["data"]):
        row = _texts(table, data)
        old = {**row, **_texts(table, body["old"][number])} if op == "UPDATE" else None
        before, after = (row, None) if op == "DELETE" else (old, row)
        # rows of one message of Canal come one after the other
        yield RowChange(table, op, before, after, (*order, number) if len(order) > 1 else order, time, step)


def _dataworks(by_name: dict[tuple[str, str], Table], body: dict[str, Any]) -> Iterator[RowChange]:
    payload, source = body["payload"], body["schema"]["source"]
    before, after = payload["before"], payload["after"]
    if before is None and after is None:
        return
    table, sequence = by_name[source["dbName"], source["tableName"]], int(payload["sequenceId"])
    rows = [
        None if image is None else _texts(table, image["dataColumn"], base64_bytes=True) for image in (before, after)
    ]
    op = payload["op"].split("_")[0]
    yield RowChange(table, op, rows[0], rows[1], (sequence, int(before is None)), sequence, 0)


def _texts(table: Table, row: dict[str, Any], *, base64_bytes: bool = False) -> Row:
    found: Row = {}
    for name, words in table.columns:
        if name not in row:
            continue
        value = row[name]
        if value is not None and words.startswith("decimal"):
            value = f"{float(value):.2f}"
        elif isinstance(value, int):
            value = str(value)
        elif value is not None and words.startswith("varbinary") and base64_bytes:
            value = base64.b64decode(value).decode("latin-1")
        found[name] = value
    return found


def _by_key(changes: Iterable[RowChange]) -> Iterable[Row]:
    """The last gift of each key that nothing took since; what gives at a time comes after what takes."""
    entries: list[tuple[tuple[int, ...], Image, Row | None]] = []
    for change in changes:
        if change.before is not None:
            entries.append(((*change.order, 0), change.table.key_of(change.before), None))
        if change.after is not None:
            entries.append(((*change.order, 1), change.table.key_of(change.after), change.after))
    rows: dict[Image, Row] = {}
    for _, key, row in sorted(entries, key=lambda entry: entry[0]):
        rows.pop(key, None)
        if row is not None:
            rows[key] = row
    return rows.values()


def _multiset(parts: Iterable[list[RowChange]], resolved: int | None) -> Iterable[Row]:
    """Each change as often as the fullest stretch between two steps back has it.

    Steps back are those of all rows, also of those beyond `resolved`.
    """
    counts: Counter[_Items] = Counter()
    for changes in parts:
        fullest: _Counts = Counter()
        stretch: _Counts = Counter()
        last = 0
        for change in changes:
            if change.step < last:
                fullest |= stretch
                stretch.clear()
            last = change.step
            stretch[change.time, change.op, (_items(change.before), _items(change.after))] += 1
        fullest |= stretch
        for (time, _, rows), number in fullest.items():
            if resolved is not None and time > resolved:
                continue
            for image, sign in zip(rows, (-1, 1), strict=True):
                if image is not None:
                    counts[image] += sign * number
    assert all(number >= 0 for number in counts.values())
    return [dict(image) for image, number in counts.items() for _ in range(number)]


def _items(row: Row | None) -> _Items | None:
    return None if row is None else tuple(row.items())
