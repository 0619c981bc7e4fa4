"""JSON functions of MySQL expressions, computed on the text that MySQL prints.

MySQL prints JSON in one canonical form: `{"a": 1, "b": [true, "x"]}`, with unique keys and one space after each comma and
colon. Regular expressions extract values from this text, so nested values keep the form and numbers keep their digits;
Spark's JSON parser would change both. Text in another form is doubtful. All quantifiers are possessive, because Java
evaluates these without recursion: long values cannot overflow its stack.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.values import ExpressionError, Function, Value, ValueKind

_DEPTH = 32
"""Nesting levels of arrays and objects that a pattern matches; MySQL allows 100. Deeper values are doubtful."""
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_LEG = re.compile(r'\.([A-Za-z_$][A-Za-z0-9_$]*)|\."([^"\\]+)"|\[(\d{1,6})\]')
_ODD_IN_STRINGS = "[\\x00-\\x1f\\u2028\\u2029]"
_SPACED = r"^(?:[^\s,:]|[,:] (?=\S))++\z"
"""Matches JSON without its strings, if spaces are only after each comma and colon."""


@cache
def _value_pattern() -> str:
    """The pattern of a JSON value: a string, a literal or number, or balanced brackets."""
    inside = rf'(?:[^\[\]{{}}"]++|{_STRING})*+'
    for _ in range(_DEPTH - 1):
        inside = rf'(?:[^\[\]{{}}"]++|{_STRING}|[\[{{]{inside}[\]}}])*+'
    return rf'(?:{_STRING}|[^\[\]{{}}",:\s]++|[\[{{]{inside}[\]}}])'


def is_not_canonical(json: str) -> str:
    """A Spark boolean: whether the text is not JSON in MySQL's canonical form, or nested more than 32 levels.

    Canal writes doubles as Java does, such as `1.0E-4`; MySQL and TiDB write `0.0001` (canal-facts 29, 56).
    """
    bare = f"regexp_replace({json}, {v.sql_string(_STRING)}, '\"\"')"
    canonical = f"{bare} RLIKE {v.sql_string(_SPACED)} AND NOT contains({bare}, 'E')"
    return f"NOT ({canonical} AND {json} RLIKE {v.sql_string(f'^{_value_pattern()}{chr(92)}z')})"


def json_extract(source: Value, path: Value) -> Value:
    """JSON_EXTRACT(json, path) for a constant path of members and array cells; NULL if the path matches nothing."""
    v.require_kind(source, [ValueKind.JSON], "JSON_EXTRACT")
    sql = source.sql
    for leg in _legs(v.constant_text(path, "JSON_EXTRACT")):
        sql = _array_cell(sql, leg) if isinstance(leg, int) else _member(sql, leg)
    return replace(source, sql=sql)


def _legs(path: str) -> list[str | int]:
    text = path.strip(" ")
    legs: list[str | int] = []
    index = 1
    while text.startswith("$") and index < len(text):
        match = _LEG.match(text, index)
        if match is None:
            break
        legs.append(int(match[3]) if match[3] is not None else match[1] or match[2])
        index = match.end()
    has_odd_key = any(isinstance(leg, str) and re.search(_ODD_IN_STRINGS, leg) for leg in legs)
    if not text.startswith("$") or index < len(text) or has_odd_key:
        raise ExpressionError(f"JSON path {path!r}: only members and array cells are supported")
    return legs


def _member(json: str, key: str) -> str:
    name = re.escape(f'"{key}"')
    pattern = rf"^\{{(?:(?!{name}: ){_STRING}: {_value_pattern()}, )*+{name}: ({_value_pattern()})"
    return f"nullif(regexp_extract({json}, {v.sql_string(pattern)}, 1), '')"


def _array_cell(json: str, index: int) -> str:
    pattern = rf"^\[(?:{_value_pattern()}, ){{{index}}}+({_value_pattern()})"

    def cell(text: str) -> str:
        # a path treats a value that is not an array as an array of this value
        own = f" ELSE {text}" if index == 0 else ""
        item = f"nullif(regexp_extract({text}, {v.sql_string(pattern)}, 1), '')"
        return f"CASE WHEN {text} LIKE '[%' THEN {item}{own} END"

    return v.bind_sql(json, cell)


def json_unquote(value: Value) -> Value:
    """JSON_UNQUOTE of a JSON value: a string without its quotes and escapes, the text of other values."""
    v.require_kind(value, [ValueKind.JSON], "JSON_UNQUOTE")

    def content(text: str) -> str:
        return f"CASE WHEN {text} LIKE '\"%' THEN get(from_json(concat('[', {text}, ']'), 'array<string>'), 0) "

    sql = v.bind_sql(value.sql, lambda x: f"{content(x)}ELSE {x} END")
    lost = v.bind_sql(value.sql, lambda x: f"({content(x)}ELSE {x} END IS NULL AND {x} IS NOT NULL)")
    text = Value(sql, ValueKind.TEXT, value.doubt, charset="utf8mb4", collation="utf8mb4_bin")
    return v.add_doubts(text, lost)


FUNCTIONS: dict[str, tuple[int, int, Function]] = {
    "JSON_EXTRACT": (2, 2, lambda values, _: json_extract(*values)),
    "JSON_UNQUOTE": (1, 1, lambda values, _: json_unquote(values[0])),
    # of defaults; members would need MySQL's text of their values
    "JSON_ARRAY": (0, 0, lambda *_: Value("'[]'", ValueKind.JSON)),
    "JSON_OBJECT": (0, 0, lambda *_: Value("'{}'", ValueKind.JSON)),
}
"""MySQL name → minimum and maximum number of arguments, and the translation."""
