"""Literals of SQL as dump programs write them, and their escapes.

Dumpling, mydumper and mysqldump escape NUL, newline, carriage return, Ctrl-Z, backslash and both quotes, and mysqldump also
the first byte of what is no character. Other escapes, doubled quotes and raw control characters are rejected: they are a
sign of an export without backslash escapes, in which `\\n` is two characters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_PLAIN = rb"[^'\"\\\n\r\0\x1a]*"
CONTENT = rb"%b(?:\\[0nrZ'\"\\\x80-\xff]%b)*" % (_PLAIN, _PLAIN)
"""What is between the quotes of a string."""
_STRING = rb"(?:'%b'|\"%b\")" % (CONTENT, CONTENT)
_DIGITS = rb"(?:[xX]'[0-9a-fA-F]*'|0x[0-9a-fA-F]+)"
NUMBER = rb"-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
LITERAL = rb"(?:%b|%b|[bB]'[01]*'|_[a-z0-9]+ *(?:%b|%b)|%b|CONVERT\(%b USING UTF8MB4\))" % (
    *(_STRING, _DIGITS, _STRING, _DIGITS, NUMBER, _STRING),
)
"""Any value but NULL. CONVERT is mydumper's form of JSON."""
INCOMPLETE_LITERAL = (
    rb"(?:(?:_[a-z0-9]+ *|CONVERT\()?(?:'%b\\?|\"%b\\?)|[xXbB]'[0-9a-fA-F]*|CONVERT\(%b[ A-Z0-9]*|%b)"
    % (*(CONTENT, CONTENT, _STRING, rb"[-+.\w]* *"),)
)
_PARTS = re.compile(
    rb"(?:_(?P<charset>[a-z0-9]+) *|CONVERT\()?"
    rb"(?:[xX]'(?P<hex>.*)'|0x(?P<digits>.*)|[bB]'(?P<bits>.*)'|(?P<quote>['\"])(?P<string>.*)(?P=quote)"
    rb"(?: USING UTF8MB4\))?|(?P<number>.*))",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_ESCAPED = {b"0": b"\0", b"n": b"\n", b"r": b"\r", b"Z": b"\x1a"}


def unescape(content: bytes) -> bytes:
    """The bytes of a string whose escapes are letters: of SQL, and of Dumpling's CSV."""
    if b"\\\\" in content:
        return _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), content)
    content = content.replace(b'\\"', b'"').replace(b"\\'", b"'")
    if b"\\" in content:
        for letter, character in _ESCAPED.items():
            content = content.replace(b"\\" + letter, character)
    return content.replace(b"\\", b"")


def unescape_all(values: Sequence[bytes | None]) -> Sequence[bytes | None]:
    """`unescape` of each value of a column: of all at once, unless an escape is a backslash or NUL."""
    column = b"\0".join(filter(None, values))  # no value has a NUL that is not escaped
    if b"\\" not in column:
        return values
    if b"\\\\" in column or b"\\0" in column:
        return [unescape(value) if value and b"\\" in value else value for value in values]
    contents = iter(unescape(column).split(b"\0"))
    return [next(contents) if value else value for value in values]


def read_literal(literal: bytes) -> tuple[bytes, str | None]:
    """The bytes of a literal, and the character set that it names: None if it names none, `binary` for digits of bytes.

    Raises ValueError for hexadecimal digits that are no bytes.
    """
    parts = _PARTS.fullmatch(literal)
    assert parts is not None, literal
    charset = None if parts["charset"] is None else parts["charset"].decode()
    if parts["string"] is not None:
        return unescape(parts["string"]), charset
    if parts["bits"] is not None:
        return int(b"0" + parts["bits"], 2).to_bytes((len(parts["bits"]) + 7) // 8, "big"), "binary"
    if parts["number"] is not None:
        return parts["number"], "number"
    digits = parts["digits"] if parts["hex"] is None else parts["hex"]
    return bytes.fromhex(digits.decode()), charset or "binary"
