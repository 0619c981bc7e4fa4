"""Parses the Spark SQL expressions and type names of a pipeline's YAML file, without a JVM.

An expression keeps its text. Only its column names are replaced to evaluate it, so Spark evaluates what the user wrote.
`jvm.nondeterminism` checks what it computes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from pyspark.sql import types as T
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from cdc_pipeline.mysql.types.spark_types import MAX_DECIMAL_DIGITS

_REFUSED = (exp.Query, exp.Star, exp.Alias, exp.Aliases, exp.Placeholder, exp.Parameter, exp.SessionParameter)
_EXPECTED = "expected one such as price * quantity, of columns of the row"
_TIME_TYPES = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})
_REFUSED_CALLS = frozenset({"aes_encrypt", "identifier", "version"})
"""What Spark takes for deterministic and is not: random bytes by default, a column named by a string, Spark's version."""


class SparkExpressionError(ValueError):
    """The text is not an expression that a computed column may have."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A column name in an expression."""

    name: str
    """Without backticks."""
    start: int
    end: int
    """The name is `text[start:end]`, backticks included."""


@dataclass(frozen=True, slots=True)
class SparkExpression:
    """A checked expression."""

    text: str
    references: tuple[Reference, ...]
    """In the order of the text."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """The distinct column names, as written."""
        return tuple(dict.fromkeys(reference.name for reference in self.references))

    def missing_columns(self, columns: Sequence[str]) -> list[str]:
        """The column names of the expression that are not among `columns`, ignoring case."""
        known = {column.casefold() for column in columns}
        return [name for name in self.column_names if name.casefold() not in known]

    def to_sql(self, cells: Mapping[str, str]) -> str | None:
        """The text with each column name replaced by its SQL in `cells`; None if `cells` lacks a column."""
        values = {column.casefold(): cell for column, cell in cells.items()}
        if self.missing_columns(tuple(cells)):
            return None
        parts, end = [], 0
        for reference in self.references:
            parts += [self.text[end : reference.start], f"({values[reference.name.casefold()]})"]
            end = reference.end
        return "".join([*parts, self.text[end:]])


@functools.lru_cache(maxsize=1024)
def parse_spark_expression(text: str) -> SparkExpression:
    """Parses an expression.

    Raises SparkExpressionError if the text is not exactly one expression without subquery, star, alias and parameter, or
    if its value depends on the time in a way that Spark's analyzer does not show.
    """
    dialect = Spark()
    try:
        tokens = dialect.tokenize(text)
        trees = dialect.parser().parse(tokens, text)
    except SqlglotError as error:
        raise SparkExpressionError(f"{text!r} cannot be parsed as a Spark SQL expression: {_message(error)}") from None
    is_more = any(token.comments or token.token_type == TokenType.SEMICOLON for token in tokens)
    if is_more or len(trees) != 1 or trees[0] is None:
        raise SparkExpressionError(f"{text!r} is not one Spark SQL expression without comments; {_EXPECTED}")
    tree = trees[0]
    if tree.find(*_REFUSED):
        raise SparkExpressionError(f"{text!r} contains a subquery, a star, an alias or a parameter; {_EXPECTED}")
    if not isinstance(tree, exp.Condition):
        raise SparkExpressionError(f"{text!r} is not a Spark SQL expression; {_EXPECTED}")
    _check_tokens(text, tokens)
    references = sorted((_reference(text, column) for column in tree.find_all(exp.Column)), key=lambda at: at.start)
    return SparkExpression(text, tuple(references))


def _check_tokens(text: str, tokens: Sequence[Token]) -> None:
    for token, following in pairwise(tokens):
        word = token.text.casefold()
        if word in _REFUSED_CALLS and following.token_type == TokenType.L_PAREN:
            raise SparkExpressionError(
                f"{text!r} calls {word}, whose result may differ in a rebuild; use another function"
            )
        # Spark's parser replaces date'today' by the date
        is_time = word in _TIME_TYPES and following.token_type == TokenType.STRING
        if is_time and not following.text.strip().lstrip("+-")[:1].isdigit():
            raise SparkExpressionError(
                f"{text!r}: {following.text!r} is not a date; expected one that begins with digits"
            )


def _reference(text: str, column: exp.Column) -> Reference:
    name = column.this
    if len(column.parts) > 1 or not isinstance(name, exp.Identifier):
        raise SparkExpressionError(
            f"{text!r}: {column.sql('spark')} is not a column name; expected a name without a dot"
        )
    start, end = name.meta.get("start"), name.meta.get("end")
    written = "" if start is None or end is None else text[start : end + 1]
    if name.quoted:
        written = written.removeprefix("`").removesuffix("`").replace("``", "`")
    if start is None or end is None or written != name.name:
        raise SparkExpressionError(f"{text!r}: cannot locate the column {name.name} in the text")
    return Reference(written, start, end + 1)


def _message(error: SqlglotError) -> str:
    """The error's message without its excerpt of the text, which has terminal colors."""
    return str(error).split("\n")[0].split(". Line ")[0].rstrip(".")


_KINDS: tuple[type[T.DataType], ...] = (
    *(T.BooleanType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType, T.DecimalType),
    *(T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
)
_TYPES = {name: kind() for kind in _KINDS for name in (kind.typeName(), kind().simpleString())}
_DECIMAL = re.compile(r"(?:decimal|dec|numeric)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_ARRAY = re.compile(r"array\s*<\s*(.+)\s*>", re.DOTALL)
_EXPECTED_TYPES = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), string, binary, date, timestamp, timestamp_ntz, "
    "or array<…> of one"
)


def parse_spark_type(text: str) -> T.DataType:
    """The type of a case-insensitive name. Raises ValueError if it is unknown or not allowed for a column."""
    name = text.strip().lower()
    if array := _ARRAY.fullmatch(name):
        return T.ArrayType(parse_spark_type(array[1]))
    if digits := _DECIMAL.fullmatch(name):
        precision, scale = int(digits[1]), int(digits[2] or 0)
        if scale <= precision and 0 < precision <= MAX_DECIMAL_DIGITS:
            return T.DecimalType(precision, scale)
    elif name in _TYPES:
        return _TYPES[name]
    raise ValueError(f"{text!r} is not a Spark SQL type for a column; expected {_EXPECTED_TYPES}")
