"""A cursor over the tokens of a MySQL statement.

Comments are no tokens, and executable comments are open. A token is a keyword by its text alone; a quoted name never is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TypeVar

from cdc_pipeline.mysql.model.limits import MAX_NAME_CHARACTERS, MAX_STATEMENT_CHARACTERS, limit_message
from cdc_pipeline.mysql.model.table import TableName

_Item = TypeVar("_Item")


class DdlSyntaxError(ValueError):
    """Text that cannot be parsed."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (position {position})")
        self.position = position
        """In characters of the text, from 0."""


class Quoting(Enum):
    """Who wrote the strings of a statement."""

    MYSQL = "mysql"
    """A user: each string has MySQL's escapes."""
    TIDB = "tidb"
    """TiDB's printer. It doubles each quote, and the backslashes of literals in expressions: defaults, comments of columns,
    bounds of partitions. Labels of ENUM and SET, and options of tables, indexes and partitions, keep their backslashes.
    There are no other escapes."""


class Kind(Enum):
    WORD = "word"
    """A keyword or an unquoted name."""
    QUOTED = "quoted name"
    STRING = "string"
    BITS = "bits"
    HEX = "hex"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    """The value: a name without quotes, an unescaped string, the digits of a bit or hex literal.

    Of a string that TiDB printed, the value of a label or an option.
    """
    start: int
    """Its first character in the statement."""
    end: int
    """Exclusive."""


_LETTER = r"[0-9A-Za-z$_\x80-\U0010ffff]"
_NAME_END = _LETTER.replace("]", "`]")
_USER_STRINGS = r"""[nN]?'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" """
_PRINTED_STRINGS = "[nN]?'(?:[^']|'')*'"
# Groups of tokens have the names of `Kind`. Digits after the dot of `db.2024` are a name.
_LEXEME_PATTERN = rf"""
    (?P<STRING> STRINGS )
    | (?P<QUOTED> `(?:[^`]|``)*` )
    | (?P<BITS> [bB]'[01]*' | 0b[01]+(?!{_LETTER}) )
    | (?P<HEX> [xX]'[0-9a-fA-F]*' | 0x[0-9a-fA-F]+(?!{_LETTER}) )
    | (?P<invalid> [bBxX]' )
    | (?P<NUMBER> (?<!{_NAME_END}\.) (?:[0-9]+(?:\.[0-9]*)?|(?<!{_NAME_END})\.[0-9]+)(?:[eE][-+]?[0-9]+)?(?!{_LETTER}) )
    | (?P<WORD> {_LETTER}+ )
    | (?P<unclosed> ['"`] )
    | (?P<executable> /\*M?!(?P<version>\d{{5,6}})? | /\*T!(?:\[[^\]\s]*\])? )
    | (?P<comment> /\*.*?\*/ | (?:\#|--(?=[\s\x00-\x1f]|\Z)) [^\n]* )
    | (?P<endless> /\* )
    | (?P<close> \*/ )
    | (?P<gap> [ \t\n\r\v\f]+ )
    | (?P<SYMBOL> ->>? | <=> | [<>!:]= | <> | :: | \|\| | && | @@ | [!-~] )
    """
_LEXEMES = {
    quoting: re.compile(_LEXEME_PATTERN.replace("STRINGS", strings), re.VERBOSE | re.DOTALL)
    for quoting, strings in ((Quoting.MYSQL, _USER_STRINGS), (Quoting.TIDB, _PRINTED_STRINGS))
}
_ERRORS = {"unclosed": "no closing {}", "endless": "unterminated comment", "invalid": "invalid literal {}"}
_ESCAPE = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_BACKSLASHES = re.compile(r"\\+")
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
# The highest possible version of a MySQL server. Above it are the versions of MariaDB.
_NEWEST_MYSQL = 99998


@cache
def _words(text: str) -> list[str]:
    return text.split()


