"""Parses the clauses of ALTER TABLE about table partitions."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.partitioning import (
    known_or_unknown,
    read_partition_name,
    read_partitioning,
    read_partitions,
)
from cdc_pipeline.mysql.ddl.tokens import Cursor
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.partitions import Partitioning

# Commas before other clauses. In MySQL a clause about partitions is the only one of its statement.
_NEXT_CLAUSE = (
    *(", ADD", ", DROP", ", CHANGE", ", MODIFY", ", RENAME", ", ALTER", ", CONVERT", ", TRUNCATE", ", EXCHANGE"),
    ", REMOVE",
)
_WITHOUT_EFFECT = (
    *("REBUILD PARTITION", "OPTIMIZE PARTITION", "ANALYZE PARTITION", "CHECK PARTITION", "REPAIR PARTITION"),
    "PARTITION",  # PARTITION p ATTRIBUTES …, PARTITION p PLACEMENT POLICY …
)


def read_partition_clause(cursor: Cursor) -> ddl.Clause | None:
    """Reads a clause about partitions; returns None if none is next.

    TiDB's INTERVAL has more clauses, which TiDB logs as these. Raises DdlSyntaxError for unknown words in a clause that
    removes or exchanges rows.
    """
    if cursor.at("PARTITION BY"):
        return ddl.PartitionBy(read_partitioning(cursor, *_NEXT_CLAUSE))
    if cursor.accept("REMOVE PARTITIONING"):
        return ddl.RemovePartitioning()
    if cursor.accept("TRUNCATE PARTITION"):
        is_all = cursor.at("ALL") and not cursor.at(",", offset=1)
        return ddl.TruncatePartition(() if is_all and cursor.accept("ALL") else _read_names(cursor))
    if cursor.accept("DROP PARTITION"):
        if_exists = cursor.accept("IF EXISTS")
        return ddl.DropPartition(_read_names(cursor), if_exists)
    if cursor.accept("EXCHANGE PARTITION"):
        return _read_exchange(cursor)
    if cursor.at_any("ADD PARTITION", "REORGANIZE PARTITION", "COALESCE PARTITION"):
        # they keep all rows: if one cannot be parsed, only the partitioning becomes unknown
        clause = known_or_unknown(cursor, _read_definition, *_NEXT_CLAUSE)
        return ddl.PartitionBy(clause) if isinstance(clause, Partitioning) else clause
    if cursor.at_any(*_WITHOUT_EFFECT):
        return ddl.NoRowEffect(cursor.skip_to(*_NEXT_CLAUSE))
    return None


def _read_exchange(cursor: Cursor) -> ddl.ExchangePartition:
    name = read_partition_name(cursor)
    cursor.expect("WITH TABLE")
    table = cursor.read_table_name()
    validated = cursor.accept_any("WITHOUT VALIDATION", "WITH VALIDATION") != "WITHOUT VALIDATION"
    return ddl.ExchangePartition(name, table, validated)


def _read_definition(cursor: Cursor) -> ddl.Clause:
    if cursor.accept("ADD PARTITION"):
        if_not_exists = cursor.accept("IF NOT EXISTS")
        cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if cursor.accept("PARTITIONS"):
            return ddl.AddPartitions((), cursor.read_integer(), if_not_exists)
        return ddl.AddPartitions(read_partitions(cursor), None, if_not_exists)
    if cursor.accept("REORGANIZE PARTITION"):
        if not cursor.at("LOCAL INTO"):
            cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
        if cursor.at_statement_end:
            return ddl.ReorganizePartition((), ())
        names = _read_names(cursor)
        cursor.expect("INTO")
        return ddl.ReorganizePartition(names, read_partitions(cursor))
    cursor.expect("COALESCE PARTITION")
    cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
    return ddl.CoalescePartition(cursor.read_integer())


def _read_names(cursor: Cursor) -> tuple[str, ...]:
    return tuple(cursor.read_bare_list(read_partition_name, "INTO"))
