"""Parses column definitions: name, type and attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from cdc_pipeline.mysql.ddl import column_types
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind
from cdc_pipeline.mysql.model.schema_changes import AddForeignKey, AddPrimaryKey, AddUniqueKey
from cdc_pipeline.mysql.model.table import Column, Default, ForeignKey, MySqlType, TableName, UniqueKey

_FUNCTIONS_WITHOUT_BRACKETS = frozenset(
    {"CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_USER"}
)
_DEFAULT_LENGTHS = {"time": 0, "char": 1, "binary": 1, "bit": 1}
_UTF8_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8", "binary"})
# Words after a column definition in ALTER TABLE.
_AFTER_COLUMN = ("FIRST", "AFTER", "PARTITION", "REMOVE")


@dataclass(frozen=True, slots=True)
class ParsedColumn:
    column: Column
    primary_key: bool = False
    """Whether the definition itself says PRIMARY KEY."""
    unique: bool = False
    """Whether the definition itself says UNIQUE."""
    references: AddForeignKey | None = None
    """MySQL before 9.0 and MariaDB before 10.5 ignore it, and no message shows the version."""

    @property
    def keys(self) -> tuple[AddPrimaryKey | AddUniqueKey | AddForeignKey, ...]:
        """The inline keys as clauses. An inline UNIQUE key has the name "" (`key_evolution` replaces it)."""
        keys: list[AddPrimaryKey | AddUniqueKey | AddForeignKey] = []
        if self.references is not None:
            keys.append(self.references)
        if self.primary_key:
            keys.append(AddPrimaryKey((self.column.name,)))
        if self.unique:
            keys.append(AddUniqueKey(UniqueKey("", (self.column.name,))))
        return tuple(keys)


class _Attributes:
    """The attributes read so far."""

    def __init__(self, name: str, kind: MySqlType, serial: bool) -> None:
        self.name = name
        self.references: AddForeignKey | None = None
        self.kind = kind
        self.nullable: bool | None = False if serial else None
        """None: neither NULL nor NOT NULL was read."""
        self.default: Default | None = None
        self.generated: Literal["virtual", "stored"] | None = None
        self.expression: str | None = None
        self.primary_key = False
        self.unique = self.auto_increment = serial


def read_column(cursor: Cursor) -> ParsedColumn:
    """Reads a column definition. Raises DdlSyntaxError for an unknown type or attribute, as it might change values."""
    name = cursor.read_name("a column name")
    start = cursor.position
    kind, serial = column_types.read_type(cursor)
    if kind.base not in column_types.KNOWN_TYPES:
        raise DdlSyntaxError(f"unknown column type {kind.base!r}", start)
    if kind.base == "decimal" and len(kind.params) < 2:
        # MySQL's default numbers: valid in a definition, but not in the mysqlType of a message
        kind = replace(kind, params=(kind.params[0] if kind.params else 10, 0))
    if kind.base in _DEFAULT_LENGTHS and not kind.params:
        kind = replace(kind, params=(_DEFAULT_LENGTHS[kind.base],))
    attributes = _Attributes(name, kind, serial)
    while _read_attribute(cursor, attributes):
        pass
    if not (cursor.at_end or cursor.at_any(",", ")", ";", *_AFTER_COLUMN)):
        raise cursor.error(f"unknown attribute of column {name!r}")
    nullable = attributes.nullable if attributes.nullable is not None else True
    if attributes.nullable and kind.base == "timestamp" and attributes.default is None and not attributes.generated:
        # unlike a TIMESTAMP without NULL, which may have another default (`default_value`)
        attributes.default = Default("literal", None)
    column = Column(
        name=name,
        type=column_types.to_binary_type(attributes.kind),
        nullable=nullable and not attributes.primary_key,
        default=attributes.default,
        generated=attributes.generated,
        expression=attributes.expression,
        auto_increment=attributes.auto_increment,
    )
    return ParsedColumn(column, attributes.primary_key, attributes.unique, attributes.references)


def _read_attribute(cursor: Cursor, attributes: _Attributes) -> bool:
    """Reads one attribute into `attributes`. Returns whether a known one was next."""
    changed = column_types.accept_type_attribute(cursor, attributes.kind)
    if changed is not None:
        attributes.kind = changed
        return True
    return (
        _read_value_attribute(cursor, attributes) or _read_key_attribute(cursor, attributes) or _skip_attribute(cursor)
    )


def _read_value_attribute(cursor: Cursor, attributes: _Attributes) -> bool:
    """Reads an attribute that affects values: NULL, DEFAULT, ON UPDATE, AUTO_INCREMENT, GENERATED."""
    if cursor.accept("NOT", "NULL"):
        attributes.nullable = False
    elif cursor.accept("NULL"):
        attributes.nullable = True
    elif cursor.accept("DEFAULT"):
        attributes.default = read_default(cursor)
    elif cursor.accept("ON", "UPDATE"):
        _accept_function(cursor)
    elif cursor.accept("AUTO_INCREMENT"):
        attributes.auto_increment = True
        if attributes.nullable is None:
            attributes.nullable = False
    elif cursor.accept("AUTO_RANDOM"):
        if cursor.at("("):
            cursor.read_group()
    elif cursor.accept("SERIAL", "DEFAULT", "VALUE"):
        attributes.nullable, attributes.unique, attributes.auto_increment = False, True, True
    elif cursor.accept("GENERATED", "ALWAYS", "AS") or cursor.accept("AS"):
        attributes.expression = cursor.read_group()
        attributes.generated = "stored" if cursor.accept_any("STORED", "PERSISTENT") else "virtual"
        cursor.accept("VIRTUAL")
    else:
        return False
    return True


def _read_key_attribute(cursor: Cursor, attributes: _Attributes) -> bool:
    if cursor.accept("PRIMARY", "KEY") or cursor.accept("KEY"):
        attributes.primary_key = True
        cursor.accept_any("CLUSTERED", "NONCLUSTERED")
    elif cursor.accept("UNIQUE"):
        cursor.accept("KEY")
        attributes.unique = True
    elif cursor.at("REFERENCES"):
        attributes.references = read_references(cursor, attributes.name, (attributes.name,))
        return True
    else:
        return False
    cursor.accept_any("GLOBAL", "LOCAL")
    return True


def _skip_attribute(cursor: Cursor) -> bool:
    """Moves past an attribute that affects no values: comments, storage, checks."""
    if cursor.accept("COMMENT"):
        cursor.read_string(is_literal=True)
    elif cursor.accept("COLUMN_FORMAT"):
        _expect_any(cursor, "FIXED", "DYNAMIC", "DEFAULT")
    elif cursor.accept("STORAGE"):
        _expect_any(cursor, "DISK", "MEMORY", "DEFAULT")
    elif cursor.accept_any("ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"):
        cursor.accept("=")
        cursor.read_string()
    elif cursor.accept("SRID"):
        cursor.read_integer()
    elif cursor.accept_any("VISIBLE", "INVISIBLE") or cursor.accept("NOT", "SECONDARY"):
        pass
    elif cursor.at("CONSTRAINT") or cursor.at("CHECK"):
        if cursor.accept("CONSTRAINT") and not cursor.at("CHECK"):
            cursor.read_name("a constraint name")
        read_check(cursor)
    else:
        return False
    return True


def read_check(cursor: Cursor) -> None:
    """Moves past CHECK (expression) [[NOT] ENFORCED]."""
    cursor.expect("CHECK")
    cursor.read_group()
    if not cursor.accept("NOT", "ENFORCED"):
        cursor.accept("ENFORCED")


def read_references(cursor: Cursor, name: str, columns: tuple[str, ...]) -> AddForeignKey | None:
    """Reads REFERENCES table (columns) with its MATCH, ON DELETE and ON UPDATE. Returns the foreign key; None if it
    changes no row."""
    cursor.expect("REFERENCES")
    *database, table = read_dotted_name(cursor)
    referenced, actions = list[str](), list[str]()
    while cursor.accept("," if referenced else "("):
        referenced.append(cursor.read_name("a column name"))
    if referenced:
        cursor.expect(")")
    while True:
        start = cursor.position
        if cursor.accept("MATCH"):
            _expect_any(cursor, "FULL", "PARTIAL", "SIMPLE")
        elif not (cursor.accept("ON", "DELETE") or cursor.accept("ON", "UPDATE")):
            break
        elif cursor.accept("CASCADE") or cursor.accept("SET", "NULL"):
            actions += cursor.text_since(start).upper().split()
        # InnoDB rejects SET DEFAULT
        elif not (cursor.accept("SET", "DEFAULT") or cursor.accept("NO", "ACTION")):
            cursor.expect("RESTRICT")
    key = ForeignKey(name, columns, TableName("".join(database), table), tuple(referenced), " ".join(actions))
    return AddForeignKey(key) if actions else None


def read_dotted_name(cursor: Cursor) -> tuple[str, ...]:
    """Reads `table` or `database.table`. Returns its parts."""
    parts = [cursor.read_name("a table name")]
    if cursor.accept("."):
        parts.append(cursor.read_name("a table name"))
    return tuple(parts)


def read_default(cursor: Cursor) -> Default:
    """Reads the value after DEFAULT. Raises DdlSyntaxError unless it is a literal, a function or in brackets."""
    if cursor.accept("NULL"):
        return Default("literal", None)
    if cursor.accept("TRUE"):
        return Default("number", "1")
    if cursor.accept("FALSE"):
        return Default("number", "0")
    if cursor.at("("):
        start = cursor.position
        cursor.read_group()
        return Default("expression", cursor.text_since(start))
    start = cursor.position
    introducer = column_types.accept_introducer(cursor)
    if cursor.at_kind(Kind.STRING):
        text = cursor.read_string(is_literal=True)
        # the statement is UTF-8: with the introducer of another character set only ASCII keeps its meaning
        plain = introducer is None or introducer in _UTF8_CHARSETS or text.isascii()
        return Default("literal", text) if plain else Default("expression", cursor.text_since(start))
    if cursor.at_kind(Kind.BITS, Kind.HEX):
        token = cursor.skip()
        if introducer is not None and introducer not in _UTF8_CHARSETS:
            return Default("expression", cursor.text_since(start))
        if token.kind is Kind.BITS:
            return Default("bits", token.text)
        return Default("hex", token.text if len(token.text) % 2 == 0 else "0" + token.text)
    if cursor.at_any("+", "-") or cursor.at_kind(Kind.NUMBER):
        sign = "-" if cursor.accept_any("+", "-") == "-" else ""
        return Default("number", sign + cursor.take(Kind.NUMBER, what="a number").text)
    start = cursor.position
    _accept_function(cursor)
    return Default("expression", cursor.text_since(start))


def _accept_function(cursor: Cursor) -> None:
    """Moves past a function call such as CURRENT_TIMESTAMP or NOW(3), or past NEXT VALUE FOR a sequence."""
    if cursor.accept("NEXT", "VALUE", "FOR"):
        read_dotted_name(cursor)
        return
    word = cursor.take(Kind.WORD, what="a value")
    if cursor.at("("):
        cursor.read_group()
    elif word.text.upper() not in _FUNCTIONS_WITHOUT_BRACKETS:
        cursor.index -= 1
        raise cursor.error("a value expected")


def _expect_any(cursor: Cursor, *words: str) -> None:
    if cursor.accept_any(*words) is None:
        raise cursor.error(f"{' or '.join(words)} expected")
