"""Parses keys, constraints and table options of CREATE TABLE, ALTER TABLE and CREATE INDEX."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.column_definitions import read_check, read_references
from cdc_pipeline.mysql.ddl.column_types import accept_character_set
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.limits import MAX_KEY_COLUMNS, limit_message
from cdc_pipeline.mysql.model.schema_changes import AddIndex, AddPrimaryKey, AddUniqueKey, Clause, NoRowEffect
from cdc_pipeline.mysql.model.table import PlainIndex, UniqueKey

_UNIQUE = ("UNIQUE INDEX", "UNIQUE KEY", "UNIQUE")
_PLAIN = (
    *("INDEX", "KEY", "FULLTEXT INDEX", "FULLTEXT KEY", "FULLTEXT", "SPATIAL INDEX", "SPATIAL KEY", "SPATIAL"),
    *("VECTOR INDEX", "VECTOR KEY", "COLUMNAR INDEX"),
)
INDEX_TYPES = tuple(
    f"{word} {kind}" for word in ("USING", "TYPE") for kind in ("BTREE", "HASH", "RTREE", "HNSW", "INVERTED")
)
# Options of an index, without and with a value.
_INDEX_WORDS = (
    *("VISIBLE", "INVISIBLE", "IGNORED", "NOT IGNORED", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL"),
    "ADD_COLUMNAR_REPLICA_ON_DEMAND",
)
_INDEX_OPTIONS = (
    *("COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "KEY_BLOCK_SIZE", "PRE_SPLIT_REGIONS"),
    "WITH PARSER",
)
_OPTIONS = (
    *("AFFINITY", "AUTOEXTEND_SIZE", "AUTO_ID_CACHE", "AUTO_INCREMENT", "AUTO_RANDOM_BASE", "AVG_ROW_LENGTH"),
    *("CHECKSUM", "COMMENT", "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTED", "ENCRYPTION"),
    *("ENCRYPTION_KEY_ID", "ENGINE", "ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS"),
    *("MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "PASSWORD"),
    *("PRE_SPLIT_REGIONS", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE"),
    *("SHARD_ROW_ID_BITS", "STATS_AUTO_RECALC", "STATS_BUCKETS", "STATS_COL_CHOICE", "STATS_COL_LIST"),
    *("STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STATS_SAMPLE_RATE", "STATS_TOPN", "TABLESPACE"),
    *("TABLE_CHECKSUM", "TRANSACTIONAL", "TTL", "TTL_ENABLE", "TTL_JOB_INTERVAL", "TYPE"),
    *("UNION", "DATA DIRECTORY", "INDEX DIRECTORY", "PLACEMENT POLICY", "STORAGE"),
)


def read_key(cursor: Cursor) -> Clause | None:
    """Reads a key, index or constraint; returns None if none is next. Checks, and foreign keys that change no
    row, become NoRowEffect.

    A UNIQUE key or index without a name gets "". `key_evolution` replaces it with MySQL's name.
    """
    start, symbol = cursor.position, ""
    is_constraint = cursor.accept("CONSTRAINT")
    if is_constraint:
        cursor.accept("IF NOT EXISTS")
        if not cursor.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            symbol = cursor.read_name("a constraint name")
    if cursor.at("CHECK"):
        read_check(cursor)
        return NoRowEffect(cursor.text_since(start))
    kind = cursor.accept_any("PRIMARY KEY", "FOREIGN KEY", *_UNIQUE, *(() if is_constraint else _PLAIN))
    if kind is None:
        if is_constraint:
            raise cursor.error("PRIMARY, UNIQUE, FOREIGN or CHECK expected")
        return None
    cursor.accept("IF NOT EXISTS")
    name = _read_index_name(cursor)
    columns, exact = read_key_parts(cursor)
    if kind == "PRIMARY KEY":
        # a key over prefixes is unique over the whole columns too
        return AddPrimaryKey(columns)
    if kind in _UNIQUE:
        return AddUniqueKey(UniqueKey(name or symbol, columns, exact))
    if kind in _PLAIN:
        return AddIndex(PlainIndex(name, columns))
    key = read_references(cursor, symbol or name or ", ".join(columns), columns)
    return key or NoRowEffect(cursor.text_since(start))


def _read_index_name(cursor: Cursor) -> str:
    """Reads the optional name of an index and USING after it; returns "" without a name."""
    name = ""
    if cursor.at_kind(Kind.WORD, Kind.QUOTED) and not cursor.at_any(*INDEX_TYPES):
        name = cursor.read_name("an index name")
    cursor.accept_any(*INDEX_TYPES)
    return name


def read_key_parts(cursor: Cursor) -> tuple[tuple[str, ...], bool]:
    """Reads the columns of a key in brackets, and its options.

    Returns the columns and whether the key is exact: without expressions, which the columns leave out, prefixes, and the
    condition of TiDB's partial indexes.
    """
    parts = cursor.read_list(_read_key_part)
    columns = tuple(column for column, _ in parts if column is not None)
    if len(columns) > MAX_KEY_COLUMNS:
        raise cursor.error(limit_message("columns of a key", len(columns), MAX_KEY_COLUMNS))
    while cursor.accept_any(*INDEX_TYPES, *_INDEX_WORDS) or cursor.accept_option(*_INDEX_OPTIONS):
        pass
    if is_partial := cursor.accept("WHERE"):
        cursor.skip_to(",", ")")
    return columns, all(is_exact for _, is_exact in parts) and not is_partial


def _read_key_part(cursor: Cursor) -> tuple[str | None, bool]:
    """Reads one part of a key: the column, if it is no expression, and whether the key has the whole column."""
    column = None if cursor.at("(") else cursor.read_column_name()
    is_part = cursor.at("(")
    if is_part:
        cursor.read_group()
    cursor.accept_any("ASC", "DESC")
    return column, not is_part


def read_table_option(cursor: Cursor) -> tuple[str, str] | None:
    """Reads one table option as its name in upper case and its value; returns None if none is next.

    The values of CHARACTER SET and COLLATE are in lower case.
    """
    before = cursor.index
    default = cursor.accept("DEFAULT")
    if accept_character_set(cursor):
        return "CHARACTER SET", cursor.read_option_value().lower()
    if cursor.accept("COLLATE"):
        return "COLLATE", cursor.read_option_value().lower()
    cursor.accept("FORCE")
    name = None if default else cursor.accept_any(*_OPTIONS)
    if name is None:
        cursor.index = before
        return None
    value = cursor.read_option_value()
    if name == "TTL":  # column + INTERVAL 1 DAY
        cursor.expect("+ INTERVAL")
        value = f"{cursor.skip().text} {cursor.read_name('a unit')}"
    return name, value


def named_charset(options: dict[str, str]) -> str | None:
    """The character set of table options, directly or through a collation; None without either.

    A character set names no collation: its default depends on the server.
    """
    charset, collation = options.get("CHARACTER SET"), options.get("COLLATE")
    return charset or (collation.split("_")[0] if collation else None)
