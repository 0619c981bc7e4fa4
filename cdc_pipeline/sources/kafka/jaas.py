"""Parses and writes JAAS entries (`sasl.jaas.config`), which Java's client uses for its login.

Kafka parses them with Java's StreamTokenizer: words, quoted strings with C escapes, and comments.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

# the tokenizer reads a word that begins with a digit, a dot or a minus as a number, which Kafka rejects
_TOKEN = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|/[^\n]*  # white space and comments
    |(?P<word>[A-Za-z_$\u00a0-\U0010ffff][\w.$\u00a0-\U0010ffff-]*)
    |(?P<quoted>"(?:[^"\\\r\n]|\\[^\r\n])*"|'(?:[^'\\\r\n]|\\[^\r\n])*')
    |(?P<mark>[=;])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS = {"a": "\x07", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_EXPECTED = 'module required name="value" … ; is expected, each value in double quotes'


def jaas_line(module: str, options: dict[str, str]) -> str:
    """An entry for a login module, with quoted values."""
    return " ".join([module, "required", *(f"{name}={_quoted(value)}" for name, value in options.items())]) + ";"


def jaas_options(line: str) -> dict[str, str]:
    """The options of an entry's login module, unquoted.

    Raises ValueError if Kafka cannot parse the line. The message contains no part of the line.
    """
    tokens = list(_tokens(line))
    if [kind for kind, _ in tokens[:2]] != ["word", "word"] or tokens[1][1].lower() not in _FLAGS:
        raise ValueError(f"is not a JAAS entry: {_EXPECTED}")
    *options, end = tokens[2:] or [("", "")]
    if end != ("mark", ";") or len(options) % 3:
        raise ValueError(f"is not a JAAS entry, or does not end with a semicolon: {_EXPECTED}")
    found = {}
    for (kind, name), mark, (value_kind, value) in zip(options[::3], options[1::3], options[2::3], strict=True):
        if kind == "mark" or mark != ("mark", "=") or value_kind == "mark":
            raise ValueError(f"is not a JAAS entry: {_EXPECTED}")
        found[name] = value
    return found


def _tokens(line: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None:
            raise ValueError(f"is not a JAAS entry: {_EXPECTED}")
        at = found.end()
        if found.lastgroup == "quoted":
            yield "quoted", _ESCAPE.sub(lambda escape: _unescaped(escape.group(1)), found.group()[1:-1])
        elif found.lastgroup is not None:
            yield found.lastgroup, found.group()


def _unescaped(code: str) -> str:
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROLS.get(code, code)


def escaped(value: str) -> str:
    """The value with escaped backslashes and double quotes. Line ends are not escaped."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(value: str) -> str:
    text = escaped(value)
    # a quoted string cannot contain a line end
    return '"' + text.replace("\n", "\\n").replace("\r", "\\r") + '"'
