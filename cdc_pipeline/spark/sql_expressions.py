"""Parses and checks the Spark SQL expressions of computed columns, without a JVM.

An expression keeps its text. Only its column names are replaced to evaluate it, so Spark evaluates what the user wrote.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from cdc_pipeline.spark.sql_functions import NOT_FUNCTIONS, SCALAR_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot.tokenizer_core import Token

_REFUSED: tuple[tuple[type, str], ...] = (
    (exp.Query, "a subquery"),
    (exp.Window, "a window function"),
    (exp.Star, "a star"),
    (exp.Alias, "an alias"),
    (exp.Aliases, "an alias"),
    (exp.Filter, "an aggregate"),
    (exp.AggFunc, "an aggregate"),
    (exp.Placeholder, "a parameter"),
    (exp.Parameter, "a parameter"),
    (exp.SessionParameter, "a parameter"),
)
_CURRENT_VALUES = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentUser, exp.CurrentRole, exp.SessionUser)
_CURRENT_TIME_KEYWORDS = frozenset({"current_time", "localtimestamp"})
_RELATIVE_TIMES = frozenset({"now", "today", "tomorrow", "yesterday"})
_TIME_TYPES = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})
_CURRENT_WITHOUT_ARGUMENTS = frozenset({"unix_timestamp"})
"""Functions that return the current time if called without arguments."""


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

    Raises SparkExpressionError if the text is not exactly one expression, or if its value depends on more than one row, on
    chance, on the time or on the session.
    """
    dialect = Spark()
    try:
        tokens = dialect.tokenize(text)
        trees = dialect.parser().parse(tokens, text)
    except SqlglotError as error:
        raise SparkExpressionError(f"{text!r} cannot be parsed as a Spark SQL expression: {_message(error)}") from None
    if len(trees) != 1 or trees[0] is None or any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise SparkExpressionError(f"{text!r} is not one Spark SQL expression; expected one such as price * quantity")
    _check_tokens(text, tokens)
    tree = trees[0]
    for node in tree.walk():
        if isinstance(node, _CURRENT_VALUES):
            raise SparkExpressionError(f"{text!r} depends on the current time or session; use columns of the row")
        for kind, what in _REFUSED:
            if isinstance(node, kind):
                raise SparkExpressionError(f"{text!r} contains {what}; use columns of the row and functions of them")
    if not isinstance(tree, exp.Condition):
        raise SparkExpressionError(f"{text!r} is not a Spark SQL expression; expected one such as price * quantity")
    references = sorted((_reference(text, column) for column in tree.find_all(exp.Column)), key=lambda at: at.start)
    return SparkExpression(text, tuple(references))


def _check_tokens(text: str, tokens: Sequence[Token]) -> None:
    for index, token in enumerate(tokens):
        following = tokens[index + 1 :]
        word = token.text.casefold()
        if token.comments:
            raise SparkExpressionError(f"{text!r} contains a comment; remove it")
        if not following:
            break
        is_time = word in _TIME_TYPES and following[0].token_type == TokenType.STRING
        if is_time and following[0].text.strip().casefold() in _RELATIVE_TIMES:
            raise SparkExpressionError(f"{text!r}: {following[0].text!r} depends on the current time")
        if following[0].token_type != TokenType.L_PAREN or not (word[:1].isalpha() or word.startswith("_")):
            continue
        if token.token_type == TokenType.STRING or (word in NOT_FUNCTIONS and token.token_type != TokenType.IDENTIFIER):
            continue
        if word not in SCALAR_FUNCTIONS:
            raise SparkExpressionError(
                f"{text!r}: {token.text} is not an allowed function; use Spark's built-in deterministic functions of one "
                "row (no aggregates, nothing that depends on chance, time or session)"
            )
        if word in _CURRENT_WITHOUT_ARGUMENTS and following[1:] and following[1].token_type == TokenType.R_PAREN:
            raise SparkExpressionError(f"{text!r}: {token.text}() depends on the current time; pass it a value")


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
    if not name.quoted and written.casefold() in _CURRENT_TIME_KEYWORDS:
        raise SparkExpressionError(
            f"{text!r}: {written} depends on the current time; put a column of this name in backticks"
        )
    return Reference(written, start, end + 1)


def _message(error: SqlglotError) -> str:
    """The error's message without its excerpt of the text, which has terminal colors."""
    return str(error).split("\n")[0].split(". Line ")[0].rstrip(".")
