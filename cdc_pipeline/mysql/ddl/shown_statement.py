"""A statement as messages show it: short, and without literals, which may be values of a masked column."""

from __future__ import annotations

import re
from itertools import takewhile

_LONGEST = 200
_FEW_WORDS = 3
# with MySQL's escapes, and in the mode NO_BACKSLASH_ESCAPES
_STRINGS = (
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" """,
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" """,
)
_PIECES = r"""
    (?P<string> STRINGS )
    | (?P<kept> `[^`]*`
        | \b(?:(?:var)?(?:char|binary)|bit|(?:tiny|small|medium|big)?int|integer)\s*\(\s*\d{1,5}\s*\)
        | \b(?:decimal|numeric|float|double)\s*\(\s*\d{1,3}\s*(?:,\s*\d{1,2}\s*)?\)
        | \b(?:datetime|timestamp|time)\s*\(\s*\d\s*\) )
    | (?P<unclear> ['"`] | /\*[MT]?! )
    | (?P<comment> /\*.*?\*/ | (?:\#|--(?=\s|\Z))[^\n]* )
    | (?P<endless> /\* )
    | (?P<number> (?<![\w$])(?:0[xb][0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?![\w$]) )
    """
_RULES = [
    re.compile(_PIECES.replace("STRINGS", strings), re.VERBOSE | re.DOTALL | re.IGNORECASE) for strings in _STRINGS
]
_WORD = re.compile(r"(?!\d)[\w$.`]+")


class _UnclearError(ValueError):
    """Quotes that do not pair up, or a comment that only some servers run."""


def without_literals(text: str) -> str:
    """The text in one line of at most 200 characters. `…` replaces what is in quotes, and numbers except sizes of types.

    Names in backticks stay, comments do not. At most the first three words if it is not clear where a literal ends.
    """
    try:
        shown, other = (" ".join(rule.sub(_shown, text).split()) for rule in _RULES)
    except _UnclearError:
        shown, other = "", text
    if shown != other:
        words = takewhile(_WORD.fullmatch, text.split()[:_FEW_WORDS])
        return " ".join([*words, "…"])
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _shown(piece: re.Match[str]) -> str:
    found = piece.group()
    if piece["unclear"] or piece["endless"]:
        raise _UnclearError
    if piece["string"]:
        return f"{found[0]}…{found[0]}"
    return found if piece["kept"] else " " if piece["comment"] else "…"
