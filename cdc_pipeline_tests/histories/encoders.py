"""The encoder of each mode, and the partition of each row."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import TypeAlias

from cdc_pipeline_tests.histories.canal import Canal
from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.dataworks import DataWorks
from cdc_pipeline_tests.histories.message import Message, PartitionOf
from cdc_pipeline_tests.histories.ticdc import EXTENSION_MODES, TICDC_MODES, TiCdc
from cdc_pipeline_tests.histories.upstream import Change, Ddl, Event

MODES = (*TICDC_MODES, "canal", "dataworks")

Encoder: TypeAlias = "TiCdc | Canal | DataWorks"


def dispatchers(mode: str) -> tuple[str, ...]:
    """How a mode may distribute its rows over partitions."""
    return ("table", "index_value", "ts") if mode in TICDC_MODES else ("table", "key")


def partition_of(dispatcher: str, partitions: int) -> PartitionOf:
    """Returns a row's partition by table, by key (of the new row, of a deleted one the old row) or by commitTs.

    Keyless tables use their name. Canal's `key` uses the primary key only, and tables without one use their database.
    """

    def number(change: Change) -> int:
        table = change.table
        if dispatcher == "ts":
            return change.commit_ts
        if dispatcher == "key":
            return _java_hash(table.database, *(change.row[name] or "" for name in table.primary_key))
        found = zlib.crc32("".join(table.full_name).encode())
        for name in table.key if dispatcher == "index_value" else ():
            found ^= zlib.crc32((name + (change.row[name] or "")).encode())
        return found

    return lambda change: number(change) % partitions


def _java_hash(*texts: str) -> int:
    """XOR of Java's hash codes of the strings."""
    found = 0
    for text in texts:
        code = 0
        for character in text:
            code = (31 * code + ord(character)) & 0xFFFFFFFF
        found ^= code
    return found


def encoder_of(
    mode: str,
    partition: PartitionOf,
    choices: Choices,
    *,
    raw_changes: bool,
    markers: bool,
    late: bool = False,
    early: bool = False,
    recased: bool = False,
    numbered: bool = True,
) -> Encoder:
    """The encoder of a mode. `late`: some statements of Canal start seconds before they are logged. `early`: TiCDC before
    v5.4. `recased`: statements spell names in any case. `numbered`: Canal's messages have batch numbers."""
    if mode == "canal":
        return Canal(partition, choices, late, recased, numbered)
    if mode == "dataworks":
        return DataWorks(partition, choices, markers)
    return TiCdc(mode, raw_changes, partition, choices, recased, early)


def encoded(encoder: Encoder, events: Sequence[Event]) -> list[Message]:
    """All messages of the events, each once and in order."""
    found: list[Message] = []
    for event in events:
        found += encoder.ddl(event) if isinstance(event, Ddl) else encoder.rows(event)
    return found


def has_watermarks(mode: str) -> bool:
    return mode in EXTENSION_MODES
