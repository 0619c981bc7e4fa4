"""Expressions of Spark SQL over the columns of one row, as a pipeline's file has them.

They are read here, without a JVM, and stay the text that they are: only the names of columns in it are put in for
something else when it is evaluated, so that Spark sees what was written.
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
_OF_THE_MOMENT = (exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentUser, exp.CurrentRole, exp.SessionUser)
_MOMENTS = frozenset({"current_time", "localtimestamp"})
_SPECIAL_TIMES = frozenset({"now", "today", "tomorrow", "yesterday"})
_TIMES = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})
_NO_ARGUMENTS = frozenset({"unix_timestamp"})
"""Functions that are of the moment when they are called with nothing."""


class SparkExpressionError(ValueError):
    """A text is no expression that a computed column can have."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A column's name in the text, and where it stands there."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SparkExpression:
    """`references` are the columns' names in the order in which they stand in `text`."""

    text: str
    references: tuple[Reference, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, each once, as they are written."""
        return tuple(dict.fromkeys(reference.name for reference in self.references))

    def missing(self, columns: Sequence[str]) -> list[str]:
        """The names that are none of these columns'. Case does not count."""
        there = {column.casefold() for column in columns}
        return [name for name in self.names if name.casefold() not in there]

    def over(self, cells: Mapping[str, str]) -> str | None:
        """The text with the SQL of `cells`, by column, in the place of the names; None where one is not there."""
        values = {column.casefold(): cell for column, cell in cells.items()}
        if self.missing(tuple(cells)):
            return None
        parts, place = [], 0
        for reference in self.references:
            parts += [self.text[place : reference.start], f"({values[reference.name.casefold()]})"]
            place = reference.end
        return "".join([*parts, self.text[place:]])


@functools.lru_cache(maxsize=1024)
def spark_expression(text: str) -> SparkExpression:
    """The expression. Raises SparkExpressionError where the text is not exactly one, or where its value may be another at
    another time or is not of one row alone."""
    dialect = Spark()
    try:
        tokens = dialect.tokenize(text)
        found = dialect.parser().parse(tokens, text)
    except SqlglotError as error:
        raise SparkExpressionError(f"{text!r} cannot be read as an expression of Spark SQL: {_words(error)}") from None
    if len(found) != 1 or found[0] is None or any(token.token_type == TokenType.SEMICOLON for token in tokens):
        raise SparkExpressionError(f"{text!r} is not one expression of Spark SQL: price * quantity, say, is expected")
    _check_tokens(text, tokens)
    tree = found[0]
    for node in tree.walk():
        if isinstance(node, _OF_THE_MOMENT):
            raise SparkExpressionError(f"{text!r} is of the moment or of the session: columns of the row are expected")
        for kind, what in _REFUSED:
            if isinstance(node, kind):
                raise SparkExpressionError(
                    f"{text!r} has {what}: columns of the row and functions of them are expected"
                )
    if not isinstance(tree, exp.Condition):
        raise SparkExpressionError(f"{text!r} is no expression of Spark SQL: price * quantity, say, is expected")
    references = sorted((_reference(text, column) for column in tree.find_all(exp.Column)), key=lambda at: at.start)
    return SparkExpression(text, tuple(references))


def _check_tokens(text: str, tokens: Sequence[Token]) -> None:
    for place, token in enumerate(tokens):
        following = tokens[place + 1 :]
        word = token.text.casefold()
        if token.comments:
            raise SparkExpressionError(f"{text!r} has a comment, which has no place there")
        if not following:
            break
        is_time = word in _TIMES and following[0].token_type == TokenType.STRING
        if is_time and following[0].text.strip().casefold() in _SPECIAL_TIMES:
            raise SparkExpressionError(f"{text!r}: {following[0].text!r} is of the moment")
        if following[0].token_type != TokenType.L_PAREN or not (word[:1].isalpha() or word.startswith("_")):
            continue
        if token.token_type == TokenType.STRING or (word in NOT_FUNCTIONS and token.token_type != TokenType.IDENTIFIER):
            continue
        if word not in SCALAR_FUNCTIONS:
            raise SparkExpressionError(
                f"{text!r}: {token.text} is no function that can be called here: one of Spark's own is expected which is "
                "of one row and the same of the same values (no aggregate, nothing random or of the moment)"
            )
        if word in _NO_ARGUMENTS and following[1:] and following[1].token_type == TokenType.R_PAREN:
            raise SparkExpressionError(f"{text!r}: {token.text}() is of the moment")


def _reference(text: str, column: exp.Column) -> Reference:
    name = column.this
    if len(column.parts) > 1 or not isinstance(name, exp.Identifier):
        raise SparkExpressionError(
            f"{text!r}: {column.sql('spark')} is no name of a column: one without a dot is expected"
        )
    start, end = name.meta.get("start"), name.meta.get("end")
    written = "" if start is None or end is None else text[start : end + 1]
    if name.quoted:
        written = written.removeprefix("`").removesuffix("`").replace("``", "`")
    if start is None or end is None or written != name.name:
        raise SparkExpressionError(f"{text!r}: where the column {name.name} stands in it cannot be told")
    if not name.quoted and written.casefold() in _MOMENTS:
        raise SparkExpressionError(f"{text!r}: {written} is of the moment (in back-ticks it is a column)")
    return Reference(written, start, end + 1)


def _words(error: SqlglotError) -> str:
    """What is wrong, without the text again and without the colours of a terminal."""
    return str(error).split("\n")[0].split(". Line ")[0].rstrip(".")
