"""Detects text that Canal has damaged. Canal decodes the bytes of every character set as UTF-8 (canal-facts 28, 31)."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.mysql.model.table import TEXT_TYPES, MySqlType
from cdc_pipeline.mysql.types.charsets import charset_of_column

_UTF8 = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii", "binary"})
_NOT_ASCII = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
_BYTES_AS_TEXT = frozenset({"uuid", "inet4", "inet6"})
_REPLACEMENT = "\ufffd"


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
    if charset in _NOT_ASCII:
        return F.coalesce(text != "", F.lit(False))
    if charset is None:
        return F.coalesce(text.contains(_REPLACEMENT), F.lit(False))
    return F.coalesce(text.rlike(r"[^\x00-\x7f]"), F.lit(False))
