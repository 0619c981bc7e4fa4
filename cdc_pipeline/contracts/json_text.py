"""Detects what Spark's JSON parser accepts silently: text after the object, and unpaired surrogates. Keeps the digits of
numbers that it would read as doubles."""

from __future__ import annotations

import secrets

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.contracts.limits import NESTING

END_MARK = f"_end_{secrets.token_hex(8)}"
"""Name of a boolean field. Add it to the schema when you parse the text of `with_end_mark`.

The name is random per process, so that no message can contain the field itself.
"""

OPTIONS = {
    "mode": "PERMISSIVE",
    # standard JSON: by default Spark also accepts 'x' and NaN
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    # the parser's default is too low for a LONGTEXT of 64 MB
    "maxStringLen": str(2**31 - 1),
    "maxNestingDepth": str(NESTING),
}

# an escape that is half of a surrogate pair; Spark would decode it to `?`
_LONE_SURROGATE = r"(?<!\\)(?:\\\\)*+\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])"

_STRING = r'"(?:[^"\\]++|\\.)*+"'
_CONTAINER = rf"[\[{{](?:[^\[\]{{}}\"]++|{_STRING})*+[\]}}]"
for _ in range(3):  # a few levels of nesting; numbers after a deeper container are read as doubles
    _CONTAINER = rf"[\[{{](?:[^\[\]{{}}\"]++|{_STRING}|{_CONTAINER})*+[\]}}]"
# possessive: a long text takes no stack
_BEFORE_FRACTION = (
    rf'"(?:data|old)"\s*+:\s*+\[|{_STRING}|:\s*+{_CONTAINER}|:(?!\s*+[\[{{])|[^":0-9-]|-?+[0-9]++(?![.eE])'
)
_FRACTION = rf"(?s)\G((?:{_BEFORE_FRACTION})*+)(-?+[0-9]++[0-9.eE+-]++)"


def fractions_as_text(text: Column) -> Column:
    """The JSON message with each number of a row that has a fraction or an exponent as a string, null if it has none.

    Spark reads such a number as a double, also where the schema has a string. Numbers inside values of a row stay.
    """
    return F.when(text.rlike(r":\s*+-?+[0-9]++[.eE]"), F.regexp_replace(text, _FRACTION, '$1"$2"'))


def with_end_mark(value: Column) -> Column:
    """The JSON object of binary `value` as text, with `END_MARK: true` appended as its last field.

    Spark's parser stops after the first object and ignores the rest. The parsed object has the mark only if it ends where
    the value ends (trailing white space ignored). Null for a value that does not end in `}`.
    """
    ends = F.when(F.endswith(value, F.lit(b"}")), value).otherwise(
        F.rtrim(value.cast("string"), F.lit(" \t\r\n")).cast("binary")
    )
    body = F.substring(ends, F.lit(1), F.octet_length(ends) - 1)
    marked = F.concat(body, F.lit(f',"{END_MARK}":true}}'.encode())).cast("string")
    return F.when(F.endswith(ends, F.lit(b"}")), marked)


def has_unpaired_surrogate(text: Column) -> Column:
    """Whether the JSON text has an escape that is half of a surrogate pair."""
    # a cheap search first: almost no message has such an escape
    return (text.contains("\\ud") | text.contains("\\uD")) & text.rlike(_LONE_SURROGATE)
