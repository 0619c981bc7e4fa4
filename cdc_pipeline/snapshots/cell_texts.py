"""One text per cell: from the bytes of a value and the column's type, or printed in the same form by a server.

Text types, ENUM, SET and JSON become Unicode text, numbers and dates stay as printed, and binary types, BIT and geometries
become lower-case hexadecimal digits. NULL is None.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, MySqlType
from cdc_pipeline.mysql.types.charsets import charset_of_column
from cdc_pipeline.snapshots.literals import read_literal

UTF8 = "utf8mb4"
OF_COLUMN = "binary"
"""The character set of a file in which each column keeps its own: SET NAMES binary."""
SERVER_SESSION = "SET SESSION time_zone = '+00:00', SESSION sql_mode = '{}', SESSION net_write_timeout = 3600"
"""What `text_sql` needs: TIMESTAMPs are printed in UTC, and no mode changes values (such as PAD_CHAR_TO_FULL_LENGTH)."""

_CODECS = {
    **dict.fromkeys(("utf8mb4", "utf8mb3", "utf8", "ascii"), "utf-8"),
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "cp932", "gbk")},
    **{name: name for name in ("big5", "gb2312", "gb18030", "greek", "hebrew", "tis620")},
    **dict.fromkeys(("ujis", "eucjpms"), "euc-jp"),
    **dict.fromkeys(("ucs2", "utf16"), "utf-16-be"),
    "latin1": "cp1252",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "macroman": "mac-roman",
    "macce": "mac-latin2",
    "sjis": "shift-jis",
    "euckr": "euc-kr",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
}
_BASIC_PLANE, _ALL_PLANES = ("utf8", "utf8mb3"), (UTF8, "utf16", "utf16le", "utf32", "gb18030")
"""Character sets with characters up to U+FFFF, and with all."""
_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "float", "double"})
_BYTES = frozenset(
    {
        *("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit"),
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        "geometrycollection",
    }
)
_IN_A_CHARSET = TEXT_TYPES | {"enum", "set"}


def _keep_control_character(error: UnicodeError) -> tuple[str, int]:
    """MySQL's latin1 is Windows-1252, with U+0081, U+008D, U+008F, U+0090 and U+009D at the bytes that this leaves open."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(error.object[error.start]), error.start + 1


codecs.register_error("cdc_latin1", _keep_control_character)


def may_be_narrow(kind: MySqlType, charset: str, default_charset: str | None) -> bool:
    """Whether a server replaces characters of a column when it prints them in the character set."""
    if charset in (UTF8, OF_COLUMN) or (kind.base not in _IN_A_CHARSET and kind.base != "json"):
        return False
    own = UTF8 if kind.base == "json" else charset_of_column(kind, default_charset)
    if charset in _BASIC_PLANE:
        return own in _ALL_PLANES
    return own not in (None, "ascii", charset)


class Form(Enum):
    NUMBER = "number"
    TEXT = "text"
    """Including dates, ENUM, SET and JSON."""
    BYTES = "bytes"


class UnreadableCellError(ValueError):
    """A value that cannot be the column's."""

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index
        """Of the value, from 0."""


class Cells:
    """Converts the values of one column. `charset`: the character set of the file, or `OF_COLUMN`."""

    def __init__(self, column: Column, charset: str, default_charset: str | None) -> None:
        self.name = column.name
        self.base = column.type.base
        self.form = Form.NUMBER if self.base in _NUMBERS else Form.BYTES if self.base in _BYTES else Form.TEXT
        params = column.type.params
        self._longest = None
        """Bytes of the longest value of a binary type; None without a limit below that of BLOB."""
        if self.base in ("binary", "varbinary", "bit") and params:
            self._longest = (params[0] + 7) // 8 if self.base == "bit" else params[0]
        own = charset_of_column(column.type, default_charset) if self.base in _IN_A_CHARSET else None
        self.charset = (own or UTF8) if charset == OF_COLUMN else charset

    def texts(self, values: Sequence[bytes | None]) -> pa.Array:
        """The texts of values without quotes and escapes. Raises UnreadableCellError if one is not in the character set."""
        if self.form is Form.BYTES or self.base == "vector":
            return self._converted(values, lambda value: self.text(value, None))
        if _CODECS.get(self.charset) == "utf-8":
            try:
                return pa.array(values, pa.string())
            except pa.ArrowInvalid:
                pass  # the index of the value is not known
        return self._converted(values, lambda value: self._decoded(value, self.charset))

    def literal_texts(self, literals: Sequence[bytes | None], other: pa.Array) -> pa.Array:
        """The texts with those of values that are written as another literal of SQL than usual. `other`: the usual ones."""
        texts = self._converted(literals, lambda literal: self.text(*read_literal(literal)))
        return pa.compute.coalesce(texts, other)

    def text(self, value: bytes, charset: str | None) -> str:
        """The text of one value. `charset`: as `read_literal` returns it. Raises ValueError."""
        if charset == "number":
            if self.form is Form.BYTES:
                raise ValueError("a number, where bytes are expected")
            return value.decode()
        if self.form is Form.BYTES:
            # Dumpling's --csv-output-dialect writes digits or base64 as if they were the bytes
            if self._longest is not None and len(value) > self._longest:
                raise ValueError(f"{len(value)} bytes, of at most {self._longest}: written in another dialect of CSV?")
            return value.hex()
        if self.base == "vector" and not value.startswith(b"["):
            return f"[{','.join(map(str, np.frombuffer(value, '<f4').tolist()))}]"
        return self._decoded(value, self.charset if charset in (None, "binary") else charset)

    def _decoded(self, value: bytes, charset: str | None) -> str:
        codec = _CODECS.get(charset or "")
        try:
            if codec is None:
                return value.decode("ascii")
            return value.decode(codec, "cdc_latin1" if codec == "cp1252" else "strict")
        except UnicodeDecodeError as error:
            known = "" if codec else ", which this version cannot decode"
            raise ValueError(
                f"bytes {value[error.start : error.end].hex()} that are no text in {charset}{known}"
            ) from error

    def _converted(self, values: Sequence[bytes | None], text: Callable[[bytes], str]) -> pa.Array:
        texts: list[str | None] = []
        for index, value in enumerate(values):
            try:
                texts.append(None if value is None else text(value))
            except ValueError as error:
                raise UnreadableCellError(f"column {self.name!r} has {error}", index) from error
        return pa.array(texts, pa.string())


def text_sql(column: Column) -> str:
    """SQL that lets a MySQL or MariaDB server print the column: FLOAT with all digits, bytes and BIT as hexadecimal digits.

    A driver would convert some values: a date that no calendar has, a TIME above 24 hours, a FLOAT.
    """
    name, base = quoted(column.name), column.type.base
    if base == "bit":
        size = (int(column.type.params[0]) + 7) // 8 if column.type.params else 1
        return f"LPAD(HEX({name} + 0), {2 * size}, '0')"
    if base in _BYTES:
        return f"HEX({name})"
    # FLOAT alone is printed with six digits; CAST … AS DOUBLE needs MySQL 8
    value = f"({name} + 0e0)" if base == "float" else name
    return f"CONVERT({value} USING utf8mb4)"
