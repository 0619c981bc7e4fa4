"""Normalized text of the values that a mirror stores as text: TIME, DECIMAL with more than 38 digits, and JSON.

The input is the text of a message. A value with more digits than its column becomes NULL: the text was written under
another definition. Conversions that round as MySQL does are in `expressions.texts`.

JSON is validated, and what early versions of Canal print wrongly is repaired. Spark has no function that accepts exactly
JSON (RFC 8259): `try_parse_json` accepts text after the document and rejects duplicate names, `get_json_object` and
`json_object_keys` accept single quotes. So the document is parsed as a part of a larger one, with Spark's strict options,
and is never built.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

MOST_DIGITS = 1000
"""Maximum characters of a number; no encoder writes as many."""
MOST_TIME = 838 * 3600 + 59 * 60 + 59
"""The maximum TIME in seconds."""
_HOURS = r"(?:\d\d|[1-7]\d\d|8[0-2]\d|83[0-8])"
_TIME = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d(?:\.\d{{1,6}})?\z"
TIME_PARTS = "^(-?)(\\d{1,3}):([0-5]\\d):([0-5]\\d)(?:\\.(\\d{1,6}))?\\z"
NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)\z"
_FLOATING = r"^[+-]?(\d+)(?:\.(\d*))?(?:[eE]([+-]?\d{1,3}))?\z"


def time_text(text: Column, digits: int | None) -> Column:
    """The text of a TIME(digits); not normalized if `digits` is None (unknown). NULL for text that is not a TIME."""
    read = F.when(text.rlike(_TIME), text)
    if digits is None:
        return read
    whole = F.substring_index(read, ".", 1)
    fraction = F.when(F.contains(read, F.lit(".")), F.substring_index(read, ".", -1)).otherwise(F.lit(""))
    tail = F.concat(F.lit("."), F.rpad(fraction, digits, "0")) if digits else F.lit("")
    normalized = F.concat(whole, tail)
    normalized = F.when(normalized.rlike(r"^-[0:.]+\z"), F.substring(normalized, 2, 99)).otherwise(normalized)
    normalized = F.when(F.substring(fraction, digits + 1, 6).rlike(r"^0*\z"), normalized)
    usual = rf"^-?{_HOURS}:[0-5]\d:[0-5]\d" + (rf"\.\d{{{digits}}}\z" if digits else r"\z")
    return F.when(text.rlike(usual) & ~text.startswith("-0"), text).otherwise(normalized)


def decimal_text(text: Column, digits: int, scale: int) -> Column:
    """The text of a DECIMAL(digits, scale) as MySQL prints it; NULL for text that is not such a number."""
    short = F.when(F.length(text) <= MOST_DIGITS, text)
    read = F.regexp_replace(F.when(short.rlike(NUMBER), short), r"^\+", "")
    whole = F.regexp_replace(F.substring_index(F.regexp_replace(read, "^-", ""), ".", 1), r"^0+", "")
    fraction = F.when(F.contains(read, F.lit(".")), F.substring_index(read, ".", -1)).otherwise(F.lit(""))
    shown = F.when(whole == "", F.lit("0")).otherwise(whole)
    if scale:
        shown = F.concat(shown, F.lit("."), F.rpad(fraction, scale, "0"))
    shown = F.when(read.startswith("-") & shown.rlike("[1-9]"), F.concat(F.lit("-"), shown)).otherwise(shown)
    fits = F.substring(fraction, scale + 1, MOST_DIGITS).rlike(r"^0*\z") & (F.length(whole) <= digits - scale)
    return F.when(fits, shown)


def decimal_text_of_double(text: Column, digits: int, scale: int) -> Column:
    """The text of the DECIMAL(digits, scale) nearest to a double, whose text may have an exponent."""
    near = text.try_cast(f"decimal(38,{scale})").cast("string")
    groups = [F.regexp_extract(F.when(F.length(text) <= MOST_DIGITS, text), _FLOATING, group) for group in (1, 2, 3)]
    written, point = (
        F.concat(groups[0], groups[1]),
        F.length(groups[0]) + F.coalesce(groups[2].try_cast("int"), F.lit(0)),
    )
    # used only for numbers of more than 38 digits, which have no fraction
    plain = F.when(point >= F.length(written), F.rpad(written, point, "0"))
    signed = F.when(text.startswith("-"), F.concat(F.lit("-"), plain)).otherwise(plain)
    return decimal_text(F.coalesce(near, signed), digits, scale)


_MARK = f"_end_{secrets.token_hex(8)}"
"""Name of the last field of the parsed text. It is random per process, so that no document can contain it."""
_NO_LIMIT = str(2**31 - 1)
_OPTIONS = {
    "mode": "PERMISSIVE",
    # standard JSON: by default Spark also accepts 'x' and NaN
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "maxStringLen": _NO_LIMIT,
    "maxNumLen": _NO_LIMIT,
    "maxNestingDepth": _NO_LIMIT,
}
_LONG_NAME = r'"[^"]{50001,}"\s*:'
"""The name of a member that is too long for Spark's parser. MySQL allows 65,535 bytes."""
_CONTROL_CHARACTERS = [chr(code) for code in range(32)]
# an escape and a control character: no encoder prints it, and the repair would read it as an escaped backslash
_ESCAPED_CONTROL = r"\\[\x00-\x1f]"


