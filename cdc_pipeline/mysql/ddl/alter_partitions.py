"""Reads the clauses of ALTER TABLE about partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.keys import read_table_name
from cdc_pipeline.mysql.ddl.partition_definitions import read_bound, read_partition_name, read_partitions
from cdc_pipeline.mysql.ddl.partitioning import at_end, read_partitioning, skipped
from cdc_pipeline.mysql.ddl.tokens import DdlSyntaxError
from cdc_pipeline.mysql.model.partitions import Partitioning
from cdc_pipeline.mysql.model.schema_changes import (
    AddPartitions,
    CoalescePartition,
    DropPartition,
    ExchangePartition,
    FirstPartition,
    LastPartition,
    MergeFirstPartition,
    NoRowEffect,
    NotSupportedClause,
    PartitionBy,
    RemovePartitioning,
    ReorganizePartition,
    TruncatePartition,
)

if TYPE_CHECKING:
    from cdc_pipeline.mysql.ddl.tokens import Cursor
    from cdc_pipeline.mysql.model.schema_changes import Clause

# Clauses on partitions stand alone in a statement of MySQL, and their lists of names have commas.
_VERBS = ("ADD", "DROP", "CHANGE", "MODIFY", "RENAME", "ALTER", "CONVERT", "TRUNCATE", "EXCHANGE", "REMOVE")
_WITHOUT_EFFECT = (
    ("REBUILD", "PARTITION"),
    ("OPTIMIZE", "PARTITION"),
    ("ANALYZE", "PARTITION"),
    ("CHECK", "PARTITION"),
    ("REPAIR", "PARTITION"),
    ("PARTITION",),  # PARTITION p ATTRIBUTES …, PARTITION p PLACEMENT POLICY …
)
_NOT_SUPPORTED = (
    ("DISCARD", "PARTITION"),
    ("IMPORT", "PARTITION"),
    ("CONVERT", "PARTITION"),
    ("CONVERT", "TABLE"),
)
# Rows stay as they are in these, so that one that cannot be read costs only the knowledge of the partitions.
_DEFINITIONS = (
    ("ADD", "PARTITION"),
    ("REORGANIZE", "PARTITION"),
    ("COALESCE", "PARTITION"),
    ("MERGE", "FIRST", "PARTITION"),
    ("LAST", "PARTITION"),
    ("SPLIT", "MAXVALUE", "PARTITION"),
    ("SPLIT", "PARTITION"),
)


def read_partition_clause(cursor: Cursor, database: str) -> Clause | None:
    """The clause on partitions at the cursor, None where none is.

    Raises DdlSyntaxError for words that it does not know in a clause that removes or exchanges rows.
    """
    if cursor.at("PARTITION", "BY"):
        return PartitionBy(read_partitioning(cursor, _at_clause))
    if cursor.accept("REMOVE", "PARTITIONING"):
        return RemovePartitioning()
    if cursor.accept("TRUNCATE", "PARTITION"):
        is_all = cursor.at("ALL") and not cursor.at(",", offset=1)
        return TruncatePartition(() if is_all and cursor.accept("ALL") else _names(cursor))
    if cursor.accept("DROP", "PARTITION"):
        if_exists = cursor.accept("IF", "EXISTS")
        return DropPartition(_names(cursor), if_exists)
    if cursor.accept("EXCHANGE", "PARTITION"):
        return _exchanged(cursor, database)
    if cursor.accept("FIRST", "PARTITION"):
        return FirstPartition(read_bound(cursor))
    start = cursor.position
    if any(cursor.at(*words) for words in _DEFINITIONS):
        return _definition(cursor)
    if any(cursor.at(*words) for words in _NOT_SUPPORTED):
        return NotSupportedClause(skipped(cursor, start, _at_clause))
    if any(cursor.at(*words) for words in _WITHOUT_EFFECT):
        return NoRowEffect(skipped(cursor, start, _at_clause))
    return None


def _exchanged(cursor: Cursor, database: str) -> ExchangePartition:
    name = read_partition_name(cursor)
    cursor.expect("WITH", "TABLE")
    table = read_table_name(cursor, database)
    if cursor.accept("WITHOUT", "VALIDATION"):
        return ExchangePartition(name, table, validated=False)
    cursor.accept("WITH", "VALIDATION")
    return ExchangePartition(name, table)


def _definition(cursor: Cursor) -> Clause:
    """A clause that only defines partitions; one that cannot be read leaves a partitioning that is not known."""
    before, start = cursor.index, cursor.position
    try:
        clause = _read_definition(cursor)
        if at_end(cursor) or cursor.at(","):
            return clause
        reason = str(cursor.error("cannot read on"))
    except DdlSyntaxError as error:
        reason = str(error)
    cursor.index = before
    return PartitionBy(Partitioning.unknown(reason, skipped(cursor, start, _at_clause)))


def _read_definition(cursor: Cursor) -> Clause:
    if cursor.accept("ADD", "PARTITION"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if cursor.accept("PARTITIONS"):
            return AddPartitions((), cursor.integer(), if_not_exists)
        return AddPartitions(read_partitions(cursor), None, if_not_exists)
    if cursor.accept("REORGANIZE", "PARTITION"):
        if not cursor.at("LOCAL", "INTO"):
            cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if at_end(cursor) or cursor.at(","):
            return ReorganizePartition((), ())
        names = _names(cursor)
        cursor.expect("INTO")
        return ReorganizePartition(names, read_partitions(cursor))
    if cursor.accept("COALESCE", "PARTITION"):
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        return CoalescePartition(cursor.integer())
    if cursor.accept("MERGE", "FIRST", "PARTITION"):
        return MergeFirstPartition(read_bound(cursor))
    if cursor.accept("LAST", "PARTITION") or cursor.accept("SPLIT", "MAXVALUE", "PARTITION"):
        return LastPartition(read_bound(cursor))
    raise cursor.error("a clause that is known expected")


def _names(cursor: Cursor) -> tuple[str, ...]:
    """Names of partitions; the comma after them is followed by a clause, which has more words than a name."""
    names = [read_partition_name(cursor)]
    while cursor.at(","):
        follows = cursor.peek(2) is None or any(cursor.at(word, offset=2) for word in (",", ";", "INTO"))
        if not follows:
            break
        cursor.expect(",")
        names.append(read_partition_name(cursor))
    return tuple(names)


def _at_clause(cursor: Cursor) -> bool:
    """Whether a comma and another clause are next."""
    return any(cursor.at(",", verb) for verb in _VERBS)
