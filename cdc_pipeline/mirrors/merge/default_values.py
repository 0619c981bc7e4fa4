"""The value that ADD COLUMN gives to existing rows.

A default is converted as the text of a message, if it is spelled as MySQL and TiDB print it: `'2024-01-02 03:04:05'`, not
`240102030405`, and a label in its own case. Only a DECIMAL is rounded. Other spellings raise ValueError, so that the column
is NULL in older rows, with a gap. Expressions are translated (`mysql.expressions`).
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Context, Decimal

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from cdc_pipeline.mysql.expressions.translation import Now, translate_assignment
from cdc_pipeline.mysql.model.limits import shortened
from cdc_pipeline.mysql.model.table import TEXT_TYPES, Column, Default, MySqlType, TableSchema
from cdc_pipeline.mysql.types.charsets import WIDE, charset_of_column
from cdc_pipeline.mysql.types.local_times import times_shown
from cdc_pipeline.mysql.types.spark_types import DATES, GEOMETRIES, integer_range, parse_value, spark_type

_ZEROS = {
    "date": "0000-00-00",
    **dict.fromkeys(("datetime", "timestamp"), "0000-00-00 00:00:00"),
    "time": "00:00:00",
    "year": "0000",
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "bit", "decimal", "float", "double"), "0"),
}
"""The number 0 as text of a message."""
_DECIMAL = re.compile(r"[+-]?(?:\d{1,99}(?:\.\d{0,99})?|\.\d{1,99})", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", re.ASCII)
_NUMBER_AS_TEXT = re.compile(r"(?:0|-?[1-9]\d*)(?:\.\d+)?", re.ASCII)


def default_value(
    column: Column, schema: TableSchema, time_zone: str, now: Now | None = None, shown: TableSchema | None = None
) -> tuple[SparkColumn | None, SparkColumn | None]:
    """The default as a typed value (None for NULL), and a boolean that is true where upstream's may differ (None: nowhere).

    A NOT NULL column without a default gets its type's zero (ticdc-facts §10).

    `schema`: the table. `shown`: its columns that an expression may read; None: all.
    `time_zone`: zone of the encoder. `now`: time of the statement that adds the column; None: the default is constant.

    Raises ValueError if the value is unknown.
    """
    default = column.default
    if default is not None and default.kind == "expression" and default.value is not None:
        found = translate_assignment(default.value, column, shown or schema, time_zone, now)
        return F.expr(found.sql), None if found.doubtful is None else F.expr(found.doubtful)
    if now is not None and now.is_start and _may_be_current_time(column, schema):
        return F.lit(None).cast("timestamp"), F.lit(True)
    if column.auto_increment:
        raise ValueError("upstream numbers existing rows in an order that no message contains")
    if default is None:
        return None if column.nullable else _zero(column.type, time_zone), None
    return None if default.value is None else _literal(default, default.value, column.type, schema, time_zone), None


def _may_be_current_time(column: Column, schema: TableSchema) -> bool:
    """Whether the column has the current time as default if `explicit_defaults_for_timestamp` is off.

    It is off by default before MySQL 8.0 and MariaDB 10.10. The column is the table's first TIMESTAMP, without a default.
    """
    first = next((other for other in schema.columns if other.type.base == "timestamp"), column)
    return column.default is None and column.type.base == "timestamp" and first.name == column.name


def _zero(kind: MySqlType, time_zone: str) -> SparkColumn | None:
    """The value of a NOT NULL column without a default."""
    if kind.base in DATES:
        return None  # the zero date, which a mirror stores as NULL
    if kind.base == "enum" and kind.members:
        return F.lit(kind.members[0])
    if kind.base == "set" or kind.base in TEXT_TYPES:
        return F.lit("")
    if kind.base == "json":
        return F.lit("null")  # the JSON value null, not SQL NULL
    if kind.base in _ZEROS:
        return parse_value(F.lit(_ZEROS[kind.base]), kind, time_zone)
    if isinstance(spark_type(kind), BinaryType) and kind.base not in GEOMETRIES:
        return _padded(kind, b"")
    raise ValueError(f"{kind} has no known zero value")


def _literal(default: Default, text: str, kind: MySqlType, schema: TableSchema, time_zone: str) -> SparkColumn | None:
    base, is_number = kind.base, default.kind != "literal"
    if isinstance(spark_type(kind), BinaryType) and default.kind in ("literal", "hex"):
        return _padded(kind, text.encode() if default.kind == "literal" else bytes.fromhex(text))
    if base in ("enum", "set") and default.kind == "literal":
        labels = [text] if base == "enum" else text.split(",") if text else []
        if not set(labels) <= set(kind.members):
            raise _not_printed(kind, text)
        return F.lit(",".join(label for label in kind.members if label in labels))
    if default.kind in ("bits", "hex"):
        text, is_number = _of_binary_string(default.kind, text, kind, schema), base not in TEXT_TYPES
    if is_number and text == "0":
        text = _ZEROS.get(base, text)
    elif base == "decimal" and _DECIMAL.fullmatch(text):
        places = Decimal(1).scaleb(-_digits_and_scale(kind)[1])
        text = f"{Decimal(text).quantize(places, ROUND_HALF_UP, Context(prec=200)):f}"
    if not _is_printed(kind, text, is_number=is_number):
        raise _not_printed(kind, text)
    if base in DATES and (text.startswith("0000") or "-00" in text[:10]):
        return None
    if base in ("datetime", "timestamp") and len(text) == len("2024-01-02"):
        text += " 00:00:00"
    if base == "timestamp" and (doubt := times_shown(text, time_zone)) is not None:
        raise ValueError(f"its default {text!r} is a local time that {time_zone} shows {doubt}")
    return parse_value(F.lit(text), kind, time_zone)


def _of_binary_string(form: str, digits: str, kind: MySqlType, schema: TableSchema) -> str:
    """A bit or hex literal as text: of its bytes in a column of text, else of its number."""
    bits = 1 if form == "bits" else 4
    number = int(digits or "0", 2**bits)
    if kind.base not in TEXT_TYPES:
        return str(number)
    charset = charset_of_column(kind, schema.charset) or ""
    try:
        text = number.to_bytes((len(digits) * bits + 7) // 8, "big").decode()
    except UnicodeDecodeError:
        raise _not_printed(kind, digits) from None
    if charset.startswith("utf8") or (text.isascii() and charset not in WIDE):
        return text
    raise _not_printed(kind, digits)


def _is_printed(kind: MySqlType, text: str, *, is_number: bool) -> bool:
    """Whether a message could have this text as a value of the column, without a change of the value."""
    base, params = kind.base, kind.params
    day, clock = r"\d{4}-(?:0\d|1[0-2])-(?:[0-2]\d|3[01])", r"[0-5]\d:[0-5]\d"
    if base in ("datetime", "timestamp", "time") and params and params[0]:
        clock += rf"(?:\.\d{{1,{params[0]}}})?"
    if (limits := integer_range(kind)) is not None:
        # a string is bytes to BIT
        is_integer = re.fullmatch(r"[+-]?\d{1,20}", text, re.ASCII) is not None and (base != "bit" or is_number)
        return is_integer and limits[0] <= int(text) <= limits[1]
    if base == "decimal" or (base in ("float", "double") and len(params) > 1):
        digits, scale = _digits_and_scale(kind)
        fits = len(text.partition(".")[2]) <= scale
        return fits and _DECIMAL.fullmatch(text) is not None and Decimal(text).copy_abs() < 10 ** (digits - scale)
    patterns = {
        "year": r"\d{4}",
        "date": day,
        **dict.fromkeys(("datetime", "timestamp"), rf"{day}(?: (?:[01]\d|2[0-3]):{clock})?"),
        "time": rf"-?(?:\d\d|[1-7]\d\d|8[0-2]\d|83[0-8]):{clock}",
        **dict.fromkeys(("float", "double"), _FLOAT.pattern),
    }
    if base in patterns:
        return re.fullmatch(patterns[base], text, re.ASCII) is not None
    if base in TEXT_TYPES:
        return not is_number or _NUMBER_AS_TEXT.fullmatch(text) is not None
    return base == "json" and not is_number  # MariaDB's JSON is a LONGTEXT; MySQL and TiDB take no literal


def _digits_and_scale(kind: MySqlType) -> tuple[int, int]:
    return kind.params[0] if kind.params else 10, kind.params[1] if len(kind.params) > 1 else 0


def _padded(kind: MySqlType, data: bytes) -> SparkColumn:
    if kind.base in GEOMETRIES:
        raise ValueError(f"{kind} takes no default")
    size = (kind.params[0] if kind.params else 1) if kind.base == "binary" else len(data)
    return F.lit(data.ljust(size, b"\0"))


def _not_printed(kind: MySqlType, text: str) -> ValueError:
    return ValueError(f"its default {shortened(text)!r} is not a {shortened(str(kind))} as messages print it")
