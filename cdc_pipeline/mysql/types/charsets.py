"""Character sets and collations of columns, from the column definition and the table's default."""

from __future__ import annotations

from dataclasses import replace

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
