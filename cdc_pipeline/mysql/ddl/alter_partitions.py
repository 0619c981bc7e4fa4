"""Parses the clauses of ALTER TABLE about table partitions."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.keys import read_table_name
from cdc_pipeline.mysql.ddl.partitioning import (
    at_statement_end,
    read_partition_name,
    read_partitioning,
    read_partitions,
    read_to_clause,
)
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.partitions import Partitioning

# The first words of other clauses. In MySQL a clause about partitions is the only one of its statement.
_VERBS = ("ADD", "DROP", "CHANGE", "MODIFY", "RENAME", "ALTER", "CONVERT", "TRUNCATE", "EXCHANGE", "REMOVE")
_WITHOUT_EFFECT = (
    ("REBUILD", "PARTITION"),
    ("OPTIMIZE", "PARTITION"),
    ("ANALYZE", "PARTITION"),
    ("CHECK", "PARTITION"),
    ("REPAIR", "PARTITION"),
    ("PARTITION",),  # PARTITION p ATTRIBUTES …, PARTITION p PLACEMENT POLICY …
)
# FIRST PARTITION of TiDB's INTERVAL removes rows. TiDB logs it as DROP PARTITION with the names.
_NOT_SUPPORTED = (
    ("FIRST", "PARTITION"),
    ("DISCARD", "PARTITION"),
    ("IMPORT", "PARTITION"),
    ("CONVERT", "PARTITION"),
    ("CONVERT", "TABLE"),
)
# Clauses that keep all rows: if one cannot be parsed, only the partitioning becomes unknown.
_DEFINITIONS = (
    ("ADD", "PARTITION"),
    ("REORGANIZE", "PARTITION"),
    ("COALESCE", "PARTITION"),
    ("MERGE", "FIRST", "PARTITION"),
    ("LAST", "PARTITION"),
    ("SPLIT", "MAXVALUE", "PARTITION"),  # with MERGE FIRST and LAST of TiDB's INTERVAL: it logs the names
    ("SPLIT", "PARTITION"),
)


def read_partition_clause(cursor: Cursor) -> ddl.Clause | None:
    """Reads a clause about partitions; returns None if none is next.

    Raises DdlSyntaxError for unknown words in a clause that removes or exchanges rows.
    """
    if cursor.at("PARTITION", "BY"):
        return ddl.PartitionBy(read_partitioning(cursor, _at_clause))
    if cursor.accept("REMOVE", "PARTITIONING"):
        return ddl.RemovePartitioning()
    if cursor.accept("TRUNCATE", "PARTITION"):
        is_all = cursor.at("ALL") and not cursor.at(",", offset=1)
        return ddl.TruncatePartition(() if is_all and cursor.accept("ALL") else _read_names(cursor))
    if cursor.accept("DROP", "PARTITION"):
        if_exists = cursor.accept("IF", "EXISTS")
        return ddl.DropPartition(_read_names(cursor), if_exists)
    if cursor.accept("EXCHANGE", "PARTITION"):
        return _read_exchange(cursor)
    start = cursor.position
    if any(cursor.at(*words) for words in _DEFINITIONS):
        return _read_definition_or_unknown(cursor)
    if any(cursor.at(*words) for words in _NOT_SUPPORTED):
        return ddl.NotSupportedClause(read_to_clause(cursor, start, _at_clause))
    if any(cursor.at(*words) for words in _WITHOUT_EFFECT):
        return ddl.NoRowEffect(read_to_clause(cursor, start, _at_clause))
    return None


def _read_exchange(cursor: Cursor) -> ddl.ExchangePartition:
    name = read_partition_name(cursor)
    cursor.expect("WITH", "TABLE")
    table = read_table_name(cursor)
    if cursor.accept("WITHOUT", "VALIDATION"):
        return ddl.ExchangePartition(name, table, validated=False)
    cursor.accept("WITH", "VALIDATION")
    return ddl.ExchangePartition(name, table)


def _read_definition_or_unknown(cursor: Cursor) -> ddl.Clause:
    """Reads a clause that only defines partitions. If it cannot be parsed, the partitioning becomes unknown."""
    before, start = cursor.index, cursor.position
    try:
        clause = _read_definition(cursor)
        if at_statement_end(cursor) or cursor.at(","):
            return clause
        reason = str(cursor.error("unexpected words"))
    except DdlSyntaxError as error:
        reason = str(error)
    cursor.index = before
    return ddl.PartitionBy(Partitioning.unknown(reason, read_to_clause(cursor, start, _at_clause)))


def _read_definition(cursor: Cursor) -> ddl.Clause:
    if cursor.accept("ADD", "PARTITION"):
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if cursor.accept("PARTITIONS"):
            return ddl.AddPartitions((), cursor.read_integer(), if_not_exists)
        return ddl.AddPartitions(read_partitions(cursor), None, if_not_exists)
    if cursor.accept("REORGANIZE", "PARTITION"):
        if not cursor.at("LOCAL", "INTO"):
            cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if at_statement_end(cursor) or cursor.at(","):
            return ddl.ReorganizePartition((), ())
        names = _read_names(cursor)
        cursor.expect("INTO")
        return ddl.ReorganizePartition(names, read_partitions(cursor))
    if cursor.accept("COALESCE", "PARTITION"):
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        return ddl.CoalescePartition(cursor.read_integer())
    raise cursor.error("a known clause expected")


def _read_names(cursor: Cursor) -> tuple[str, ...]:
    """Reads names of partitions. After a comma, more than one word begins the next clause."""
    names = [read_partition_name(cursor)]
    while cursor.at(","):
        one_word = cursor.peek(2) is None or any(cursor.at(word, offset=2) for word in (",", ";", "INTO"))
        if not one_word:
            break
        cursor.expect(",")
        names.append(read_partition_name(cursor))
    return tuple(names)


def _at_clause(cursor: Cursor) -> bool:
    """Whether a comma and the next clause follow."""
    return any(cursor.at(",", verb) for verb in _VERBS)
