"""A cursor over the tokens of a MySQL statement.

sqlglot splits the text into tokens. This module removes comments and opens executable comments before, and unescapes
literals after. A token is a keyword by its text alone; a quoted name never is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token as SqlglotToken
from sqlglot.tokenizer_core import TokenType

from cdc_pipeline.mysql.model.limits import MAX_NAME_CHARACTERS, MAX_STATEMENT_CHARACTERS, limit_message


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


# Literals and quoted names come first, so that a comment inside them does not count.
_USER_STRINGS = r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" """
_PRINTED_STRINGS = "'(?:[^']|'')*'"
_LEXEME_PATTERN = r"""
    (?P<quoted> STRINGS | `(?:[^`]|``)*` )
    | (?P<unclosed> ['"`] )
    | (?P<executable> /\*M?!(?P<version>\d{5,6})? | /\*T!(?:\[[^\]\s]*\])? )
    | (?P<comment> /\*(?:.*?)\*/ )
    | (?P<endless> /\* )
    | (?P<line> (?:\#|--(?=[\s\x00-\x1f]|\Z)) [^\n]* )
    | (?P<close> \*/ )
    """
_LEXEMES = {
    quoting: re.compile(_LEXEME_PATTERN.replace("STRINGS", strings), re.VERBOSE | re.DOTALL)
    for quoting, strings in ((Quoting.MYSQL, _USER_STRINGS), (Quoting.TIDB, _PRINTED_STRINGS))
}
_WORD = re.compile(r"(?:[0-9A-Za-z$_]|[^\x00-\x7f])+")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_GAP = re.compile(r"[ \t\n\r\v\f]*")
_ESCAPE = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_BACKSLASHES = re.compile(r"\\+")
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
# The highest possible version of a MySQL server. Above it are the versions of MariaDB.
_NEWEST_MYSQL = 99998


class _Tokenizer(MySQL.Tokenizer):
    # sqlglot returns everything after a leading RENAME or CALL as one string.
    COMMANDS: ClassVar[set[TokenType]] = set()


class Cursor:
    """Reads the tokens of one statement from left to right. Raises DdlSyntaxError if the text has no tokens."""

    def __init__(self, sql: str, quoting: Quoting = Quoting.MYSQL) -> None:
        self.text, self._tokens = _tokens(sql, quoting)
        self._quoting = quoting
        self.index = 0

    # ---- look ahead

    def peek(self, offset: int = 0) -> Token | None:
        """The token `offset` tokens ahead; None past the end."""
        index = self.index + offset
        return self._tokens[index] if index < len(self._tokens) else None

    def at(self, *words: str, offset: int = 0) -> bool:
        """Whether the next tokens are these symbols or keywords (in upper case), ignoring the statement's case."""
        for ahead, word in enumerate(words, offset):
            token = self.peek(ahead)
            if token is None or token.kind not in (Kind.WORD, Kind.SYMBOL):
                return False
            # `upper` turns some other letters into ASCII letters. MySQL's keywords do not.
            if not token.text.isascii() or token.text.upper() != word:
                return False
        return True

    def at_any(self, *words: str) -> bool:
        """Whether the next token is one of these keywords or symbols."""
        return any(self.at(word) for word in words)

    def at_kind(self, *kinds: Kind) -> bool:
        """Whether the next token is of one of these kinds."""
        token = self.peek()
        return token is not None and token.kind in kinds

    @property
    def at_end(self) -> bool:
        return self.index >= len(self._tokens)

    @property
    def position(self) -> int:
        """The first character of the next token, or the end of the text."""
        token = self.peek()
        return len(self.text) if token is None else token.start

    # ---- read

    def accept(self, *words: str) -> bool:
        """Moves past these keywords or symbols if they are next. Returns whether they were."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str | None:
        """Moves past the next token if it is one of these. Returns which one."""
        for word in words:
            if self.accept(word):
                return word
        return None

    def expect(self, *words: str) -> None:
        """Moves past these keywords or symbols. Raises DdlSyntaxError if they are not next."""
        if not self.accept(*words):
            raise self.error(f"{' '.join(words)} expected")

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
    text, masked = _without_comments(sql, _LEXEMES[quoting])
    try:
        raw = _Tokenizer().tokenize(masked)
    except TokenError as error:
        raise DdlSyntaxError(f"cannot split into tokens: {' '.join(str(error).split())[:80]}", 0) from error
    tokens: list[Token] = []
    end = 0
    for item in raw:
        # the tokenizer must not lose text silently
        if not _GAP.fullmatch(text, end, item.start):
            raise DdlSyntaxError(f"cannot read {text[end : item.start][:60]!r}", end)
        end = item.end + 1
        _append(tokens, item, text, quoting)
    if not _GAP.fullmatch(text, end):
        raise DdlSyntaxError(f"cannot read {text[end:][:60]!r}", end)
    return text, tokens


def _without_comments(sql: str, lexeme_pattern: re.Pattern[str]) -> tuple[str, str]:
    """The text with comments replaced by spaces and executable comments opened; the same with zeros inside quotes.

    sqlglot differs from MySQL in escapes and quotes. Zeros leave nothing to interpret.
    """
    text, masked = list(sql), list(sql)

    def blank(start: int, end: int) -> None:
        text[start:end] = masked[start:end] = " " * (end - start)

    opened: list[int] = []
    end = 0
    while lexeme := lexeme_pattern.search(sql, end):
        start, end = lexeme.span()
        if lexeme["quoted"]:
            masked[start + 1 : end - 1] = "0" * (end - start - 2)
        elif lexeme["unclosed"]:
            raise DdlSyntaxError(f"no closing {lexeme['unclosed']}", start)
        elif lexeme["endless"]:
            raise DdlSyntaxError("unterminated comment", start)
        elif lexeme["executable"]:
            _check_version(lexeme["executable"], lexeme["version"], start)
            opened.append(start)
            blank(start, end)
        elif lexeme["close"]:
            if opened:
                opened.pop()
                blank(start, end)
            else:
                end = start + 1  # a `*` and perhaps the start of a comment
        else:
            blank(start, end)
    if opened:
        raise DdlSyntaxError("unterminated comment", opened[0])
    return "".join(text), "".join(masked)


def _check_version(opening: str, version: str | None, position: int) -> None:
    """Raises DdlSyntaxError for an executable comment that only some servers run: MariaDB's, or of a later version."""
    if opening.startswith("/*M") or (version is not None and int(version) > _NEWEST_MYSQL):
        raise DdlSyntaxError(f"{opening!r}: only some servers run this comment", position)


