"""Parses keys, constraints and table options of CREATE TABLE, ALTER TABLE and CREATE INDEX."""

from __future__ import annotations

from cdc_pipeline.mysql.ddl.column_definitions import read_check, read_dotted_name, read_references
from cdc_pipeline.mysql.ddl.column_types import accept_character_set, read_name_or_string
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.limits import MAX_KEY_COLUMNS, limit_message
from cdc_pipeline.mysql.model.schema_changes import AddIndex, AddPrimaryKey, AddUniqueKey, Clause, NoRowEffect
from cdc_pipeline.mysql.model.table import PlainIndex, TableName, UniqueKey

_INDEX_TYPES = ("BTREE", "HASH", "RTREE", "HNSW", "INVERTED")
_OPTIONS = frozenset(
    {
        *("AFFINITY", "AUTOEXTEND_SIZE", "AUTO_ID_CACHE", "AUTO_INCREMENT", "AUTO_RANDOM_BASE", "AVG_ROW_LENGTH"),
        *("CHECKSUM", "COMMENT", "COMPRESSION", "CONNECTION", "DELAY_KEY_WRITE", "ENCRYPTED", "ENCRYPTION"),
        *("ENCRYPTION_KEY_ID", "ENGINE", "ENGINE_ATTRIBUTE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS"),
        *("MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "PASSWORD"),
        *("PRE_SPLIT_REGIONS", "ROW_FORMAT", "SECONDARY_ENGINE", "SECONDARY_ENGINE_ATTRIBUTE"),
        *("SHARD_ROW_ID_BITS", "STATS_AUTO_RECALC", "STATS_BUCKETS", "STATS_COL_CHOICE", "STATS_COL_LIST"),
        *("STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "STATS_SAMPLE_RATE", "STATS_TOPN", "TABLESPACE"),
        *("TABLE_CHECKSUM", "TRANSACTIONAL", "TTL_ENABLE", "TTL_JOB_INTERVAL", "TYPE"),
    }
)


def read_table_name(cursor: Cursor) -> TableName:
    """Reads a table name. The database of an unqualified one is empty."""
    parts = read_dotted_name(cursor)
    return TableName(parts[0], parts[1]) if len(parts) == 2 else TableName("", parts[0])


def read_key(cursor: Cursor) -> Clause | None:
    """Reads a key, index or constraint; returns None if none is next. Checks, and foreign keys that change no
    row, become NoRowEffect.

    A UNIQUE key or index without a name gets "". `key_evolution` replaces it with MySQL's name.
    """
    start, before = cursor.position, cursor.index
    symbol = ""
    if cursor.accept("CONSTRAINT"):
        cursor.accept("IF", "NOT", "EXISTS")
        if not cursor.at_any("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            symbol = cursor.read_name("a constraint name")
    if cursor.accept("PRIMARY", "KEY"):
        return _read_primary_key(cursor)
    if cursor.accept("UNIQUE"):
        cursor.accept_any("INDEX", "KEY")
        cursor.accept("IF", "NOT", "EXISTS")
        name = _read_index_name(cursor) or symbol
        columns, exact = read_key_parts(cursor)
        return AddUniqueKey(UniqueKey(name, columns, exact))
    if cursor.accept("FOREIGN", "KEY"):
        cursor.accept("IF", "NOT", "EXISTS")
        name = _read_index_name(cursor)
        columns, _ = read_key_parts(cursor)
        if key := read_references(cursor, symbol or name or ", ".join(columns), columns):
            return key
    elif cursor.at("CHECK"):
        read_check(cursor)
    elif cursor.index > before:
        raise cursor.error("PRIMARY, UNIQUE, FOREIGN or CHECK expected")
    else:
        return _read_plain_index(cursor)
    return NoRowEffect(cursor.text_since(start))


def _read_primary_key(cursor: Cursor) -> AddPrimaryKey:
    cursor.accept("IF", "NOT", "EXISTS")
    _read_index_name(cursor)
    columns, _ = read_key_parts(cursor)
    # a key over prefixes is unique over the whole columns too
    return AddPrimaryKey(columns)


def _read_plain_index(cursor: Cursor) -> AddIndex | None:
    """Reads INDEX, FULLTEXT … with name and columns; returns None if no index is next."""
    if cursor.accept_any("FULLTEXT", "SPATIAL"):
        cursor.accept_any("INDEX", "KEY")
    elif not (
        cursor.accept("VECTOR", "INDEX")
        or cursor.accept("VECTOR", "KEY")
        or cursor.accept("COLUMNAR", "INDEX")
        or cursor.accept_any("INDEX", "KEY")
    ):
        return None
    cursor.accept("IF", "NOT", "EXISTS")
    name = _read_index_name(cursor)
    columns, _ = read_key_parts(cursor)
    return AddIndex(PlainIndex(name, columns))


def _read_index_name(cursor: Cursor) -> str:
    """Reads the optional name of an index and USING after it; returns "" without a name."""
    name = ""
    if cursor.at_kind(Kind.WORD, Kind.QUOTED) and not _at_index_type(cursor):
        name = cursor.read_name("an index name")
    accept_index_type(cursor)
    return name


def _at_index_type(cursor: Cursor) -> bool:
    return any(cursor.at(word, kind) for word in ("USING", "TYPE") for kind in _INDEX_TYPES)


def accept_index_type(cursor: Cursor) -> bool:
    """Moves past USING BTREE and similar. Returns whether it was next."""
    if not _at_index_type(cursor):
        return False
    cursor.index += 2
    return True


def read_key_parts(cursor: Cursor) -> tuple[tuple[str, ...], bool]:
    """Reads the columns of a key in brackets, and its options.

    Returns the columns and whether the key is exact: without expressions, which the columns leave out, and prefixes.
    """
    columns: list[str] = []
    exact = True
    cursor.expect("(")
    while True:
        if cursor.at("("):
            cursor.read_group()
            exact = False
        else:
            columns.append(cursor.read_name("a column name"))
            if cursor.accept("("):
                cursor.read_integer()
                cursor.expect(")")
                exact = False
        cursor.accept_any("ASC", "DESC")
        if not cursor.accept(","):
            break
    cursor.expect(")")
    if len(columns) > MAX_KEY_COLUMNS:
        raise cursor.error(limit_message("columns of a key", len(columns), MAX_KEY_COLUMNS))
    while _accept_index_option(cursor):
        pass
    return tuple(columns), exact


def _accept_index_option(cursor: Cursor) -> bool:
    """Moves past one option of an index. Returns whether one was next."""
    if accept_index_type(cursor):
        return True
    if cursor.accept_any("VISIBLE", "INVISIBLE", "IGNORED", "CLUSTERED", "NONCLUSTERED", "GLOBAL", "LOCAL"):
        return True
    if cursor.accept("NOT", "IGNORED") or cursor.accept("ADD_COLUMNAR_REPLICA_ON_DEMAND"):
        return True
    if cursor.accept("WITH", "PARSER"):
        cursor.read_name("a parser name")
        return True
    if cursor.accept_any("COMMENT", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.accept("=")
        cursor.read_string()
        return True
    if cursor.accept_any("KEY_BLOCK_SIZE", "PRE_SPLIT_REGIONS"):
        cursor.accept("=")
        if cursor.at("("):
            cursor.read_group()
        else:
            cursor.read_integer()
        return True
    return False


def read_table_option(cursor: Cursor) -> tuple[str, str] | None:
    """Reads one table option as its name in upper case and its value; returns None if none is next.

    The values of CHARACTER SET and COLLATE are in lower case.
    """
    before = cursor.index
    default = cursor.accept("DEFAULT")
    if accept_character_set(cursor):
        cursor.accept("=")
        return "CHARACTER SET", read_name_or_string(cursor).lower()
    if cursor.accept("COLLATE"):
        cursor.accept("=")
        return "COLLATE", read_name_or_string(cursor).lower()
    if default:
        cursor.index = before
        return None
    if cursor.accept("TTL"):
        cursor.accept("=")
        cursor.read_name("a column name")
        cursor.expect("+")
        cursor.expect("INTERVAL")
        return "TTL", cursor.skip().text + " " + cursor.read_name("a unit")
    if cursor.accept("UNION"):
        cursor.accept("=")
        return "UNION", cursor.read_group()
    if cursor.accept("DATA", "DIRECTORY") or cursor.accept("INDEX", "DIRECTORY"):
        cursor.accept("=")
        return "DIRECTORY", cursor.read_string()
    if cursor.accept("PLACEMENT", "POLICY"):
        cursor.accept("=")
        return "PLACEMENT POLICY", read_name_or_string(cursor)
    if cursor.accept("STORAGE"):
        return "STORAGE", cursor.read_name("a storage")
    cursor.accept("FORCE")
    token = cursor.peek()
    if token is None or token.kind is not Kind.WORD or token.text.upper() not in _OPTIONS:
        cursor.index = before
        return None
    cursor.skip()
    cursor.accept("=")
    value = cursor.take(Kind.WORD, Kind.QUOTED, Kind.STRING, Kind.NUMBER, what="the value of an option")
    return token.text.upper(), value.text


def named_charset(options: dict[str, str]) -> str | None:
    """The character set of table options, directly or through a collation; None without either."""
    charset, collation = options.get("CHARACTER SET"), options.get("COLLATE")
    return charset or (collation.split("_")[0] if collation else None)


def named_collation(options: dict[str, str]) -> str | None:
    """The collation of table options. None without COLLATE, as the default of a character set depends on the server."""
    return options.get("COLLATE")
