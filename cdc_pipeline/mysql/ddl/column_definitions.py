"""Parses column definitions: name, type and attributes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdc_pipeline.mysql.ddl import column_types
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind
from cdc_pipeline.mysql.model.schema_changes import AddForeignKey, AddPrimaryKey, AddUniqueKey
from cdc_pipeline.mysql.model.table import Column, Default, ForeignKey, UniqueKey

_FUNCTIONS_WITHOUT_BRACKETS = frozenset(
    {"CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_USER"}
)
_DEFAULT_LENGTHS = {"time": 0, "char": 1, "binary": 1, "bit": 1}
_CONSTANTS = {"NULL": Default("literal", None), "TRUE": Default("number", "1"), "FALSE": Default("number", "0")}
_UTF8_CHARSETS = frozenset({"utf8mb4", "utf8mb3", "utf8", "binary"})
# Words after a column definition in ALTER TABLE.
_AFTER_COLUMN = ("FIRST", "AFTER", "PARTITION", "REMOVE")
# Attributes that affect no values, without and with a value.
_SKIPPED_WORDS = ("VISIBLE", "INVISIBLE", "NOT SECONDARY")
_SKIPPED_OPTIONS = ("COLUMN_FORMAT", "STORAGE", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE", "SRID")


@dataclass(slots=True)
class ParsedColumn:
    """A column definition, while it is read and after that."""

    column: Column
    nullable: bool | None = None
    """What the definition says about NULL; None for nothing."""
    primary_key: bool = False
    """Whether the definition itself says PRIMARY KEY."""
    unique: bool = False
    """Whether the definition itself says UNIQUE."""
    references: AddForeignKey | None = None
    """MySQL before 9.0 and MariaDB before 10.5 ignore it, and no message shows the version."""

    @property
    def keys(self) -> tuple[AddPrimaryKey | AddUniqueKey | AddForeignKey, ...]:
        """The inline keys as clauses. An inline UNIQUE key has the name "" (`key_evolution` replaces it)."""
        columns = (self.column.name,)
        return (
            *((self.references,) if self.references is not None else ()),
            *((AddPrimaryKey(columns),) if self.primary_key else ()),
            *((AddUniqueKey(UniqueKey("", columns)),) if self.unique else ()),
        )


def read_column(cursor: Cursor) -> ParsedColumn:
    """Reads a column definition. Raises DdlSyntaxError for an unknown type or attribute, as it might change values."""
    name = cursor.read_column_name()
    start = cursor.position
    kind, serial = column_types.read_type(cursor)
    if kind.base not in column_types.KNOWN_TYPES:
        raise DdlSyntaxError(f"unknown column type {kind.base!r}", start)
    if kind.base == "decimal" and len(kind.params) < 2:
        # MySQL's default numbers: valid in a definition, but not in the mysqlType of a message
        kind = replace(kind, params=(kind.params[0] if kind.params else 10, 0))
    if kind.base in _DEFAULT_LENGTHS and not kind.params:
        kind = replace(kind, params=(_DEFAULT_LENGTHS[kind.base],))
    parsed = ParsedColumn(Column(name, kind, auto_increment=serial), False if serial else None, unique=serial)
    while _read_value_attribute(cursor, parsed) or _read_key_attribute(cursor, parsed) or _skip_attribute(cursor):
        pass
    if not (cursor.at_statement_end or cursor.at_any(",", ")", *_AFTER_COLUMN)):
        raise cursor.error(f"unknown attribute of column {name!r}")
    column, default = parsed.column, parsed.column.default
    if parsed.nullable and kind.base == "timestamp" and default is None and not column.generated:
        # unlike a TIMESTAMP without NULL, which may have another default (`default_value`)
        default = Default("literal", None)
    nullable = parsed.nullable is not False and not parsed.primary_key
    parsed.column = replace(column, type=column_types.to_binary_type(column.type), nullable=nullable, default=default)
    return parsed


def _read_value_attribute(cursor: Cursor, parsed: ParsedColumn) -> bool:
    """Reads an attribute that affects values: of the type, NULL, DEFAULT, ON UPDATE, AUTO_INCREMENT, GENERATED.

    Returns whether one was next.
    """
    column = parsed.column
    if kind := column_types.accept_type_attribute(cursor, column.type):
        parsed.column = replace(column, type=kind)
    elif cursor.accept("NOT NULL"):
        parsed.nullable = False
    elif cursor.accept("NULL"):
        parsed.nullable = True
    elif cursor.accept("DEFAULT"):
        parsed.column = replace(column, default=read_default(cursor))
    elif cursor.accept("ON UPDATE"):
        _accept_function(cursor)
    elif cursor.accept("AUTO_INCREMENT"):
        parsed.column = replace(column, auto_increment=True)
        parsed.nullable = bool(parsed.nullable)
    elif cursor.accept("AUTO_RANDOM"):
        if cursor.at("("):
            cursor.read_group()
    elif cursor.accept("SERIAL DEFAULT VALUE"):
        parsed.column = replace(column, auto_increment=True)
        parsed.nullable, parsed.unique = False, True
    elif cursor.accept_any("GENERATED ALWAYS AS", "AS"):
        expression = cursor.read_group()
        stored = cursor.accept_any("VIRTUAL", "STORED", "PERSISTENT") in ("STORED", "PERSISTENT")
        parsed.column = replace(column, generated="stored" if stored else "virtual", expression=expression)
    else:
        return False
    return True


def _read_key_attribute(cursor: Cursor, parsed: ParsedColumn) -> bool:
    if cursor.at("REFERENCES"):
        name = parsed.column.name
        parsed.references = read_references(cursor, name, (name,))
        return True
    if cursor.accept_any("PRIMARY KEY", "KEY"):
        parsed.primary_key = True
        cursor.accept_any("CLUSTERED", "NONCLUSTERED")
    elif cursor.accept_any("UNIQUE KEY", "UNIQUE"):
        parsed.unique = True
    else:
        return False
    cursor.accept_any("GLOBAL", "LOCAL")
    return True


def _skip_attribute(cursor: Cursor) -> bool:
    """Moves past an attribute that affects no values: comments, storage, checks. Returns whether one was next."""
    if cursor.accept("COMMENT"):
        cursor.read_string(is_literal=True)
    elif cursor.at_any("CONSTRAINT", "CHECK"):
        if cursor.accept("CONSTRAINT") and not cursor.at("CHECK"):
            cursor.read_name("a constraint name")
        read_check(cursor)
    else:
        return (cursor.accept_any(*_SKIPPED_WORDS) or cursor.accept_option(*_SKIPPED_OPTIONS)) is not None
    return True


def read_check(cursor: Cursor) -> None:
    """Moves past CHECK (expression) [[NOT] ENFORCED]."""
    cursor.expect("CHECK")
    cursor.read_group()
    cursor.accept_any("ENFORCED", "NOT ENFORCED")


def read_references(cursor: Cursor, name: str, columns: tuple[str, ...]) -> AddForeignKey | None:
    """Reads REFERENCES table (columns) with its MATCH, ON DELETE and ON UPDATE. Returns the foreign key; None if it
    changes no row."""
    cursor.expect("REFERENCES")
    table = cursor.read_table_name()
    referenced = cursor.read_list(Cursor.read_column_name) if cursor.at("(") else []
    actions: list[str] = []
    while event := cursor.accept_any("MATCH", "ON DELETE", "ON UPDATE"):
        if event == "MATCH":
            cursor.expect("FULL", "PARTIAL", "SIMPLE")
            continue
        # InnoDB rejects SET DEFAULT
        action = cursor.expect("RESTRICT", "NO ACTION", "SET DEFAULT", "CASCADE", "SET NULL")
        actions += [f"{event} {action}"] if action in ("CASCADE", "SET NULL") else []
    key = ForeignKey(name, columns, table, tuple(referenced), " ".join(actions))
    return AddForeignKey(key) if actions else None


def read_default(cursor: Cursor) -> Default:
    """Reads the value after DEFAULT. Raises DdlSyntaxError unless it is a literal, a function or in brackets."""
    if word := cursor.accept_any(*_CONSTANTS):
        return _CONSTANTS[word]
    start = cursor.position
    if cursor.at("("):
        cursor.read_group()
        return Default("expression", cursor.text_since(start))
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
    _accept_function(cursor)
    return Default("expression", cursor.text_since(start))


def _accept_function(cursor: Cursor) -> None:
    """Moves past a function call such as CURRENT_TIMESTAMP or NOW(3), or past NEXT VALUE FOR a sequence."""
    if cursor.accept("NEXT VALUE FOR"):
        cursor.read_table_name()
        return
    word = cursor.take(Kind.WORD, what="a value")
    if cursor.at("("):
        cursor.read_group()
    elif word.text.upper() not in _FUNCTIONS_WITHOUT_BRACKETS:
        cursor.index -= 1
        raise cursor.error("a value expected")
