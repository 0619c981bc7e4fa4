"""A cursor over the tokens of a MySQL statement.

The tokens are sqlglot's, made uniform: what a keyword is, is decided by its text alone, and never for a quoted name.
Comments and executable comments are dealt with here, before sqlglot sees the text, and so are literals.
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

from cdc_pipeline.mysql.model.limits import MOST_CHARACTERS, MOST_NAME_CHARACTERS, beyond


class DdlSyntaxError(ValueError):
    """Text that cannot be read. `position` counts characters from 0 in the text as it was given."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (position {position})")
        self.position = position


class Kind(Enum):
    """What a token is. A WORD is a keyword or an unquoted name; NATIONAL strings are STRING too."""

    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    BITS = "bits"
    HEX = "hex"
    NUMBER = "number"
    SYMBOL = "symbol"


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is the value: a name without its quotes, a string unescaped, the digits of bits and hex; `start` and
    `end` (exclusive) are its place in the statement."""

    kind: Kind
    text: str
    start: int
    end: int


# Literals and quoted names are found first, so that nothing inside them is taken for a comment.
_LEXEME = re.compile(
    r"""
    (?P<quoted> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
    | (?P<unclosed> ['"`] )
    | (?P<executable> /\*M?!(?P<version>\d{5,6})? | /\*T!(?:\[[^\]\s]*\])? )
    | (?P<comment> /\*(?:.*?)\*/ )
    | (?P<endless> /\* )
    | (?P<line> (?:\#|--(?=[\s\x00-\x1f]|\Z)) [^\n]* )
    | (?P<close> \*/ )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD = re.compile(r"(?:[0-9A-Za-z$_]|[^\x00-\x7f])+")
_NUMBER = re.compile(r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_GAP = re.compile(r"[ \t\n\r\v\f]*")
_ESCAPE = re.compile(r"\\(.)|''|\"\"", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
# The highest version that a MySQL server may have reached; above it lie MariaDB's numbers and comments that no
# server runs.
_NEWEST_MYSQL = 99998


class _Tokenizer(MySQL.Tokenizer):
    # sqlglot would give everything after a leading RENAME or CALL as one string.
    COMMANDS: ClassVar[set[TokenType]] = set()


class Cursor:
    """Reads the tokens of one statement from left to right. Raises DdlSyntaxError if the text has no tokens."""

    def __init__(self, sql: str) -> None:
        self.text, self._tokens = _tokens(sql)
        self.index = 0

    # ---- looking

    def peek(self, offset: int = 0) -> Token | None:
        """The token `offset` places ahead, None past the end."""
        place = self.index + offset
        return self._tokens[place] if place < len(self._tokens) else None

    def at(self, *words: str, offset: int = 0) -> bool:
        """Whether the next tokens are these keywords (given upper-case) or symbols; the statement's case is ignored."""
        for place, word in enumerate(words, offset):
            token = self.peek(place)
            if token is None or token.kind not in (Kind.WORD, Kind.SYMBOL):
                return False
            # The upper case of some letters beyond ASCII is an ASCII one; MySQL's keywords know no such.
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
    def done(self) -> bool:
        return self.index >= len(self._tokens)

    @property
    def position(self) -> int:
        """Where the next token starts, or the end of the text."""
        token = self.peek()
        return len(self.text) if token is None else token.start

    # ---- reading

    def accept(self, *words: str) -> bool:
        """Moves past these keywords or symbols if they are next; whether they were."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, *words: str) -> str | None:
        """Moves past the next token if it is one of these; which one."""
        for word in words:
            if self.accept(word):
                return word
        return None

    def expect(self, *words: str) -> None:
        """Moves past these keywords or symbols; raises DdlSyntaxError where they are not next."""
        if not self.accept(*words):
            raise self.error(f"{' '.join(words)} expected")

    def take(self, *kinds: Kind, what: str) -> Token:
        """The next token, which must be of one of these kinds; raises DdlSyntaxError otherwise."""
        token = self.peek()
        if token is None or token.kind not in kinds:
            raise self.error(f"{what} expected")
        self.index += 1
        return token

    def skip(self) -> Token:
        """The next token, whatever it is; raises DdlSyntaxError at the end."""
        return self.take(*Kind, what="more words")

    def identifier(self, what: str = "a name") -> str:
        """The next name, quoted or not."""
        token = self.take(Kind.WORD, Kind.QUOTED, what=what)
        if len(token.text) > MOST_NAME_CHARACTERS:
            raise DdlSyntaxError(beyond(f"characters of {what}", len(token.text), MOST_NAME_CHARACTERS), token.start)
        return token.text

    def string(self) -> str:
        """The value of the next string literal; adjacent literals are one, as in MySQL."""
        parts = [self.take(Kind.STRING, what="a string").text]
        while self.at_kind(Kind.STRING):
            parts.append(self.skip().text)
        return "".join(parts)

    def integer(self) -> int:
        """The next number, which must be a whole one."""
        token = self.take(Kind.NUMBER, what="a whole number")
        if not (token.text.isascii() and token.text.isdigit() and len(token.text) < 30):
            self.index -= 1
            raise self.error("a whole number expected")
        return int(token.text)

    def group(self) -> str:
        """The source text of the next balanced pair of brackets with its content, the outer brackets left out."""
        start = self.position
        self.expect("(")
        depth = 1
        while depth:
            token = self.skip()
            if token.kind is Kind.SYMBOL and token.text in "()":
                depth += 1 if token.text == "(" else -1
        return self.text[start + 1 : self.end_of_last() - 1].strip()

    # ---- text

    def end_of_last(self) -> int:
        """Where the token before the cursor ends."""
        return self._tokens[self.index - 1].end if self.index else 0

    def since(self, start: int) -> str:
        """The source text from the character `start` to the end of the token before the cursor."""
        return self.text[start : self.end_of_last()].strip()

    def error(self, message: str) -> DdlSyntaxError:
        """An error that names the words at the cursor and their position."""
        token = self.peek()
        if token is None:
            return DdlSyntaxError(f"{message} at the end of the statement", len(self.text))
        words = " ".join(self.text[token.start : token.start + 60].split())
        return DdlSyntaxError(f"{message} at {words!r}", token.start)


def _tokens(sql: str) -> tuple[str, list[Token]]:
    """The text with comments blanked, every character at its place, and its tokens."""
    if len(sql) > MOST_CHARACTERS:
        raise DdlSyntaxError(beyond("characters of the statement", len(sql), MOST_CHARACTERS), MOST_CHARACTERS)
    text, masked = _without_comments(sql)
    try:
        raw = _Tokenizer().tokenize(masked)
    except TokenError as error:
        raise DdlSyntaxError(f"no tokens: {' '.join(str(error).split())[:80]}", 0) from error
    tokens: list[Token] = []
    end = 0
    for item in raw:
        # Whatever the tokenizer left out would be lost without a word.
        if not _GAP.fullmatch(text, end, item.start):
            raise DdlSyntaxError(f"cannot read {text[end : item.start][:60]!r}", end)
        end = item.end + 1
        _append(tokens, item, text)
    if not _GAP.fullmatch(text, end):
        raise DdlSyntaxError(f"cannot read {text[end:][:60]!r}", end)
    return text, tokens


def _without_comments(sql: str) -> tuple[str, str]:
    """The text with comments blanked and executable ones opened; the same with the content of quotes as zeros.

    sqlglot reads escapes and quotes not quite as MySQL does; zeros leave it no choice.
    """
    text, masked = list(sql), list(sql)

    def blank(start: int, end: int) -> None:
        text[start:end] = masked[start:end] = " " * (end - start)

    opened: list[int] = []
    place = 0
    while found := _LEXEME.search(sql, place):
        start, place = found.span()
        if found["quoted"]:
            masked[start + 1 : place - 1] = "0" * (place - start - 2)
        elif found["unclosed"]:
            raise DdlSyntaxError(f"no closing {found['unclosed']}", start)
        elif found["endless"]:
            raise DdlSyntaxError("a comment without end", start)
        elif found["executable"]:
            _check_version(found["executable"], found["version"], start)
            opened.append(start)
            blank(start, place)
        elif found["close"]:
            if opened:
                opened.pop()
                blank(start, place)
            else:
                place = start + 1  # a `*` and perhaps the start of a comment
        else:
            blank(start, place)
    if opened:
        raise DdlSyntaxError("a comment without end", opened[0])
    return "".join(text), "".join(masked)


def _check_version(opening: str, version: str | None, position: int) -> None:
    """Raises DdlSyntaxError for executable comments of which the text does not tell whether the server ran them."""
    if opening.startswith("/*M") or (version is not None and int(version) > _NEWEST_MYSQL):
        raise DdlSyntaxError(f"{opening!r}: not every server runs what this comment has", position)


def _append(tokens: list[Token], item: SqlglotToken, text: str) -> None:
    start, end = item.start, item.end + 1
    raw = text[start:end]
    if raw[0] == "`":
        tokens.append(Token(Kind.QUOTED, raw[1:-1].replace("``", "`"), start, end))
    elif raw[0] in "'\"":
        tokens.append(Token(Kind.STRING, _unescaped(raw), start, end))
    elif raw[-1] == "'" and raw[0] in "nN":
        tokens.append(Token(Kind.STRING, _unescaped(raw[1:]), start, end))
    elif item.token_type in (TokenType.BIT_STRING, TokenType.HEX_STRING):
        is_bits = item.token_type is TokenType.BIT_STRING
        digits = raw[2:-1] if raw[-1] == "'" else raw[2:]
        if not re.fullmatch(r"[01]*" if is_bits else r"[0-9a-fA-F]*", digits):
            raise DdlSyntaxError(f"{raw[:40]!r} is no literal", start)
        tokens.append(Token(Kind.BITS if is_bits else Kind.HEX, digits, start, end))
    else:
        # 'PRIMARY KEY' is one token to sqlglot, and `1abc` two.
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
    """What the digits after a dot are: a name in `db.2024`, else a fraction as in `.5`."""
    before = tokens[-2] if len(tokens) > 1 else None
    follows_name = before is not None and before.kind in (Kind.WORD, Kind.QUOTED) and before.end == start - 1
    return Kind.WORD if follows_name else Kind.NUMBER


def _unescaped(literal: str) -> str:
    """The value of a string literal that has its quotes, by MySQL's rules with backslash escapes on."""
    quote = literal[0]

    def value(found: re.Match[str]) -> str:
        letter = found[1]
        if letter is not None:
            return _ESCAPED.get(letter, letter)
        return quote if found[0][0] == quote else found[0]

    return _ESCAPE.sub(value, literal[1:-1])
