"""Topics that ended. TiCDC sends no watermark to a topic once its last table was dropped or renamed away: the new
architecture sends one more, the classic one none. Such a topic would hold back all mirrors.

A topic does not count if the lake shows that it has no further changes below the watermarks of the others:

- It is named after a database and then a table (`topic = "{schema}_{table}"`), so that no table without changes shares it.
- All tables of its changes and statements were dropped, or renamed to another name, and nothing in it is newer.
- A partition has passed that statement: TiCDC sends all changes below a watermark before it, to whatever partition.
- Each of its own partitions has passed it too, or lacks records in the newest batch, which is later than the statement's.

If records come again, the topic counts again (capture `world-ticdc-topic-ends`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pyspark.sql import Row

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.control_tables import read_maxima, read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent, ddl_event
from cdc_pipeline.mysql.model.change_names import created_names, folded
from cdc_pipeline.mysql.model.schema_changes import DropDatabase, RecoverDatabase
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

_BEHIND = 2000 << TSO_SHIFT
"""How far the watermark of a topic that ended is behind. TiCDC sends one per second to all partitions."""
_LAST_STEP = 600_000 << TSO_SHIFT
"""The last watermark of a topic is at most this far above the statement before it."""

_Removal: TypeAlias = tuple[int, int, Position]
"""`commit_ts`, batch and position of a statement."""


def ended_topics(
    lake: Lake, watermarks: Mapping[tuple[str, int], int | None], newest_batch: Mapping[str, Any]
) -> dict[str, Position]:
    """Topic → the statement that removed its last table. Needs no Spark in local folders.

    `watermarks`: (topic, partition) → its newest one. Reads no table if none is two seconds behind another topic's.
    """
    by_topic: dict[str, int] = {}
    for (topic, _), mark in watermarks.items():
        by_topic[topic] = min(mark or 0, by_topic.get(topic, mark or 0))
    newest = max(by_topic.values(), default=0)
    behind = {topic: mark for topic, mark in by_topic.items() if newest - mark >= _BEHIND}
    if not behind:
        return {}
    since = min(behind.values()) - _LAST_STEP  # 0 without a watermark: such a topic may have ended at any time
    last_batch = newest_batch["batch_id"]
    statements = read_rows(lake, "ddl_history", ("commit_ts", ">", since), ("batch_id", "<=", last_batch))
    recent = [(ddl_event(Row(**row)), row["batch_id"]) for row in statements if row["exact_ts"]]
    tables = _Tables(recent)
    named = {topic for topic in behind if any(_is_named_after(topic, name) for name in tables.removed)}
    if not named:
        return {}
    has_new = {(span["topic"], span["partition"]) for span in newest_batch["offsets"]}
    newest_of = _newest_of_tables(lake, named, last_batch, [event for event, _ in recent])
    found = {topic: removal for topic in named if (removal := _last_removal(topic, newest_of.get(topic, {}), tables))}

    def is_read(partition: tuple[str, int], removal: _Removal) -> bool:
        commit_ts, batch, _ = removal
        return (watermarks[partition] or 0) >= commit_ts or (batch < last_batch and partition not in has_new)

    return {
        topic: removal[2]
        for topic, removal in found.items()
        if removal[0] <= newest and all(is_read(place, removal) for place in watermarks if place[0] == topic)
    }


class _Tables:
    """Which statements removed and added the names of tables and databases, in lower case. A database has no `table`."""

    def __init__(self, statements: Iterable[tuple[DdlEvent, int]]) -> None:
        self.removed: dict[TableName, _Removal] = {}
        self._added: dict[TableName, int] = {}
        for event, batch in statements:
            removal = (event.commit_ts, batch, event.position)
            added = created_names(event.changes)
            added += [
                TableName(change.new_database or change.database, "")
                for change in event.changes
                if isinstance(change, RecoverDatabase)
            ]
            for name in map(folded, added):
                self._added[name] = max(event.commit_ts, self._added.get(name, 0))
            for name in map(folded, _removed_names(event)):
                self.removed[name] = max(removal, self.removed.get(name, removal))

    def removal(self, name: TableName) -> _Removal | None:
        """The newest statement that removed the table; None if none did, or if a later or simultaneous one added it."""
        keys = (folded(name), folded(TableName(name.database, "")))
        added = max(self._added.get(key, 0) for key in keys)
        return max(
            (self.removed[key] for key in keys if key in self.removed and self.removed[key][0] > added), default=None
        )


def _removed_names(event: DdlEvent) -> list[TableName]:
    names = [name for change in event.changes for name in change.names().removed]
    return names + [TableName(change.database, "") for change in event.changes if isinstance(change, DropDatabase)]


def _newest_of_tables(
    lake: Lake, topics: Iterable[str], last_batch: int, recent: Iterable[DdlEvent]
) -> dict[str, dict[TableName, int]]:
    """Topic → each table of its changes and recent statements → the newest `commit_ts` of them.

    A RENAME is in the topic of the old name.
    """
    found = [
        (topic, TableName(*name), commit_ts)
        for topic in topics
        for name, commit_ts in read_maxima(
            lake,
            "change_log",
            ("database", "table"),
            "commit_ts",
            ("topic", "=", topic),
            ("batch_id", "<=", last_batch),
        ).items()
    ]
    for event in recent:
        names = _removed_names(event) or [TableName(event.database, event.table)]
        found += [(event.topic, name, event.commit_ts) for name in names]
    newest: dict[str, dict[TableName, int]] = {}
    for topic, name, commit_ts in found:
        of_topic = newest.setdefault(topic, {})
        of_topic[name] = max(commit_ts, of_topic.get(name, commit_ts))
    return newest


def _last_removal(topic: str, newest_of: Mapping[TableName, int], tables: _Tables) -> _Removal | None:
    """The statement that removed the last table of the topic; None if one exists or the topic has a statement about a
    database, as TiCDC's default topic."""
    removals = []
    for name, newest in newest_of.items():
        removal = tables.removal(name)
        if not name.table or not _is_named_after(topic, name) or removal is None or removal[0] < newest:
            return None
        removals.append(removal)
    return max(removals, default=None)


def _is_named_after(topic: str, name: TableName) -> bool:
    """Whether the topic's name has that of the database, and after it that of the table, as TiCDC writes them."""
    database, table = (re.sub(r"[^a-z0-9._-]", "_", part.lower()) for part in (name.database, name.table))
    _, found, rest = topic.lower().partition(database)
    return bool(found) and table in rest