def _append(tokens: list[Token], item: SqlglotToken, text: str, quoting: Quoting) -> None:
    start, end = item.start, item.end + 1
    raw = text[start:end]
    if raw[0] == "`":
        tokens.append(Token(Kind.QUOTED, raw[1:-1].replace("``", "`"), start, end))
    elif raw[0] in "'\"":
        value = _unescaped(raw) if quoting is Quoting.MYSQL else raw[1:-1].replace("''", "'")
        tokens.append(Token(Kind.STRING, value, start, end))
    elif raw[-1] == "'" and raw[0] in "nN":
        tokens.append(Token(Kind.STRING, _unescaped(raw[1:]), start, end))
    elif item.token_type in (TokenType.BIT_STRING, TokenType.HEX_STRING):
        is_bits = item.token_type is TokenType.BIT_STRING
        digits = raw[2:-1] if raw[-1] == "'" else raw[2:]
        if not re.fullmatch(r"[01]*" if is_bits else r"[0-9a-fA-F]*", digits):
            raise DdlSyntaxError(f"invalid literal {raw[:40]!r}", start)
        tokens.append(Token(Kind.BITS if is_bits else Kind.HEX, digits, start, end))
    else:
        # sqlglot has one token for 'PRIMARY KEY' and two for `1abc`
        for word in re.finditer(r"[^ \t\n\r\v\f]+", raw):
            _append_plain(tokens, word.group(), start + word.start())


def _append_plain(tokens: list[Token], word: str, start: int) -> None:
    last = tokens[-1] if tokens else None
    if last is not None and last.end == start and last.kind in (Kind.NUMBER, Kind.WORD) and _WORD.fullmatch(word):
        tokens.pop()
        word, start = last.text + word, last.start
    end = start + len(word)
    if _NUMBER.fullmatch(word):
        kind = Kind.NUMBER
    elif _WORD.fullmatch(word):
        kind = Kind.WORD
    else:
        kind = Kind.SYMBOL
    if kind is Kind.NUMBER and last is not None and last.kind is Kind.SYMBOL and last.text == "." and last.end == start:
        kind = _after_dot(tokens, start)
        if kind is Kind.NUMBER:
            tokens.pop()
            word, start = "." + word, last.start
    tokens.append(Token(kind, word, start, end))


def _after_dot(tokens: list[Token], start: int) -> Kind:
    """The kind of digits after a dot: WORD in `db.2024`, NUMBER in `.5`."""
    before = tokens[-2] if len(tokens) > 1 else None
    follows_name = before is not None and before.kind in (Kind.WORD, Kind.QUOTED) and before.end == start - 1
    return Kind.WORD if follows_name else Kind.NUMBER


def _unescaped(literal: str) -> str:
    """The value of a string literal in quotes, by MySQL's rules with backslash escapes enabled."""
    quote = literal[0]

    def unescape(escape: re.Match[str]) -> str:
        letter = escape[1]
        if letter is not None:
            return _ESCAPED.get(letter, letter)
        return quote if escape[0][0] == quote else escape[0]

    return _ESCAPE.sub(unescape, literal[1:-1])
