"""Which encoder writes a mode, and to which partition a row goes."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline_tests.histories.canal import Canal
from cdc_pipeline_tests.histories.dataworks import DataWorks
from cdc_pipeline_tests.histories.ticdc import EXTENSION_MODES, TICDC_MODES, TiCdc
from cdc_pipeline_tests.histories.upstream import Ddl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline_tests.histories.choices import Choices
    from cdc_pipeline_tests.histories.message import Message, PartitionOf
    from cdc_pipeline_tests.histories.upstream import Change, Event

MODES = (*TICDC_MODES, "canal", "dataworks")

Encoder: TypeAlias = "TiCdc | Canal | DataWorks"


def dispatchers(mode: str) -> tuple[str, ...]:
    """The ways in which a mode's rows may be spread over partitions."""
    return ("table", "index_value", "ts") if mode in TICDC_MODES else ("table", "key")


def partition_of(dispatcher: str, partitions: int) -> PartitionOf:
    """The partition of a row: by table, by the key of the new row if there is one else of the old one, or by commitTs.

    A table without a key goes by its name. Canal's `key` looks at the primary key only, and a table without one goes by
    its database.
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
    """XOR of the hash codes of Java strings."""
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
) -> Encoder:
    """`late`: Canal's `es` is when a statement began, some of them seconds before they were logged. `early`: TiCDC before
    v5.4."""
    if mode == "canal":
        return Canal(partition, choices, late)
    if mode == "dataworks":
        return DataWorks(partition, choices, markers)
    return TiCdc(mode, raw_changes, partition, choices, early)


def encoded(encoder: Encoder, events: Sequence[Event]) -> list[Message]:
    """All messages of the events, each sent once and in order."""
    found: list[Message] = []
    for event in events:
        found += encoder.ddl(event) if isinstance(event, Ddl) else encoder.rows(event)
    return found


def has_watermarks(mode: str) -> bool:
    return mode in EXTENSION_MODES
