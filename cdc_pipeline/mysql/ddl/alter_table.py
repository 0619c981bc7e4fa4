"""Reads the clauses of ALTER TABLE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.alter_partitions import read_partition_clause
from cdc_pipeline.mysql.ddl.column_definitions import read_column, read_default
from cdc_pipeline.mysql.ddl.column_types import accept_character_set, name_or_string
from cdc_pipeline.mysql.ddl.keys import charset_of, collation_of, read_key, read_table_name, read_table_option
from cdc_pipeline.mysql.model.schema_changes import (
    AddColumn,
    ChangeColumn,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    NoRowEffect,
    NotSupportedClause,
    Position,
    RenameColumn,
    RenameIndex,
    RenameTo,
    SetDefault,
)
from cdc_pipeline.mysql.types.charsets import UNKNOWN

if TYPE_CHECKING:
    from cdc_pipeline.mysql.ddl.tokens import Cursor
    from cdc_pipeline.mysql.model.schema_changes import Clause

# Clauses of fixed words.
_WITHOUT_EFFECT: tuple[tuple[str, ...], ...] = (
    ("FORCE",),
    ("ENABLE", "KEYS"),
    ("DISABLE", "KEYS"),
    ("WITH", "VALIDATION"),
    ("WITHOUT", "VALIDATION"),
    ("SECONDARY_LOAD",),
    ("SECONDARY_UNLOAD",),
    ("REMOVE", "TTL"),
    ("CACHE",),
    ("NOCACHE",),
    ("NOWAIT",),
)


def read_alter_clauses(cursor: Cursor, database: str) -> tuple[Clause, ...]:
    """The clauses after ALTER TABLE name, in their order, up to the end of the statement or a semicolon.

    A clause that begins with words it does not know is a NotSupportedClause up to the next comma; DdlSyntaxError is
    raised where a clause that it does know goes on with words that it does not.
    """
    clauses: list[Clause] = []
    if cursor.done or cursor.at(";"):
        return ()
    while True:
        clauses.extend(_read_clause(cursor, database))
        if cursor.accept(",") or _needs_no_comma(cursor):
            continue
        if cursor.done or cursor.at(";"):
            return tuple(clauses)
        raise cursor.error("a comma expected between clauses")


def _needs_no_comma(cursor: Cursor) -> bool:
    """MySQL wants no comma before partitioning, nor between table options; TiDB writes none either."""
    if cursor.at("PARTITION", "BY") or cursor.at("REMOVE", "PARTITIONING"):
        return True
    before = cursor.index
    is_option = read_table_option(cursor) is not None
    cursor.index = before
    return is_option


def _read_clause(cursor: Cursor, database: str) -> tuple[Clause, ...]:
    start = cursor.position
    on_partitions = read_partition_clause(cursor, database)
    if on_partitions is not None:
        return (on_partitions,)
    if cursor.accept("ADD"):
        return _add(cursor, start)
    if cursor.accept("DROP"):
        return (_drop(cursor),)
    if cursor.accept("CHANGE"):
        if_exists = _column_if_exists(cursor)
        return _changed(cursor, cursor.identifier("a column name"), if_exists=if_exists)
    if cursor.accept("MODIFY"):
        return _changed(cursor, None, if_exists=_column_if_exists(cursor))
    if cursor.accept("RENAME"):
        return (_rename(cursor, database),)
    if cursor.accept("ALTER"):
        return (_alter_part(cursor, start),)
    if cursor.accept("CONVERT", "TO"):
        return (_convert(cursor, start),)
    if _accept_effectless(cursor):
        return (NoRowEffect(cursor.since(start)),)
    option = read_table_option(cursor)
    if option is not None:
        charset, collation = charset_of(dict([option])), collation_of(dict([option]))
        return (NoRowEffect(cursor.since(start)) if charset is None else DefaultCharset(charset, collation),)
    return (NotSupportedClause(_up_to_comma(cursor)),)


def _add(cursor: Cursor, start: int) -> tuple[Clause, ...]:
    key = read_key(cursor)
    if key is not None:
        return (NoRowEffect(cursor.since(start)) if isinstance(key, NoRowEffect) else key,)
    cursor.accept("COLUMN")
    if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
    if cursor.accept("("):
        clauses: list[Clause] = []
        while True:
            clauses.extend(_added(cursor, if_not_exists))
            if not cursor.accept(","):
                break
        cursor.expect(")")
        return tuple(clauses)
    parsed = read_column(cursor)
    return (AddColumn(parsed.column, _position(cursor), if_not_exists), *parsed.keys)


def _added(cursor: Cursor, if_not_exists: bool) -> tuple[Clause, ...]:
    """One element of ADD COLUMN (…)."""
    key = read_key(cursor)
    if key is not None:
        return (key,)
    parsed = read_column(cursor)
    return (AddColumn(parsed.column, None, if_not_exists), *parsed.keys)


def _drop(cursor: Cursor) -> Clause:
    if cursor.accept("PRIMARY", "KEY"):
        return DropPrimaryKey()
    if cursor.accept("FOREIGN", "KEY") or cursor.accept("CHECK"):
        cursor.accept("IF", "EXISTS")
        return NoRowEffect(f"DROP CONSTRAINT {cursor.identifier('a constraint name')}")
    if cursor.accept_any("INDEX", "KEY", "CONSTRAINT"):
        # A constraint may be a UNIQUE key; a name that is none changes nothing.
        cursor.accept("IF", "EXISTS")
        return dropped_index(cursor.identifier("an index name"))
    cursor.accept("COLUMN")
    if_exists = cursor.accept("IF", "EXISTS")
    clause = DropColumn(cursor.identifier("a column name"), if_exists)
    cursor.accept_any("RESTRICT", "CASCADE")
    return clause


def dropped_index(name: str) -> DropIndex | DropPrimaryKey:
    """What dropping the index of that name is: the primary key's index is always called PRIMARY."""
    return DropPrimaryKey() if name.upper() == "PRIMARY" else DropIndex(name)


