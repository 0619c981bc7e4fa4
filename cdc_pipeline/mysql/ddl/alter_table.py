"""Parses the clauses of ALTER TABLE."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.column_definitions import read_column, read_default
from cdc_pipeline.mysql.ddl.column_types import accept_character_set
from cdc_pipeline.mysql.ddl.keys import named_charset, read_key, read_table_option
from cdc_pipeline.mysql.ddl.partitioning import (
    known_or_unknown,
    read_partition_name,
    read_partitioning,
    read_partitions,
)
from cdc_pipeline.mysql.ddl.tokens import Cursor
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.partitions import Partitioning
from cdc_pipeline.mysql.types.charsets import UNKNOWN

# Clauses that change neither rows nor columns, without and with a value.
_WITHOUT_EFFECT = (
    *("FORCE", "ENABLE KEYS", "DISABLE KEYS", "WITH VALIDATION", "WITHOUT VALIDATION", "SECONDARY_LOAD"),
    *("SECONDARY_UNLOAD", "REMOVE TTL", "CACHE", "NOCACHE", "NOWAIT"),
)
_OPTIONS_WITHOUT_EFFECT = ("ALGORITHM", "LOCK", "ATTRIBUTES", "WAIT", "SET TIFLASH REPLICA")
# Commas before other clauses. In MySQL a clause about partitions is the only one of its statement.
_NEXT_CLAUSE = (
    *(", ADD", ", DROP", ", CHANGE", ", MODIFY", ", RENAME", ", ALTER", ", CONVERT", ", TRUNCATE", ", EXCHANGE"),
    ", REMOVE",
)
_PARTITIONS_WITHOUT_EFFECT = (
    *("REBUILD PARTITION", "OPTIMIZE PARTITION", "ANALYZE PARTITION", "CHECK PARTITION", "REPAIR PARTITION"),
    "PARTITION",  # PARTITION p ATTRIBUTES …, PARTITION p PLACEMENT POLICY …
)


def read_alter_clauses(cursor: Cursor) -> tuple[ddl.Clause, ...]:
    """Reads the clauses after ALTER TABLE name up to the end of the statement or a semicolon.

    An unknown clause becomes a NotSupportedClause up to the next comma. Raises DdlSyntaxError for unknown words inside a
    known clause.
    """
    clauses: list[ddl.Clause] = []
    if cursor.at_statement_end:
        return ()
    while True:
        clauses.extend(_read_clause(cursor))
        if cursor.accept(",") or _needs_no_comma(cursor):
            continue
        if cursor.at_statement_end:
            return tuple(clauses)
        raise cursor.error("a comma expected between clauses")


def _needs_no_comma(cursor: Cursor) -> bool:
    """Whether the next clause may follow without a comma: partitioning and table options."""
    if cursor.at_any("PARTITION BY", "REMOVE PARTITIONING"):
        return True
    before = cursor.index
    is_option = read_table_option(cursor) is not None
    cursor.index = before
    return is_option


def _read_clause(cursor: Cursor) -> tuple[ddl.Clause, ...]:
    start = cursor.position
    partition_clause = _read_partition_clause(cursor)
    if partition_clause is not None:
        return (partition_clause,)
    if cursor.accept("ADD"):
        return _read_add(cursor, start)
    if cursor.accept("DROP"):
        return (_read_drop(cursor),)
    if word := cursor.accept_any("CHANGE", "MODIFY"):
        return _read_change(cursor, renames=word == "CHANGE")
    if cursor.accept("RENAME"):
        return (_read_rename(cursor),)
    if cursor.accept("ALTER"):
        return (_read_alter(cursor, start),)
    if cursor.accept("CONVERT TO"):
        return (_read_convert(cursor, start),)
    if _accept_effectless(cursor):
        return (ddl.NoRowEffect(cursor.text_since(start)),)
    option = read_table_option(cursor)
    if option is None:
        return (ddl.NotSupportedClause(_read_unknown(cursor)),)
    if option[0] == "ENGINE":
        return (ddl.SetEngine(option[1]),)
    options = dict([option])
    if (charset := named_charset(options)) is None:
        return (ddl.NoRowEffect(cursor.text_since(start)),)
    return (ddl.DefaultCharset(charset, options.get("COLLATE")),)


def _read_add(cursor: Cursor, start: int) -> tuple[ddl.Clause, ...]:
    key = read_key(cursor)
    if key is not None:
        return (ddl.NoRowEffect(cursor.text_since(start)) if isinstance(key, ddl.NoRowEffect) else key,)
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF NOT EXISTS")

    def added(cursor: Cursor) -> tuple[ddl.Clause, ...]:
        if (key := read_key(cursor)) is not None:
            return (key,)
        parsed = read_column(cursor)
        return (ddl.AddColumn(parsed.column, None, if_not_exists), *parsed.keys)

    if cursor.at("("):
        return tuple(clause for clauses in cursor.read_list(added) for clause in clauses)
    parsed = read_column(cursor)
    return (ddl.AddColumn(parsed.column, _read_position(cursor), if_not_exists), *parsed.keys)


def _read_drop(cursor: Cursor) -> ddl.Clause:
    if cursor.accept("PRIMARY KEY"):
        return ddl.DropPrimaryKey()
    if cursor.accept("FOREIGN KEY"):
        cursor.accept("IF EXISTS")
        return ddl.DropForeignKey(cursor.read_name("a constraint name"))
    if cursor.accept("CHECK"):
        cursor.accept("IF EXISTS")
        return ddl.NoRowEffect(f"DROP CONSTRAINT {cursor.read_name('a constraint name')}")
    if cursor.accept_any("INDEX", "KEY", "CONSTRAINT"):
        # a constraint may be a UNIQUE key; `altered` ignores unknown names
        cursor.accept("IF EXISTS")
        return drop_index_clause(cursor.read_name("an index name"))
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF EXISTS")
    clause = ddl.DropColumn(cursor.read_column_name(), if_exists)
    cursor.accept_any("RESTRICT", "CASCADE")
    return clause


def drop_index_clause(name: str) -> ddl.DropIndex | ddl.DropPrimaryKey:
    """The clause that drops the index of this name. The index of the primary key is always named PRIMARY."""
    return ddl.DropPrimaryKey() if name.upper() == "PRIMARY" else ddl.DropIndex(name)


def _read_change(cursor: Cursor, *, renames: bool) -> tuple[ddl.Clause, ...]:
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF EXISTS")
    name = cursor.read_column_name() if renames else ""
    parsed = read_column(cursor)
    change = ddl.ChangeColumn(name or parsed.column.name, parsed.column, _read_position(cursor), if_exists)
    return (change, *parsed.keys)


def _read_position(cursor: Cursor) -> ddl.ColumnPosition | None:
    if cursor.accept("FIRST"):
        return ddl.ColumnPosition()
    return ddl.ColumnPosition(cursor.read_column_name()) if cursor.accept("AFTER") else None


def _read_rename(cursor: Cursor) -> ddl.Clause:
    if cursor.accept("COLUMN"):
        if_exists = cursor.at("IF EXISTS")
        name, new_name = _read_names(cursor, "a column name")
        return ddl.RenameColumn(name, new_name, if_exists)
    if cursor.accept_any("INDEX", "KEY"):
        name, new_name = _read_names(cursor, "an index name")
        return ddl.RenameIndex(name, new_name)
    cursor.accept_any("TO", "AS", "=")
    return ddl.RenameTo(cursor.read_table_name())


def _read_names(cursor: Cursor, what: str) -> tuple[str, str]:
    cursor.accept("IF EXISTS")
    name = cursor.read_name(what)
    cursor.expect("TO")
    return name, cursor.read_name(what)


def _read_alter(cursor: Cursor, start: int) -> ddl.Clause:
    """Reads ALTER INDEX, CHECK, CONSTRAINT or COLUMN inside ALTER TABLE."""
    if cursor.accept_any("INDEX", "KEY"):
        cursor.read_name("an index name")
        cursor.expect("VISIBLE", "INVISIBLE", "IGNORED", "NOT IGNORED")
        return ddl.NoRowEffect(cursor.text_since(start))
    if cursor.accept_any("CHECK", "CONSTRAINT"):
        cursor.read_name("a constraint name")
        cursor.expect("ENFORCED", "NOT ENFORCED")
        return ddl.NoRowEffect(cursor.text_since(start))
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF EXISTS")
    name = cursor.read_column_name()
    if cursor.accept("DROP DEFAULT"):
        return ddl.SetDefault(name, None, if_exists)
    cursor.expect("SET")
    if cursor.accept_any("VISIBLE", "INVISIBLE"):
        return ddl.NoRowEffect(cursor.text_since(start))
    cursor.expect("DEFAULT")
    return ddl.SetDefault(name, read_default(cursor), if_exists)


def _read_convert(cursor: Cursor, start: int) -> ddl.Clause:
    """Reads CONVERT TO CHARACTER SET. `binary`, which turns text columns into binary ones, is not supported."""
    if not accept_character_set(cursor):
        raise cursor.error("CHARACTER SET expected")
    charset = cursor.read_option_value().lower()
    collation = cursor.read_option_value().lower() if cursor.accept("COLLATE") else None
    if charset == "binary":
        return ddl.NotSupportedClause(cursor.text_since(start))
    return ddl.ConvertCharset(UNKNOWN if charset == "default" else charset, collation)


def _accept_effectless(cursor: Cursor) -> bool:
    """Moves past a known clause that changes neither rows nor columns. Returns whether one was next."""
    if cursor.accept("ORDER BY"):
        cursor.read_bare_list(_read_order, "ASC", "DESC")
        return True
    return (cursor.accept_any(*_WITHOUT_EFFECT) or cursor.accept_option(*_OPTIONS_WITHOUT_EFFECT)) is not None


def _read_order(cursor: Cursor) -> None:
    cursor.read_column_name()
    cursor.accept_any("ASC", "DESC")


def _read_unknown(cursor: Cursor) -> str:
    """Reads a clause up to the next comma outside brackets."""
    if cursor.at_statement_end or cursor.at(","):
        raise cursor.error("a clause expected")
    return cursor.skip_to(",")


# ---- partitions


def _read_partition_clause(cursor: Cursor) -> ddl.Clause | None:
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
        return ddl.TruncatePartition(() if is_all and cursor.accept("ALL") else _read_partition_names(cursor))
    if cursor.accept("DROP PARTITION"):
        if_exists = cursor.accept("IF EXISTS")
        return ddl.DropPartition(_read_partition_names(cursor), if_exists)
    if cursor.accept("EXCHANGE PARTITION"):
        return _read_exchange(cursor)
    if cursor.at_any("ADD PARTITION", "REORGANIZE PARTITION", "COALESCE PARTITION"):
        # they keep all rows: if one cannot be parsed, only the partitioning becomes unknown
        clause = known_or_unknown(cursor, _read_partition_definition, *_NEXT_CLAUSE)
        return ddl.PartitionBy(clause) if isinstance(clause, Partitioning) else clause
    if cursor.at_any(*_PARTITIONS_WITHOUT_EFFECT):
        return ddl.NoRowEffect(cursor.skip_to(*_NEXT_CLAUSE))
    return None


def _read_exchange(cursor: Cursor) -> ddl.ExchangePartition:
    name = read_partition_name(cursor)
    cursor.expect("WITH TABLE")
    table = cursor.read_table_name()
    validated = cursor.accept_any("WITHOUT VALIDATION", "WITH VALIDATION") != "WITHOUT VALIDATION"
    return ddl.ExchangePartition(name, table, validated)


def _read_partition_definition(cursor: Cursor) -> ddl.Clause:
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
        names = _read_partition_names(cursor)
        cursor.expect("INTO")
        return ddl.ReorganizePartition(names, read_partitions(cursor))
    cursor.expect("COALESCE PARTITION")
    cursor.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
    return ddl.CoalescePartition(cursor.read_integer())


def _read_partition_names(cursor: Cursor) -> tuple[str, ...]:
    return tuple(cursor.read_bare_list(read_partition_name, "INTO"))
