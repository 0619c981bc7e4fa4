"""Parses a MySQL expression to sqlglot's syntax tree, without the parts that sqlglot reads differently from MySQL.

`ddl.tokens` reads the literals and replaces them with placeholders in the text that sqlglot parses. Functions keep
MySQL's names and arguments: the parser omits the dialect's function table, which rewrites `TO_DAYS` and converts date
formats to Python's.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError
from sqlglot.parsers.mysql import MySQLParser

from cdc_pipeline.mysql.ddl.column_types import accept_introducer
from cdc_pipeline.mysql.ddl.tokens import Cursor, DdlSyntaxError, Kind, Token
from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.values import ExpressionError, Value
from cdc_pipeline.mysql.model.quoted_names import quoted

_SPECIAL = ("CAST", "CONVERT", "EXTRACT", "TRIM", "SUBSTRING")
"""Functions with keywords between their arguments."""
_UTF8_INTRODUCERS = frozenset({"_UTF8MB4", "_UTF8MB3", "_UTF8"})
_PLACEHOLDER = re.compile(r"literal(\d+)")
_REFUSED_SYMBOLS = frozenset({"@", "@@", ":=", "::", "?", ":", "[", "]", "{", "}", ";", "=>"})


_FUNCTION_PARSERS = {name: parser for name, parser in MySQLParser.FUNCTION_PARSERS.items() if name in _SPECIAL}
_IS_COMPILED = not str(sys.modules[MySQLParser.__module__].__file__).endswith(".py")
_EXCHANGE = threading.Lock()


class _Dialect(MySQL):
    class Parser(MySQLParser):
        FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
        FUNCTION_PARSERS: ClassVar = _FUNCTION_PARSERS


def _parse(text: str) -> list[exp.Expr | None]:
    """The syntax trees of the text. Functions are those of `_SPECIAL`, all others anonymous."""
    if not _IS_COMPILED:
        return _Dialect().parse(text)
    # Instances of a compiled parser's subclass cannot be created (package sqlglotc, which dagster-dbt installs). So the
    # parser's own tables are exchanged while it parses. Another thread that uses sqlglot itself may see them.
    parser: Any = MySQLParser
    with _EXCHANGE:
        before = parser.FUNCTIONS, parser.FUNCTION_PARSERS
        try:
            parser.FUNCTIONS, parser.FUNCTION_PARSERS = {}, _FUNCTION_PARSERS
            return MySQL().parse(text)
        finally:
            parser.FUNCTIONS, parser.FUNCTION_PARSERS = before


class Syntax:
    """A parsed expression. The constructor raises ExpressionError if the text is not one expression."""

    def __init__(self, text: str) -> None:
        self._literals: list[Value] = []
        # without brackets, sqlglot would parse a leading REPLACE as a statement
        parsed = f"({self._with_placeholders(text)})"
        try:
            trees = _parse(parsed)
        except (SqlglotError, RecursionError) as error:
            raise ExpressionError(f"the expression cannot be parsed: {_short(text)}") from error
        tree = trees[0] if len(trees) == 1 else None
        if not isinstance(tree, exp.Paren):
            raise ExpressionError(f"not a single expression: {_short(text)}")
        self.tree: exp.Expr = tree

    def literal(self, node: exp.Expr) -> Value | None:
        """The string, bit or hexadecimal literal of a node; None for other nodes."""
        if not (isinstance(node, exp.Literal) and node.is_string):
            return None
        return self.literal_by_placeholder(node.name)

    def literal_by_placeholder(self, text: str) -> Value | None:
        """The literal that the placeholder replaces; None for other text."""
        match = _PLACEHOLDER.fullmatch(text)
        return None if match is None else self._literals[int(match[1])]

    def _with_placeholders(self, text: str) -> str:
        try:
            cursor = Cursor(text)
            if cursor.text != text:
                raise ExpressionError(f"a comment inside an expression is not supported: {_short(text)}")
            parts: list[str] = []
            while not cursor.at_end:
                parts.append(self._next_part(cursor))
        except DdlSyntaxError as error:
            raise ExpressionError(f"the expression cannot be parsed: {error}") from error
        return " ".join(parts)

    def _next_part(self, cursor: Cursor) -> str:
        charset = accept_introducer(cursor)
        introducer = None if charset is None else f"_{charset.upper()}"
        token = cursor.peek()
        assert token is not None  # a literal follows every introducer
        if token.kind is Kind.STRING:
            return self._placeholder(_string_literal(cursor.read_string(), introducer))
        cursor.skip()
        if token.kind in (Kind.BITS, Kind.HEX):
            return self._placeholder(_binary_literal(token, introducer))
        if token.kind is Kind.QUOTED:
            return quoted(token.text)
        if token.kind is Kind.SYMBOL and token.text in _REFUSED_SYMBOLS:
            raise ExpressionError(f"`{token.text}` is not supported in an expression")
        return token.text

    def _placeholder(self, value: Value) -> str:
        self._literals.append(value)
        return f"'literal{len(self._literals) - 1}'"


def _string_literal(text: str, introducer: str | None) -> Value:
    literal = v.text_literal(text)
    if introducer == "_BINARY":
        return v.bytes_literal(text.encode())
    # the bytes of the literal are UTF-8, as the statement's: other character sets agree with it on ASCII only
    if (
        introducer is None
        or introducer in _UTF8_INTRODUCERS
        or (introducer in ("_LATIN1", "_ASCII") and text.isascii())
    ):
        return literal
    raise ExpressionError(f"{introducer}{text!r}: the character set of the string is not supported")


def _binary_literal(token: Token, introducer: str | None) -> Value:
    digits = token.text
    if token.kind is Kind.BITS:
        size = (len(digits) + 7) // 8
        content = int(digits or "0", 2).to_bytes(size, "big")
    else:
        content = bytes.fromhex(digits.rjust(len(digits) + len(digits) % 2, "0"))
    if introducer in (None, "_BINARY"):
        return v.bytes_literal(content)
    try:
        return _string_literal(content.decode(), introducer)
    except UnicodeDecodeError as error:
        raise ExpressionError(f"{introducer} literal: its bytes are not UTF-8") from error


def _short(text: str) -> str:
    return " ".join(text.split())[:80]
