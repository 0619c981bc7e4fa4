"""Texts of types whose definition decides how a value is written: TIME, DECIMAL, ENUM and SET.

The model stores labels of ENUM and SET, as a table shows them. Messages have their numbers.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

_EXACT = Context(prec=100)
_LABELLED = ("enum", "set")


def labels(mysql_type: str) -> list[str]:
    """The labels of an ENUM or SET in definition order."""
    return [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", mysql_type)]


def is_labelled(mysql_type: str) -> bool:
    return mysql_type.startswith(_LABELLED)


def in_case(mysql_type: str, word: str) -> str:
    """The type with `word` as its type name. Labels do not change."""
    return word + mysql_type[mysql_type.index("(") :]


def escaped(text: str) -> str:
    """The text of a string or type with its backslashes escaped, as users write it."""
    return text.replace("\\", "\\\\")


def upper_type(mysql_type: str) -> str:
    base = mysql_type.split("(")[0]
    return in_case(mysql_type, base.upper()) if is_labelled(mysql_type) else mysql_type.upper()


def sent(mysql_type: str, value: str | None) -> str | None:
    """The value in Canal-JSON: the number of an ENUM label, the bit mask of SET labels."""
    if value is None or not is_labelled(mysql_type):
        return value
    members = labels(mysql_type)
    if mysql_type.startswith("enum"):
        return str(members.index(value) + 1)
    return str(sum(1 << members.index(label) for label in value.split(",") if label))


def converted(value: str | None, mysql_type: str) -> str | None:
    """The value after a conversion to the type. Supports the conversions of the model."""
    if value is None:
        return None
    if mysql_type.startswith("decimal"):
        scale = int(mysql_type.rstrip(")").split(",")[1])
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
        return f"{rounded if rounded else abs(rounded):f}"
    if mysql_type.startswith("time"):
        return _time(value, int(mysql_type[5:-1]) if "(" in mysql_type else 0)
    if mysql_type.startswith("set"):
        chosen = value.split(",")
        return ",".join(label for label in labels(mysql_type) if label in chosen)
    return value


def _time(value: str, digits: int) -> str:
    sign = -1 if value.startswith("-") else 1
    hours, minutes, seconds = value.removeprefix("-").split(":")
    exact = sign * (int(hours) * 3600 + int(minutes) * 60 + Decimal(seconds))
    rounded = exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)
    size = abs(rounded)
    whole, fraction = int(size), size - int(size)
    tail = f"{fraction:.{digits}f}"[1:] if digits else ""
    return f"{'-' if rounded < 0 else ''}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{tail}"
