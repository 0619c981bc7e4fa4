"""Compares a mirror with a table of a capture's `expected.json`, value by value.

Values are compared as each capture's README defines: DECIMAL as numbers, DOUBLE as 64-bit numbers, FLOAT after rounding
to 6 digits, JSON as documents, BIT as a number, rows as a multiset.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable
from decimal import Context, Decimal
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.mysql.model.quoted_names import quoted

_EXACT = Context(prec=100)
# compared as numbers, because the database pads them: ZEROFILL, the year 0000
_INTEGERS = ("year", "tinyint", "smallint", "mediumint", "int", "bigint")


def differences(
    mirror: DataFrame,
    columns: list[dict[str, str]],
    rows: list[list[str | None]],
    *,
    without: frozenset[str] = frozenset(),
    milliseconds: bool = False,
) -> list[str]:
    """The differences between the mirror and the expected rows, at most 6 lines; empty if they are equal.

    `columns`, `rows`: as in `expected.json`. `without`: columns whose values are not compared. `milliseconds`: times are
    compared to the millisecond, because DataWorks sends no more.
    """
    wanted_names = [column["name"] for column in columns]
    names = [name for name in mirror.columns if name in wanted_names or not name.startswith("_")]
    if names != wanted_names:
        return [f"columns {names}, expected {wanted_names}"]
    kinds = [column["type"].split("(")[0].split(" ")[0].lower() for column in columns]
    kinds = ["" if name in without else kind for name, kind in zip(names, kinds, strict=True)]
    texts = mirror.select(*(_as_text(mirror, name) for name in names)).collect()
    found = Counter(_row(row, kinds, _found) for row in texts)
    wanted = Counter(_row(_cut(row, kinds) if milliseconds else row, kinds, _wanted) for row in rows)
    missing, surplus = wanted - found, found - wanted
    lines = [f"missing {count} x {row}" for row, count in missing.items()]
    lines += [f"surplus {count} x {row}" for row, count in surplus.items()]
    return sorted(lines, key=lambda line: line.split(" x ")[1])[:6]


def _cut(row: list[str | None], kinds: list[str]) -> list[str | None]:
    return [
        text[: len("2026-11-21 08:11:36.904")] if text is not None and kind in ("datetime", "timestamp") else text
        for text, kind in zip(row, kinds, strict=True)
    ]


def _as_text(mirror: DataFrame, name: str) -> Any:
    column = F.col(quoted(name))
    kind = dict(mirror.dtypes)[name]
    if kind == "binary":
        return F.lower(F.hex(column)).alias(name)
    if kind.startswith("array"):
        return F.to_json(column).alias(name)
    return column.cast("string").alias(name)


def _row(row: Iterable[str | None], kinds: list[str], value: Any) -> tuple[Any, ...]:
    return tuple(None if text is None or not kind else value(text, kind) for text, kind in zip(row, kinds, strict=True))


def _common(text: str, kind: str) -> Any:
    if kind == "decimal":
        return _EXACT.normalize(Decimal(text)) if Decimal(text) else Decimal(0)
    if kind == "double":
        return float(text)
    if kind == "float":
        single = struct.unpack("f", struct.pack("f", min(float(text), 3.4028234e38)))[0] if float(text) else 0.0
        return float(f"{single:.6g}") if math.isfinite(single) else single
    if kind == "vector":
        return [float(number) for number in json.loads(text)].__repr__()
    if kind == "json":
        return json.dumps(json.loads(text), sort_keys=True)
    if kind in ("datetime", "timestamp"):
        return text.rstrip("0").rstrip(".") if "." in text else text
    if kind in _INTEGERS:
        return int(text)
    return text


def _found(text: str, kind: str) -> Any:
    return int(text) if kind == "bit" else _common(text, kind)


def _wanted(text: str, kind: str) -> Any:
    if kind in ("date", "datetime", "timestamp") and (text.startswith("0000-") or "-00" in text[:10]):
        return None  # a mirror has NULL for a zero or impossible date
    return int(text, 16) if kind == "bit" else _common(text, kind)