class Cursor:
    """Reads the tokens of one statement from left to right. Raises DdlSyntaxError if the text has no tokens.

    Keywords and symbols are given as one text, the keywords in upper case: `IF NOT EXISTS`.
    """

    def __init__(self, sql: str, quoting: Quoting = Quoting.MYSQL) -> None:
        self.text, self._tokens = _tokens(sql, quoting)
        self._quoting = quoting
        self.index = 0

    # ---- look ahead

    def peek(self, offset: int = 0) -> Token | None:
        """The token `offset` tokens ahead; None past the end."""
        index = self.index + offset
        return self._tokens[index] if index < len(self._tokens) else None

    def at(self, words: str, *, offset: int = 0) -> bool:
        """Whether the next tokens are these symbols or keywords, in any case."""
        return all(self._word(ahead) == word for ahead, word in enumerate(_words(words), offset))

    def _word(self, offset: int) -> str | None:
        """The token as a symbol or a keyword in upper case."""
        token = self.peek(offset)
        if token is None or token.kind not in (Kind.WORD, Kind.SYMBOL):
            return None
        # `upper` turns some other letters into ASCII letters. MySQL's keywords do not.
        return token.text.upper() if token.text.isascii() else None

    def at_any(self, *choices: str) -> bool:
        """Whether the next tokens are one of these."""
        return self._choice(choices) is not None

    def _choice(self, choices: tuple[str, ...]) -> str | None:
        word = self._word(0)
        same = () if word is None else (one for one in choices if one == word or one.startswith(f"{word} "))
        return next((one for one in same if self.at(one)), None)

    def at_kind(self, *kinds: Kind) -> bool:
        """Whether the next token is of one of these kinds."""
        token = self.peek()
        return token is not None and token.kind in kinds

    @property
    def at_end(self) -> bool:
        return self.index >= len(self._tokens)

    @property
    def at_statement_end(self) -> bool:
        return self.at_end or self.at(";")

    @property
    def position(self) -> int:
        """The first character of the next token, or the end of the text."""
        token = self.peek()
        return len(self.text) if token is None else token.start

    # ---- read

    def accept(self, words: str) -> bool:
        """Moves past these keywords or symbols if they are next. Returns whether they were."""
        return self.accept_any(words) is not None

    def accept_any(self, *choices: str) -> str | None:
        """Moves past the first of these that is next. Returns it."""
        found = self._choice(choices)
        if found is not None:
            self.index += len(_words(found))
        return found

    def expect(self, *choices: str) -> str:
        """Moves past one of these. Raises DdlSyntaxError if none is next."""
        found = self.accept_any(*choices)
        if found is None:
            raise self.error(f"{' or '.join(choices)} expected")
        return found

    def take(self, *kinds: Kind, what: str) -> Token:
        """Returns the next token. Raises DdlSyntaxError if it is of none of these kinds."""
        token = self.peek()
        if token is None or token.kind not in kinds:
            raise self.error(f"{what} expected")
        self.index += 1
        return token

    def skip(self) -> Token:
        """Returns the next token. Raises DdlSyntaxError at the end."""
        return self.take(*Kind, what="more words")

    def read_name(self, what: str = "a name") -> str:
        """Reads a quoted or unquoted name."""
        token = self.take(Kind.WORD, Kind.QUOTED, what=what)
        if len(token.text) > MAX_NAME_CHARACTERS:
            raise DdlSyntaxError(
                limit_message(f"characters of {what}", len(token.text), MAX_NAME_CHARACTERS), token.start
            )
        return token.text

    def read_column_name(self) -> str:
        return self.read_name("a column name")

    def read_table_name(self) -> TableName:
        """Reads `table` or `database.table`. The database of an unqualified name is empty."""
        name = self.read_name("a table name")
        return TableName(name, self.read_name("a table name")) if self.accept(".") else TableName("", name)

    def read_string(self, *, is_literal: bool = False) -> str:
        """Reads a string. Adjacent strings are concatenated, as in MySQL.

        `is_literal`: it is part of an expression or the comment of a column, where TiDB doubles backslashes. Raises
        DdlSyntaxError if TiDB does not print such a literal.
        """
        start = self.index
        parts = [self.take(Kind.STRING, what="a string").text]
        if self._quoting is Quoting.TIDB:
            if is_literal and any(len(run) % 2 for run in _BACKSLASHES.findall(parts[0])):
                self.index = start
                raise self.error("a literal with an escape that TiDB does not print")
            return parts[0].replace("\\\\", "\\") if is_literal else parts[0]
        while self.at_kind(Kind.STRING):
            parts.append(self.skip().text)
        return "".join(parts)

    def read_integer(self) -> int:
        """Reads a non-negative whole number."""
        token = self.take(Kind.NUMBER, what="a whole number")
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 30):
            self.index -= 1
            raise self.error("a whole number expected")
        return int(token.text)

    def read_group(self) -> str:
        """Moves past a balanced pair of brackets. Returns the text between them."""
        start = self.position
        self.expect("(")
        depth = 1
        while depth:
            token = self.skip()
            if token.kind is Kind.SYMBOL and token.text in "()":
                depth += 1 if token.text == "(" else -1
        return self.text[start + 1 : self._last_end() - 1].strip()

    def skip_item(self) -> None:
        """Moves past the next token, or past a balanced pair of brackets. Raises DdlSyntaxError at the end."""
        if self.at("("):
            self.read_group()
        else:
            self.skip()

    def skip_to(self, *ends: str) -> str:
        """Moves to the end of the statement, or before one of these outside brackets. Returns the text up to there."""
        start = self.position
        while not self.at_statement_end and not self.at_any(*ends):
            self.skip_item()
        return self.text_since(start)

    def read_list(self, read_item: Callable[[Cursor], _Item]) -> list[_Item]:
        """Reads brackets with one or more items between commas."""
        self.expect("(")
        items = [read_item(self)]
        while self.accept(","):
            items.append(read_item(self))
        self.expect(")")
        return items

    def read_bare_list(self, read_item: Callable[[Cursor], _Item], *ends: str) -> list[_Item]:
        """Reads items between commas without brackets, each of one word, perhaps with one of `ends` after it.

        After a comma, more words begin the next clause.
        """
        items = [read_item(self)]
        while self.at(",") and (self.peek(2) is None or any(self.at(end, offset=2) for end in (",", ";", *ends))):
            self.expect(",")
            items.append(read_item(self))
        return items

    def accept_option(self, *names: str) -> str | None:
        """Moves past one of these options and its value, if one is next. Returns its name."""
        name = self.accept_any(*names)
        if name is not None:
            self.read_option_value()
        return name

    def read_option_value(self) -> str:
        """Reads the value of an option, perhaps after `=`: one word, string or number, or brackets. Returns it as text."""
        self.accept("=")
        if self.at("("):
            return self.read_group()
        if self.at_kind(Kind.STRING):
            return self.read_string()
        return self.take(Kind.WORD, Kind.QUOTED, Kind.NUMBER, what="the value of an option").text

    # ---- text

    def _last_end(self) -> int:
        """Where the token before the cursor ends."""
        return self._tokens[self.index - 1].end if self.index else 0

    def text_since(self, start: int) -> str:
        """The source text from the character `start` to the end of the token before the cursor."""
        return self.text[start : self._last_end()].strip()

    def error(self, message: str) -> DdlSyntaxError:
        """An error with the words at the cursor and their position."""
        token = self.peek()
        if token is None:
            return DdlSyntaxError(f"{message} at the end of the statement", len(self.text))
        words = " ".join(self.text[token.start : token.start + 60].split())
        return DdlSyntaxError(f"{message} at {words!r}", token.start)