def is_document(text: Column) -> Column:
    """A boolean column: whether the text is one JSON document. False for NULL.

    A document with a member name that Spark's parser cannot read is accepted unread.
    """
    return _is_one_object(text) | _is_one_value(text) | F.coalesce(text.rlike(_LONG_NAME), F.lit(False))


def document(text: Column) -> Column:
    """The text as sent if it is JSON, repaired if it has one certain reading, else NULL.

    Known defects: Canal prints a value of length zero, which MySQL reads as the JSON value null, as empty text (all
    versions); null as NULL (up to 1.1.3); control characters without an escape (up to 1.1.4).
    """
    return F.when(is_document(text), text).when(text == "", F.lit("null")).otherwise(_bound(text, _repaired))


def _is_one_object(text: Column) -> Column:
    """Whether the text is an object with members: the mark is a member of it only if it ends where the text ends."""
    marked = F.concat(F.substring(text, F.lit(1), F.length(text) - 1), F.lit(f',"{_MARK}":true}}'))
    return _has_mark(F.when(F.endswith(text, F.lit("}")), marked))


def _is_one_value(text: Column) -> Column:
    """Whether the text is any one value. It is the element of an array, then the value of a member.

    Only one value without other text is valid as both: after a comma, an array needs a value and an object a name.
    """
    return _has_mark(F.concat(F.lit('{"a":['), text, F.lit('],"b":{"c":'), text, F.lit(f'}},"{_MARK}":true}}')))


def _has_mark(text: Column) -> Column:
    return F.coalesce(F.from_json(text, f"`{_MARK}` BOOLEAN", _OPTIONS)[_MARK], F.lit(False))


def _repaired(text: Column) -> Column:
    """The text with `null` for NULL outside strings, and escapes for control characters inside strings; NULL if that is
    not JSON.

    Quotes divide the text into parts: each second one is the content of a string. So `\\\\` and `\\"` become other escapes
    before, and again themselves after.
    """

    def repaired_part(part: Column, index: Column) -> Column:
        escaped = part
        for character in _CONTROL_CHARACTERS:
            escaped = F.replace(escaped, F.lit(character), F.lit(json.dumps(character)[1:-1]))
        return F.when(index % 2 == 1, escaped).otherwise(F.replace(part, F.lit("NULL"), F.lit("null")))

    single = F.replace(F.replace(text, F.lit("\\\\"), F.lit("\\u005c")), F.lit('\\"'), F.lit("\\u0022"))
    parts = F.transform(F.split(F.when(~single.rlike(_ESCAPED_CONTROL), single), '"'), repaired_part)
    joined = F.replace(F.array_join(parts, '"'), F.lit("\\u005c"), F.lit("\\\\"))
    repaired = F.replace(joined, F.lit("\\u0022"), F.lit('\\"'))
    return _bound(repaired, lambda found: F.when(is_document(found), found))


def _bound(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use(value)`, evaluating `value` once however often `use` mentions it."""
    return F.get(F.transform(F.array(value), use), F.lit(0))