def _column_if_exists(cursor: Cursor) -> bool:
    """Moves past COLUMN and MariaDB's IF EXISTS; whether the latter was there."""
    cursor.accept("COLUMN")
    return cursor.accept("IF", "EXISTS")


def _changed(cursor: Cursor, name: str | None, *, if_exists: bool) -> tuple[Clause, ...]:
    parsed = read_column(cursor)
    change = ChangeColumn(parsed.column.name if name is None else name, parsed.column, _position(cursor), if_exists)
    return (change, *parsed.keys)


def _position(cursor: Cursor) -> Position | None:
    if cursor.accept("FIRST"):
        return Position()
    return Position(cursor.identifier("a column name")) if cursor.accept("AFTER") else None


def _rename(cursor: Cursor, database: str) -> Clause:
    if cursor.accept("COLUMN"):
        if_exists = cursor.at("IF", "EXISTS")
        name, new_name = _pair(cursor, "a column name")
        return RenameColumn(name, new_name, if_exists)
    if cursor.accept_any("INDEX", "KEY"):
        name, new_name = _pair(cursor, "an index name")
        return RenameIndex(name, new_name)
    cursor.accept_any("TO", "AS", "=")
    return RenameTo(read_table_name(cursor, database))


def _pair(cursor: Cursor, what: str) -> tuple[str, str]:
    cursor.accept("IF", "EXISTS")
    name = cursor.identifier(what)
    cursor.expect("TO")
    return name, cursor.identifier(what)


def _alter_part(cursor: Cursor, start: int) -> Clause:
    """ALTER INDEX, CHECK, CONSTRAINT or COLUMN inside ALTER TABLE."""
    if cursor.accept_any("INDEX", "KEY"):
        cursor.identifier("an index name")
        if not (cursor.accept_any("VISIBLE", "INVISIBLE", "IGNORED") or cursor.accept("NOT", "IGNORED")):
            raise cursor.error("VISIBLE or INVISIBLE expected")
        return NoRowEffect(cursor.since(start))
    if cursor.accept_any("CHECK", "CONSTRAINT"):
        cursor.identifier("a constraint name")
        if not cursor.accept("NOT", "ENFORCED"):
            cursor.expect("ENFORCED")
        return NoRowEffect(cursor.since(start))
    if_exists = _column_if_exists(cursor)
    name = cursor.identifier("a column name")
    if cursor.accept("DROP", "DEFAULT"):
        return SetDefault(name, None, if_exists)
    cursor.expect("SET")
    if cursor.accept_any("VISIBLE", "INVISIBLE"):
        return NoRowEffect(cursor.since(start))
    cursor.expect("DEFAULT")
    return SetDefault(name, read_default(cursor), if_exists)


def _convert(cursor: Cursor, start: int) -> Clause:
    """CONVERT TO CHARACTER SET: no text changes, but `binary` makes text columns binary. DEFAULT is the database's."""
    if not accept_character_set(cursor):
        raise cursor.error("CHARACTER SET expected")
    cursor.accept("=")
    charset, collation = name_or_string(cursor).lower(), None
    if cursor.accept("COLLATE"):
        cursor.accept("=")
        collation = name_or_string(cursor).lower()
    if charset == "binary":
        return NotSupportedClause(cursor.since(start))
    return ConvertCharset(UNKNOWN if charset == "default" else charset, collation)


def _accept_effectless(cursor: Cursor) -> bool:
    """Moves past a clause that changes neither rows nor columns; False where none that is known is next."""
    if any(cursor.accept(*words) for words in _WITHOUT_EFFECT):
        return True
    if cursor.accept_any("ALGORITHM", "LOCK", "ATTRIBUTES"):
        cursor.accept("=")
        cursor.skip()
        return True
    if cursor.accept("WAIT"):
        cursor.integer()
        return True
    if cursor.accept("SET", "TIFLASH", "REPLICA"):
        cursor.integer()
        return True
    if cursor.accept("ORDER", "BY"):
        _order_by(cursor)
        return True
    return False


def _order_by(cursor: Cursor) -> None:
    """A list of columns; the comma after it is followed by a clause, which has more words than a column."""
    while True:
        cursor.identifier("a column name")
        cursor.accept_any("ASC", "DESC")
        follows = any(cursor.at(word, offset=2) for word in (",", ";", "ASC", "DESC")) or cursor.peek(2) is None
        if not (cursor.at(",") and cursor.peek(1) is not None and follows):
            return
        cursor.expect(",")


def _up_to_comma(cursor: Cursor) -> str:
    """The source text up to the next comma outside brackets."""
    start = cursor.position
    if cursor.done or cursor.at_any(",", ";"):
        raise cursor.error("a clause expected")
    while not cursor.done and not cursor.at_any(",", ";"):
        if cursor.at("("):
            cursor.group()
        else:
            cursor.skip()
    return cursor.since(start)
