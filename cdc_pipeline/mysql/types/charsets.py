"""Character sets and collations of columns, from the column definition and the table's default; and text that an encoder has
damaged: Canal decodes the bytes of every character set as UTF-8 (canal-facts 28, 31)."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType, TableSchema

UNKNOWN = "unknown"
"""The character set of a column that is not known from DDL and may differ from the table's current default."""
BINARY_ATTRIBUTE = "_bin"
"""Stands for the collation of a column with the attribute BINARY: the binary collation of its character set."""
_IN_A_CHARSET = TEXT_TYPES | {"enum", "set"}


def charset_of_column(kind: MySqlType, default: str | None) -> str | None:
    """The character set of a column: its own, that of its collation, or the table's `default`; None if unknown."""
    own = kind.charset
    if own is None and kind.collation is not None and kind.collation != BINARY_ATTRIBUTE:
        own = kind.collation.split("_")[0]
    charset = default if own is None else own
    return None if charset == UNKNOWN else charset


def collation_of_column(kind: MySqlType, schema: TableSchema) -> str | None:
    """The collation of a column: its own, or the table's; None if unknown.

    A character set alone does not determine it: the default of utf8mb4 is utf8mb4_general_ci, utf8mb4_0900_ai_ci or
    (TiDB) utf8mb4_bin.
    """
    if kind.collation == BINARY_ATTRIBUTE:
        return f"{charset_of_column(kind, schema.charset) or ''}_bin"
    return kind.collation if kind.collation is not None else None if kind.charset is not None else schema.collation


def pin_charset(kind: MySqlType, schema: TableSchema) -> MySqlType:
    """The type with the table's default character set as its own, so that it survives a change of the default."""
    if kind.base not in _IN_A_CHARSET or kind.charset is not None or kind.collation not in (None, BINARY_ATTRIBUTE):
        return kind
    return replace(kind, charset=schema.charset or UNKNOWN, collation=kind.collation or schema.collation)


def change_charset(kind: MySqlType, charset: str, collation: str | None) -> MySqlType:
    """The type after CONVERT TO CHARACTER SET."""
    return replace(kind, charset=charset, collation=collation) if kind.base in _IN_A_CHARSET else kind


_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii", "binary"})
WIDE = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Character sets in which the bytes of ASCII mean other text."""
_BYTES_AS_TEXT = frozenset({"uuid", "inet4", "inet6"})
_REPLACEMENT = "\ufffd"
LOST_BYTE = "\ufffd\uffff"
"""Stands for a byte of text that an encoder has lost, where its message distinguishes that from a true U+FFFD. Kept in the
mirror, so that a key with a lost byte differs from the key with the true character."""


def is_decoded_correctly(charset: str | None) -> bool:
    """Whether Canal decodes text of the character set correctly; true if the character set is unknown."""
    return charset is None or charset in _UTF8


def damaged_text(text: Column, kind: MySqlType, default_charset: str | None) -> Column | None:
    """A boolean column: whether Canal's text differs from upstream's. None if the text of this type is always correct.

    If the character set is unknown, only U+FFFD, the replacement of bytes that are not UTF-8, counts as damage.
    """
    if kind.base in _BYTES_AS_TEXT:
        return text.isNotNull()
    if kind.base not in TEXT_TYPES:
        return None
    charset = charset_of_column(kind, default_charset)
    if charset in _UTF8:
        return None
    if charset in WIDE:
        return F.coalesce(text != "", F.lit(False))
    if charset is None:
        return F.coalesce(text.contains(_REPLACEMENT), F.lit(False))
    return F.coalesce(text.rlike(r"[^\x00-\x7f]"), F.lit(False))
