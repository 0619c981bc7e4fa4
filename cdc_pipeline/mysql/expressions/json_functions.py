"""JSON in MySQL expressions, on MySQL's own text of it.

That text has one form: `{"a": 1, "b": [true, "x"]}`, keys unique, one space after each comma and colon. Patterns cut
values out of it, so that nested values keep that form and numbers their digits, which no parser of Spark's does. Text
of another form is doubtful. All repetitions of the patterns are possessive: Java runs those without recursion, so
that no value overflows its stack.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.values import (
    ExpressionError,
    Value,
    ValueKind,
    bound,
    constant_text,
    doubt_of,
    doubted,
    quoted,
    require,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_DEPTH = 32
"""Levels of arrays and objects that a pattern follows; MySQL takes 100. Deeper values are doubtful."""
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_LEG = re.compile(r'\.([A-Za-z_$][A-Za-z0-9_$]*)|\."([^"\\]+)"|\[(\d{1,6})\]')
_ODD_IN_STRINGS = "[\\x00-\\x1f\\u2028\\u2029]"
_SPACED = r"^(?:[^\s,:]|[,:] (?=\S))++\z"
"""Text, its strings left out, that has a space after each comma and colon and nowhere else."""


@cache
def _value() -> str:
    """The pattern of a value: a string, a word or number, or balanced brackets."""
    inside = rf'(?:[^\[\]{{}}"]++|{_STRING})*+'
    for _ in range(_DEPTH - 1):
        inside = rf'(?:[^\[\]{{}}"]++|{_STRING}|[\[{{]{inside}[\]}}])*+'
    return rf'(?:{_STRING}|[^\[\]{{}}",:\s]++|[\[{{]{inside}[\]}}])'


def odd_form(json: str) -> str:
    """Whether text is not in MySQL's form, or too deep to tell."""
    bare = f"regexp_replace({json}, {quoted(_STRING)}, '\"\"')"
    return f"NOT ({bare} RLIKE {quoted(_SPACED)} AND {json} RLIKE {quoted(f'^{_value()}{chr(92)}z')})"


def extracted(values: Sequence[Value]) -> Value:
    """JSON_EXTRACT(json, path) for a constant path of members and places, NULL where there is nothing."""
    source, path = values[0], constant_text(values[1], "JSON_EXTRACT")
    require(source, [ValueKind.JSON], "JSON_EXTRACT")
    sql = source.sql
    for leg in _legs(path):
        sql = _item(sql, leg) if isinstance(leg, int) else _member(sql, leg)
    return replace(source, sql=sql)


def _legs(path: str) -> list[str | int]:
    text = path.strip(" ")
    legs: list[str | int] = []
    place = 1
    while text.startswith("$") and place < len(text):
        found = _LEG.match(text, place)
        if found is None:
            break
        legs.append(int(found[3]) if found[3] is not None else found[1] or found[2])
        place = found.end()
    odd = any(isinstance(leg, str) and re.search(_ODD_IN_STRINGS, leg) for leg in legs)
    if not text.startswith("$") or place < len(text) or odd:
        raise ExpressionError(f"JSON path {path!r}: only members and places of arrays")
    return legs


def _member(json: str, key: str) -> str:
    name = re.escape(f'"{key}"')
    pattern = rf"^\{{(?:(?!{name}: ){_STRING}: {_value()}, )*+{name}: ({_value()})"
    return f"nullif(regexp_extract({json}, {quoted(pattern)}, 1), '')"


def _item(json: str, place: int) -> str:
    pattern = rf"^\[(?:{_value()}, ){{{place}}}+({_value()})"

    def found(text: str) -> str:
        # what is no array is, to a path, an array of itself
        own = f" ELSE {text}" if place == 0 else ""
        item = f"nullif(regexp_extract({text}, {quoted(pattern)}, 1), '')"
        return f"CASE WHEN {text} LIKE '[%' THEN {item}{own} END"

    return bound(json, found)


def unquoted(value: Value) -> Value:
    """JSON_UNQUOTE of a JSON value: a string without its quotes and escapes, the text of all else."""
    require(value, [ValueKind.JSON], "JSON_UNQUOTE")

    def content(text: str) -> str:
        return f"CASE WHEN {text} LIKE '\"%' THEN get(from_json(concat('[', {text}, ']'), 'array<string>'), 0) "

    sql = bound(value.sql, lambda x: f"{content(x)}ELSE {x} END")
    lost = bound(value.sql, lambda x: f"({content(x)}ELSE {x} END IS NULL AND {x} IS NOT NULL)")
    made = Value(sql, ValueKind.TEXT, value.doubt, charset="utf8mb4", collation="utf8mb4_bin")
    return doubted(made, lost)


def _unquote(values: Sequence[Value]) -> Value:
    return unquoted(values[0])


def _json_text(value: Value) -> Value:
    """A value as a part of JSON text."""
    match value.kind:
        case ValueKind.NULL:
            return Value("'null'", ValueKind.TEXT)
        case ValueKind.INTEGER if value.condition is None and value.textless is None:
            sql = f"CAST({value.sql} AS STRING)"
        case ValueKind.JSON:
            sql = value.sql
        case ValueKind.TEXT:
            # MySQL and TiDB write control characters in different ways
            escaped = f"replace(replace({value.sql}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"')"
            sql = f"concat('\"', {escaped}, '\"')"
            value = doubted(value, f"{value.sql} RLIKE {quoted(_ODD_IN_STRINGS)}")
        case _:
            raise ExpressionError(f"JSON made of a {value.kind.value} value")
    return Value(f"coalesce({sql}, 'null')", ValueKind.TEXT, value.doubt)


def _json(parts: Sequence[str], opening: str, closing: str, values: Sequence[Value]) -> Value:
    if not parts:
        return Value(f"'{opening}{closing}'", ValueKind.JSON)
    joined = ", ', ', ".join(parts)
    return Value(f"concat('{opening}', {joined}, '{closing}')", ValueKind.JSON, doubt_of(*values))


def _array(values: Sequence[Value]) -> Value:
    made = [_json_text(value) for value in values]
    return _json([item.sql for item in made], "[", "]", made)


def _object(values: Sequence[Value]) -> Value:
    if len(values) % 2:
        raise ExpressionError("JSON_OBJECT of keys without values")
    keys = [constant_text(value, "JSON_OBJECT") for value in values[::2]]
    if len(set(keys)) < len(keys) or any(re.search(_ODD_IN_STRINGS + r'|["\\]', key) for key in keys):
        raise ExpressionError(f"JSON_OBJECT with the keys {', '.join(map(repr, keys))}")
    # MySQL sorts the keys of an object by their bytes' number, then by the bytes
    members = sorted(zip(keys, values[1::2], strict=True), key=lambda item: (len(item[0].encode()), item[0].encode()))
    made = [_json_text(value) for _, value in members]
    parts = [
        f"{quoted(f'{chr(34)}{key}{chr(34)}: ')}, {item.sql}" for (key, _), item in zip(members, made, strict=True)
    ]
    return _json(parts, "{", "}", made)


FUNCTIONS: dict[str, tuple[int, int, Callable[[Sequence[Value]], Value]]] = {
    "JSON_EXTRACT": (2, 2, extracted),
    "JSON_UNQUOTE": (1, 1, _unquote),
    "JSON_ARRAY": (0, 1000, _array),
    "JSON_OBJECT": (0, 1000, _object),
}
"""By MySQL's name: the fewest and the most arguments, and what makes the value."""
