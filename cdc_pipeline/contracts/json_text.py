"""What Spark's JSON parser lets pass in silence, and how to see it: text after an object, and halves of characters."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.limits import NESTING

if TYPE_CHECKING:
    from pyspark.sql import Column

END_MARK = f"_end_{secrets.token_hex(8)}"
"""The boolean field to ask for, besides those that are wanted, when a value `with_end_mark` is parsed.

Its name is another in each process: a message that has the field itself would pass for whole whatever follows it.
"""

OPTIONS = {
    "mode": "PERMISSIVE",
    # JSON as its standard has it: Spark's own default also reads 'x' and NaN
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    # the parser's own limit is below what a 64 MB LONGTEXT needs
    "maxStringLen": str(2**31 - 1),
    "maxNestingDepth": str(NESTING),
}

# Half of a surrogate pair as an escape: no character. Spark would read it as `?`.
_LONE_SURROGATE = r"(?<!\\)(?:\\\\)*+\\u[dD](?:[89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u[dD])[c-fC-F])"


def with_end_mark(value: Column) -> Column:
    """The JSON object of binary `value` as text with `END_MARK` true as its last field.

    The parser stops after one object, whatever follows it: a second object in the same value would be lost. Only
    where the object goes to the end of the value, white space aside, does it have the mark. Null for a value that does
    not end as an object does.
    """
    ends = F.when(F.endswith(value, F.lit(b"}")), value).otherwise(
        F.rtrim(value.cast("string"), F.lit(" \t\r\n")).cast("binary")
    )
    body = F.substring(ends, F.lit(1), F.octet_length(ends) - 1)
    marked = F.concat(body, F.lit(f',"{END_MARK}":true}}'.encode())).cast("string")
    return F.when(F.endswith(ends, F.lit(b"}")), marked)


def has_half_a_character(text: Column) -> Column:
    """Whether an escape in the JSON text is one half of a surrogate pair without the other."""
    # the plain search is for speed: next to no message has such an escape
    return (text.contains("\\ud") | text.contains("\\uD")) & text.rlike(_LONE_SURROGATE)