def words_in(expression: str) -> set[str]:
    """All words and quoted names of an expression, in lower case: those that may be column names."""
    _, tokens = _tokens(expression, Quoting.MYSQL)
    return {token.text.casefold() for token in tokens if token.kind in (Kind.WORD, Kind.QUOTED)}


def _tokens(sql: str, quoting: Quoting) -> tuple[str, list[Token]]:
    """The text with comments replaced by spaces, and its tokens. Positions do not change."""
    if len(sql) > MAX_STATEMENT_CHARACTERS:
        raise DdlSyntaxError(
            limit_message("characters of the statement", len(sql), MAX_STATEMENT_CHARACTERS), MAX_STATEMENT_CHARACTERS
        )
    text, tokens, opened = list(sql), list[Token](), list[int]()
    end = 0
    while end < len(sql):
        start, lexeme = end, _LEXEMES[quoting].match(sql, end)
        if lexeme is None:
            raise DdlSyntaxError(f"cannot read {sql[start : start + 60]!r}", start)
        name, raw, end = lexeme.lastgroup or "", lexeme.group(), lexeme.end()
        if name in _ERRORS:
            raise DdlSyntaxError(_ERRORS[name].format(raw), start)
        if name == "close" and not opened:
            name, raw, end = "SYMBOL", "*", start + 1  # the slash may begin a comment
        if name in Kind.__members__:
            tokens.append(Token(Kind[name], _value(Kind[name], raw, quoting), start, end))
            continue
        if name == "executable":
            _check_version(raw, lexeme["version"], start)
            opened.append(start)
        elif name == "close":
            opened.pop()
        if name != "gap":
            text[start:end] = " " * (end - start)
    if opened:
        raise DdlSyntaxError("unterminated comment", opened[0])
    return "".join(text), tokens


def _check_version(opening: str, version: str | None, position: int) -> None:
    """Raises DdlSyntaxError for an executable comment that only some servers run: MariaDB's, or of a later version."""
    if opening.startswith("/*M") or (version is not None and int(version) > _NEWEST_MYSQL):
        raise DdlSyntaxError(f"{opening!r}: only some servers run this comment", position)


def _value(kind: Kind, raw: str, quoting: Quoting) -> str:
    """The `text` of the token."""
    if kind is Kind.QUOTED:
        return raw[1:-1].replace("``", "`")
    if kind is Kind.STRING:
        literal = raw.lstrip("nN")
        return _unescaped(literal) if quoting is Quoting.MYSQL else literal[1:-1].replace("''", "'")
    return raw[2:].rstrip("'") if kind in (Kind.BITS, Kind.HEX) else raw


def _unescaped(literal: str) -> str:
    """The value of a string literal in quotes, by MySQL's rules with backslash escapes enabled."""
    quote = literal[0]

    def unescape(escape: re.Match[str]) -> str:
        letter = escape[1]
        if letter is not None:
            return _ESCAPED.get(letter, letter)
        return quote if escape[0][0] == quote else escape[0]

    return _ESCAPE.sub(unescape, literal[1:-1])
