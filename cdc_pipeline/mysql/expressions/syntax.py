"""The syntax tree of a MySQL expression: sqlglot's, without what sqlglot reads otherwise than MySQL.

Literals are read by `ddl_tokens` and stand as marks in the text that sqlglot parses. Functions keep MySQL's names and
arguments: the dialect's own table of functions, which rewrites `TO_DAYS` and turns formats into Python's, is left out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind
from cdc_pipeline.mysql.expressions.values import (
    ExpressionError,
    Value,
    bytes_literal,
    integer_literal,
    text_literal,
)
from cdc_pipeline.mysql.model.quoted_names import quoted

if TYPE_CHECKING:
    from collections.abc import Callable

    from cdc_pipeline.mysql.ddl.tokens import Token

_SPECIAL = ("CAST", "CONVERT", "EXTRACT", "TRIM", "SUBSTRING")
"""Functions with keywords between their arguments."""
_UTF8_INTRODUCERS = frozenset({"_UTF8MB4", "_UTF8MB3", "_UTF8"})
_MARK = re.compile(r"mark(\d+)")
_REFUSED_SYMBOLS = frozenset({"@", "@@", ":=", "::", "?", ":", "[", "]", "{", "}", ";", "=>"})


class _Dialect(MySQL):
    class Parser(MySQLParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parser for name, parser in MySQLParser.FUNCTION_PARSERS.items() if name in _SPECIAL
        }


class Syntax:
    """A parsed expression: `tree`, and `literal` for the nodes that stand for literals.

    Raises ExpressionError where the text is no expression.
    """

    def __init__(self, text: str) -> None:
        self._literals: list[Value] = []
        # Brackets keep sqlglot from taking a leading REPLACE for a statement.
        marked = f"({self._marked(text)})"
        try:
            trees = _Dialect().parse(marked)
        except (SqlglotError, RecursionError) as error:
            raise ExpressionError(f"no expression that can be read: {_short(text)}") from error
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, exp.Paren):
            raise ExpressionError(f"no single expression: {_short(text)}")
        self.tree: exp.Expr = tree

    def literal(self, node: exp.Expr) -> Value | None:
        """The string, bits or hex literal that a node stands for; None for other nodes."""
        if not (isinstance(node, exp.Literal) and node.is_string):
            return None
        return self.marked_literal(node.name)

    def marked_literal(self, text: str) -> Value | None:
        """The literal that a mark stands for; None for other text."""
        found = _MARK.fullmatch(text)
        return None if found is None else self._literals[int(found[1])]

    def _marked(self, text: str) -> str:
        try:
            cursor = Cursor(text)
            if cursor.text != text:
                raise ExpressionError(f"a comment inside of an expression: {_short(text)}")
            parts: list[str] = []
            while not cursor.done:
                parts.append(self._next(cursor))
        except DdlSyntaxError as error:
            raise ExpressionError(f"cannot be read: {error}") from error
        return " ".join(parts)

    def _next(self, cursor: Cursor) -> str:
        introducer = _introducer(cursor)
        token = cursor.peek()
        assert token is not None  # an introducer is one only before a literal
        if token.kind is Kind.STRING:
            return self._mark(_text(cursor.string(), introducer))
        cursor.skip()
        if token.kind in (Kind.BITS, Kind.HEX):
            return self._mark(_bits(token, introducer))
        if token.kind is Kind.QUOTED:
            return quoted(token.text)
        if token.kind is Kind.SYMBOL and token.text in _REFUSED_SYMBOLS:
            raise ExpressionError(f"`{token.text}`: no part of an expression here")
        return token.text

    def _mark(self, value: Value) -> str:
        self._literals.append(value)
        return f"'mark{len(self._literals) - 1}'"


def _introducer(cursor: Cursor) -> str | None:
    """The upper-case character set before a literal, which is read past."""
    token, after = cursor.peek(), cursor.peek(1)
    if token is None or after is None or token.kind is not Kind.WORD or not token.text.startswith("_"):
        return None
    if after.kind not in (Kind.STRING, Kind.BITS, Kind.HEX):
        return None
    cursor.skip()
    return token.text.upper()


def _text(text: str, introducer: str | None) -> Value:
    if introducer == "_BINARY":
        return bytes_literal(text.encode())
    # the bytes of the literal are those of the statement, UTF-8: another set reads only ASCII alike
    if introducer is None or introducer in _UTF8_INTRODUCERS:
        return text_literal(text)
    if introducer in ("_LATIN1", "_ASCII") and text.isascii():
        return text_literal(text)
    raise ExpressionError(f"{introducer}{text!r}: a string of another character set")


def _bits(token: Token, introducer: str | None) -> Value:
    digits = token.text
    if token.kind is Kind.BITS:
        size = (len(digits) + 7) // 8
        content = int(digits or "0", 2).to_bytes(size, "big")
    else:
        content = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
    if introducer in (None, "_BINARY"):
        return bytes_literal(content)
    try:
        return _text(content.decode(), introducer)
    except UnicodeDecodeError as error:
        raise ExpressionError(f"{introducer} literal that is no text") from error


def number_literal(text: str) -> Value | None:
    """The value of a number without a fraction or exponent, None for other text."""
    return integer_literal(int(text)) if re.fullmatch(r"-?[0-9]{1,40}", text) else None


def _short(text: str) -> str:
    return " ".join(text.split())[:80]
