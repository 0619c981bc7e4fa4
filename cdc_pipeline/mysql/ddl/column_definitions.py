"""Reads column definitions: name, type and attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from cdc_pipeline.mysql.ddl.column_types import (
    KNOWN_TYPES,
    accept_introducer,
    accept_type_attribute,
    parse_mysql_type,
    read_type,
    with_bytes_for_binary,
)
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind
from cdc_pipeline.mysql.model.schema_changes import AddPrimaryKey, AddUniqueKey
from cdc_pipeline.mysql.model.table import Column, Default, UniqueKey

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.table import MySqlType

__all__ = [
    "ParsedColumn",
    "parse_mysql_type",
    "read_check",
    "read_column",
    "read_default",
    "read_dotted_name",
    "read_references",
]

_FUNCTIONS_WITHOUT_BRACKETS = frozenset(
    {"CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_USER"}
)
_LENGTHS = {"time": 0, "char": 1, "binary": 1, "bit": 1}
_AS_WRITTEN = frozenset({"utf8mb4", "utf8mb3", "utf8", "binary"})
# Words that may follow a column definition in ALTER TABLE.
_AFTER_COLUMN = ("FIRST", "AFTER", "PARTITION", "REMOVE")


@dataclass(frozen=True, slots=True)
class ParsedColumn:
    """A column definition, with the keys that its own attributes ask for."""

    column: Column
    primary_key: bool = False
    unique: bool = False

    @property
    def keys(self) -> tuple[AddPrimaryKey | AddUniqueKey, ...]:
        """The inline keys as clauses; an inline UNIQUE key has no name yet (`evolution` gives it one)."""
        keys: list[AddPrimaryKey | AddUniqueKey] = []
        if self.primary_key:
            keys.append(AddPrimaryKey((self.column.name,)))
        if self.unique:
            keys.append(AddUniqueKey(UniqueKey("", (self.column.name,))))
        return tuple(keys)


class _Attributes:
    """What the attributes read so far say. None of `nullable` is: not said."""

    def __init__(self, kind: MySqlType, serial: bool) -> None:
        self.kind = kind
        self.nullable: bool | None = False if serial else None
        self.default: Default | None = None
        self.generated: Literal["virtual", "stored"] | None = None
        self.expression: str | None = None
        self.primary_key = False
        self.unique = self.auto_increment = serial


def read_column(cursor: Cursor) -> ParsedColumn:
    """The column definition at the cursor.

    Raises DdlSyntaxError, naming the words and their position, for a type or an attribute that it does not know:
    what is not understood might matter.
    """
    name = cursor.identifier("a column name")
    start = cursor.position
    kind, serial = read_type(cursor)
    if kind.base not in KNOWN_TYPES:
        raise DdlSyntaxError(f"{kind.base!r} is no known column type", start)
    if kind.base == "decimal" and len(kind.params) < 2:
        # In a definition the missing numbers are known; in a message's mysqlType they are not.
        kind = replace(kind, params=(kind.params[0] if kind.params else 10, 0))
    if kind.base in _LENGTHS and not kind.params:
        # in a definition; of the words of a message nothing follows
        kind = replace(kind, params=(_LENGTHS[kind.base],))
    found = _Attributes(kind, serial)
    while _read_attribute(cursor, found):
        pass
    if not (cursor.done or cursor.at_any(",", ")", ";", *_AFTER_COLUMN)):
        raise cursor.error(f"unknown attribute of column {name!r}")
    nullable = found.nullable if found.nullable is not None else True
    column = Column(
        name=name,
        type=with_bytes_for_binary(found.kind),
        nullable=nullable and not found.primary_key,
        default=found.default,
        generated=found.generated,
        expression=found.expression,
        auto_increment=found.auto_increment,
    )
    return ParsedColumn(column, found.primary_key, found.unique)


def _read_attribute(cursor: Cursor, found: _Attributes) -> bool:
    """Reads one attribute into `found`; False if none that is known is next."""
    changed = accept_type_attribute(cursor, found.kind)
    if changed is not None:
        found.kind = changed
        return True
    return _read_value_attribute(cursor, found) or _read_key_attribute(cursor, found) or _skip_attribute(cursor)


def _read_value_attribute(cursor: Cursor, found: _Attributes) -> bool:
    """NULL, DEFAULT, ON UPDATE, AUTO_INCREMENT, GENERATED: what decides which values the column has."""
    if cursor.accept("NOT", "NULL"):
        found.nullable = False
    elif cursor.accept("NULL"):
        found.nullable = True
    elif cursor.accept("DEFAULT"):
        found.default = read_default(cursor)
    elif cursor.accept("ON", "UPDATE"):
        _read_function(cursor)
    elif cursor.accept("AUTO_INCREMENT"):
        found.nullable, found.auto_increment = False if found.nullable is None else found.nullable, True
    elif cursor.accept("AUTO_RANDOM"):
        if cursor.at("("):
            cursor.group()
    elif cursor.accept("SERIAL", "DEFAULT", "VALUE"):
        found.nullable, found.unique, found.auto_increment = False, True, True
    elif cursor.accept("GENERATED", "ALWAYS", "AS") or cursor.accept("AS"):
        found.expression = cursor.group()
        found.generated = "stored" if cursor.accept_any("STORED", "PERSISTENT") else "virtual"
        cursor.accept("VIRTUAL")
    else:
        return False
    return True


def _read_key_attribute(cursor: Cursor, found: _Attributes) -> bool:
    if cursor.accept("PRIMARY", "KEY") or cursor.accept("KEY"):
        found.primary_key = True
        cursor.accept_any("CLUSTERED", "NONCLUSTERED")
    elif cursor.accept("UNIQUE"):
        cursor.accept("KEY")
        found.unique = True
    else:
        return False
    cursor.accept_any("GLOBAL", "LOCAL")
    return True


def _skip_attribute(cursor: Cursor) -> bool:
    """Attributes that change no value: comments, storage, checks, references."""
    if cursor.accept("COMMENT"):
        cursor.string()
    elif cursor.accept("COLUMN_FORMAT"):
        _expect_any(cursor, "FIXED", "DYNAMIC", "DEFAULT")
    elif cursor.accept("STORAGE"):
        _expect_any(cursor, "DISK", "MEMORY", "DEFAULT")
    elif cursor.accept_any("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.accept("=")
        cursor.string()
    elif cursor.accept("SRID"):
        cursor.integer()
    elif cursor.accept_any("VISIBLE", "INVISIBLE") or cursor.accept("NOT", "SECONDARY"):
        pass
    elif cursor.at("CONSTRAINT") or cursor.at("CHECK"):
        if cursor.accept("CONSTRAINT") and not cursor.at("CHECK"):
            cursor.identifier("a constraint name")
        read_check(cursor)
    elif cursor.at("REFERENCES"):
        read_references(cursor)
    else:
        return False
    return True


def read_check(cursor: Cursor) -> None:
    """Moves past CHECK (expression) [[NOT] ENFORCED]."""
    cursor.expect("CHECK")
    cursor.group()
    if not cursor.accept("NOT", "ENFORCED"):
        cursor.accept("ENFORCED")


def read_references(cursor: Cursor) -> None:
    """Moves past REFERENCES table (columns) with its MATCH, ON DELETE and ON UPDATE."""
    cursor.expect("REFERENCES")
    read_dotted_name(cursor)
    if cursor.at("("):
        cursor.group()
    while True:
        if cursor.accept("MATCH"):
            _expect_any(cursor, "FULL", "PARTIAL", "SIMPLE")
        elif cursor.accept("ON", "DELETE") or cursor.accept("ON", "UPDATE"):
            if not (cursor.accept("SET", "NULL") or cursor.accept("SET", "DEFAULT") or cursor.accept("NO", "ACTION")):
                _expect_any(cursor, "RESTRICT", "CASCADE")
        else:
            return


def read_dotted_name(cursor: Cursor) -> tuple[str, ...]:
    """The parts of `table` or `database.table`."""
    parts = [cursor.identifier("a table name")]
    if cursor.accept("."):
        parts.append(cursor.identifier("a table name"))
    return tuple(parts)


def read_default(cursor: Cursor) -> Default:
    """The value after DEFAULT. Raises DdlSyntaxError where it is neither literal nor function nor in brackets."""
    if cursor.accept("NULL"):
        return Default("literal", None)
    if cursor.accept("TRUE"):
        return Default("number", "1")
    if cursor.accept("FALSE"):
        return Default("number", "0")
    if cursor.at("("):
        start = cursor.position
        cursor.group()
        return Default("expression", cursor.since(start))
    start = cursor.position
    introducer = accept_introducer(cursor)
    if cursor.at_kind(Kind.STRING):
        text = cursor.string()
        # the bytes of the statement are UTF-8: another character set reads only ASCII alike
        plain = introducer is None or introducer in _AS_WRITTEN or text.isascii()
        return Default("literal", text) if plain else Default("expression", cursor.since(start))
    if cursor.at_kind(Kind.BITS):
        return Default("bits", cursor.skip().text)
    if cursor.at_kind(Kind.HEX):
        digits = cursor.skip().text
        return Default("hex", digits if len(digits) % 2 == 0 else "0" + digits)
    if cursor.at_any("+", "-") or cursor.at_kind(Kind.NUMBER):
        sign = "-" if cursor.accept_any("+", "-") == "-" else ""
        return Default("number", sign + cursor.take(Kind.NUMBER, what="a number").text)
    start = cursor.position
    _read_function(cursor)
    return Default("expression", cursor.since(start))


def _read_function(cursor: Cursor) -> None:
    """Moves past CURRENT_TIMESTAMP, NOW(3) or another call of a function, and NEXT VALUE FOR a sequence."""
    if cursor.accept("NEXT", "VALUE", "FOR"):
        read_dotted_name(cursor)
        return
    word = cursor.take(Kind.WORD, what="a value")
    if cursor.at("("):
        cursor.group()
    elif word.text.upper() not in _FUNCTIONS_WITHOUT_BRACKETS:
        cursor.index -= 1
        raise cursor.error("a value expected")


def _expect_any(cursor: Cursor, *words: str) -> None:
    if cursor.accept_any(*words) is None:
        raise cursor.error(f"{' or '.join(words)} expected")
