"""Parses MySQL column types of DDL and of `mysqlType` in messages."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind
from cdc_pipeline.mysql.model.limits import MAX_QUOTED, limit_message, shortened
from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline.mysql.types.charsets import BINARY_ATTRIBUTE

# Synonyms of one word. `_read_base` handles those of several words.
_SYNONYMS = {
    "integer": "int",
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "middleint": "mediumint",
    "dec": "decimal",
    "numeric": "decimal",
    "fixed": "decimal",
    "real": "double",
    "float4": "float",
    "float8": "double",
    "character": "char",
    "nchar": "char",
    "varcharacter": "varchar",
    "nvarchar": "varchar",
    "geomcollection": "geometrycollection",
}
_NATIONAL = frozenset({"nchar", "nvarchar"})
_CHARSET_WORDS = {"BYTE": "binary", "ASCII": "latin1", "UNICODE": "ucs2"}
_BINARY_TYPES = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}
# The types of a column definition. Another word is more likely an unknown clause.
KNOWN_TYPES = frozenset(
    {
        *("bit", "tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"),
        *("date", "datetime", "timestamp", "time", "year"),
        *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"),
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        *("geometrycollection", "vector"),
        *("uuid", "inet4", "inet6"),  # MariaDB
    }
)

_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
# base type → (meaning, maximum) of each number in brackets
_NUMBERS: dict[str, tuple[tuple[str, int], ...]] = {
    **dict.fromkeys(_INTEGERS, (("display width", 255),)),
    "bit": (("bits", 64),),
    # the maximum scale is 30 in MySQL, 38 in MariaDB
    "decimal": (("digits", 65), ("scale", 38)),
    "float": (("digits", 255), ("scale", 38)),
    "double": (("digits", 255), ("scale", 38)),
    **dict.fromkeys(("time", "datetime", "timestamp"), (("digits of a second", 6),)),
    "year": (("digits", 4),),
    "char": (("length", 255),),
    "binary": (("length", 255),),
    "vector": (("dimensions", 16_383),),
}
_LABELS = {"enum": 65_535, "set": 64}
_LONGEST = 2**32 - 1
_LONGEST_IN_ROW = 65_535
"""Maximum bytes of VARCHAR and VARBINARY. A server without strict mode converts longer ones to TEXT and BLOB."""


@lru_cache(maxsize=1024)
def parse_mysql_type(text: str) -> MySqlType:
    """Parses `mysqlType` of a message.

    An unknown type becomes the base, in lower case; words after the type are ignored. Raises DdlSyntaxError for text without
    tokens, without a word at its start, or with brackets that cannot be parsed.
    """
    cursor = Cursor(text)
    kind, _ = read_type(cursor)
    return kind


def type_or_text(text: str) -> MySqlType:
    """`parse_mysql_type` without errors: a text that cannot be parsed becomes the base, cut by `shortened`."""
    try:
        kind = parse_mysql_type(text)
    except Exception:  # no message may fail the batch
        return MySqlType(shortened(text.strip().lower()))
    return kind if len(kind.base) <= MAX_QUOTED else MySqlType(shortened(kind.base))


def read_type(cursor: Cursor) -> tuple[MySqlType, bool]:
    """Reads a type with its attributes (UNSIGNED, CHARACTER SET …). Returns it and whether it is SERIAL.

    SERIAL means BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE.
    """
    word = cursor.peek()
    if word is None or word.kind is not Kind.WORD:
        raise cursor.error("a column type expected")
    if cursor.accept("SERIAL"):
        return MySqlType("bigint", unsigned=True), True
    if cursor.accept_any("BOOL", "BOOLEAN"):
        return MySqlType("tinyint", (1,)), False
    base, charset = _read_base(cursor)
    params, members = _read_brackets(cursor)
    if base == "float" and len(params) == 1 and params[0] > 24:
        base, params = "double", ()  # FLOAT(p): p is a number of bits and selects the type
    base, params = _widened_string_type(base, params)
    kind = MySqlType(base, params, members=members, charset=charset)
    if (problem := _exceeded_limit(kind)) is not None:
        raise DdlSyntaxError(problem, word.start)
    while (changed := accept_type_attribute(cursor, kind)) is not None:
        kind = changed
    return to_binary_type(kind), False


def _exceeded_limit(kind: MySqlType) -> str | None:
    """Which parameter of the type exceeds its limit, as a message; None if all are valid."""
    if (most := _LABELS.get(kind.base)) is not None and len(kind.members) > most:
        return f"{kind.base}: " + limit_message("labels", len(kind.members), most)
    limits = _NUMBERS.get(kind.base, (("length", _LONGEST),))
    if len(kind.params) > len(limits):
        return f"{kind.base}: " + limit_message("numbers in brackets", len(kind.params), len(limits))
    for (what, limit), number in zip(limits, kind.params, strict=False):
        if number > limit:
            return f"{kind.base}: " + limit_message(what, number, limit)
    if kind.base == "decimal" and len(kind.params) > 1 and kind.params[1] > (kind.params[0] or 10):
        return f"decimal: {limit_message('scale', kind.params[1], kind.params[0] or 10)}, its digits"
    return None


def _widened_string_type(base: str, params: tuple[int, ...]) -> tuple[str, tuple[int, ...]]:
    """The TEXT or BLOB type that replaces a VARCHAR or VARBINARY of more than 65,535; other types unchanged."""
    if base not in ("varchar", "varbinary") or not params or params[0] <= _LONGEST_IN_ROW:
        return base, params
    size = "medium" if params[0] < 2**24 else "long"
    return size + ("text" if base == "varchar" else "blob"), ()


def accept_type_attribute(cursor: Cursor, kind: MySqlType) -> MySqlType | None:
    """Reads an attribute of a type: UNSIGNED, ZEROFILL, a character set, a collation.

    Returns `kind` with the attribute; None if none is next.
    """
    if accept_character_set(cursor):
        return replace(kind, charset=read_name_or_string(cursor).lower())
    word = cursor.accept_any("SIGNED", "UNSIGNED", "ZEROFILL", "COLLATE", "BINARY", *_CHARSET_WORDS)
    if word is None or word == "SIGNED":
        return kind if word else None
    if word == "COLLATE":
        return replace(kind, collation=read_name_or_string(cursor).lower())
    if word == "BINARY":
        return replace(kind, collation=kind.collation or BINARY_ATTRIBUTE)
    if word in _CHARSET_WORDS:
        return replace(kind, charset=_CHARSET_WORDS[word])
    return replace(kind, unsigned=True, zerofill=kind.zerofill or word == "ZEROFILL")  # MySQL implies UNSIGNED


def accept_character_set(cursor: Cursor) -> bool:
    """Moves past CHARACTER SET, CHAR SET or CHARSET. Returns whether one was next."""
    return cursor.accept_any("CHARACTER SET", "CHAR SET", "CHARSET") is not None


def read_name_or_string(cursor: Cursor) -> str:
    """Reads a word, quoted name or string, such as the name of a character set."""
    return cursor.take(Kind.WORD, Kind.QUOTED, Kind.STRING, what="a name").text


def to_binary_type(kind: MySqlType, default_charset: str | None = None) -> MySqlType:
    """The binary type for text in the character set `binary`, as MySQL converts it; else `kind` itself.

    `default_charset`: the default of the table, for a type without character set and collation.
    """
    collation = None if kind.collation == BINARY_ATTRIBUTE else kind.collation
    charset = kind.charset or collation or default_charset
    if charset != "binary" or kind.base not in _BINARY_TYPES:
        return kind
    return replace(kind, base=_BINARY_TYPES[kind.base], charset=None, collation=None)


def _read_base(cursor: Cursor) -> tuple[str, str | None]:
    """Reads the words of a type. Returns the base with synonyms resolved, and the character set that the words imply."""
    national = cursor.accept("NATIONAL")
    word = cursor.take(Kind.WORD, what="a column type").text.lower()
    if word == "long":
        kinds = ("VARBINARY", "VARCHAR", "VARCHARACTER", "CHAR VARYING", "CHARACTER VARYING")
        return ("mediumblob" if cursor.accept_any(*kinds) == "VARBINARY" else "mediumtext"), None
    if word == "double":
        cursor.accept("PRECISION")
    base = _SYNONYMS.get(word, word)
    if base == "char" and (cursor.accept("VARYING") or (word == "nchar" and cursor.accept("VARCHAR"))):
        base = "varchar"
    return base, "utf8mb3" if national or word in _NATIONAL else None


def _read_brackets(cursor: Cursor) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Reads optional brackets. Returns their numbers and their labels."""
    items = cursor.read_list(_read_number_or_label) if cursor.at("(") else []
    numbers = tuple(item for item in items if isinstance(item, int))
    labels = tuple(item for item in items if isinstance(item, str))
    if numbers and labels:
        raise cursor.error("numbers and labels in one pair of brackets")
    return numbers, labels


def _read_number_or_label(cursor: Cursor) -> int | str:
    if cursor.at_kind(Kind.NUMBER):
        return cursor.read_integer()
    accept_introducer(cursor)
    if cursor.at_kind(Kind.HEX):
        token = cursor.skip()
        try:
            label = bytes.fromhex(token.text).decode()
        except ValueError as error:
            raise DdlSyntaxError("a label that is not UTF-8", token.start) from error
    else:
        label = cursor.read_string()
    return label.rstrip(" ")  # as MySQL stores labels


def accept_introducer(cursor: Cursor) -> str | None:
    """Moves past the character set before a literal (`_utf8mb4'x'`). Returns its lower-case name, or None."""
    token, literal = cursor.peek(), cursor.peek(1)
    if token is None or literal is None or token.kind is not Kind.WORD or not token.text.startswith("_"):
        return None
    if literal.kind not in (Kind.STRING, Kind.HEX, Kind.BITS):
        return None
    cursor.skip()
    return token.text[1:].lower()
