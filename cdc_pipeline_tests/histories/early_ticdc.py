"""Differences of TiCDC's messages before v5.4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_pipeline_tests.histories.message import SQL_TYPES, Body, base_type
from cdc_pipeline_tests.histories.shapes import Row
from cdc_pipeline_tests.histories.upstream import DELETE, UPDATE

_BYTES, _BLOB = "varbinary", 2004
_CODES = {**SQL_TYPES, "int": -5, "bigint": 3, _BYTES: 12, "enum": 1, "set": 1}


def early_fields(body: Body, types: Mapping[str, str]) -> Body:
    """The fields of a row message that differ before v5.4."""
    bases = {name: base_type(mysql_type) for name, mysql_type in types.items()}
    (row,), (old,) = body["data"], body["old"] or [None]
    as_text = {
        name: base == _BYTES and all(_is_utf8(image[name]) for image in (row, old) if image is not None)
        for name, base in bases.items()
    }
    row, old = (_as_sent(image, as_text) for image in (row, old))
    return {
        "sqlType": {
            name: _BLOB if base == _BYTES and not as_text[name] else _CODES[base] for name, base in bases.items()
        },
        "mysqlType": bases,
        "old": [old if body["type"] == UPDATE else row if body["type"] == DELETE else None],
        "data": [row],
    }


def _is_utf8(value: str | None) -> bool:
    try:
        return value is None or "\ufffd" not in value.encode("latin-1").decode()
    except UnicodeDecodeError:
        return False


def _as_sent(row: Row | None, as_text: Mapping[str, bool]) -> Row | None:
    if row is None:
        return None
    return {
        name: value.encode("latin-1").decode() if value is not None and as_text[name] else value
        for name, value in row.items()
    }


def read_early(body: dict[str, Any], row: Row) -> Row:
    """The row of a message. For an early encoder, each character of a binary value is one byte."""
    if body.get("ts") != 0:
        return row
    text = {name for name, base in body["mysqlType"].items() if base == _BYTES and body["sqlType"][name] != _BLOB}
    return {
        name: value.encode().decode("latin-1") if value is not None and name in text else value
        for name, value in row.items()
    }
