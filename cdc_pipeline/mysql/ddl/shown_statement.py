"""A statement as messages show it: short, and without the text of literals, which may be a value of a masked column."""

from __future__ import annotations

import re

_LONGEST = 200
# a literal that is not closed ends with the statement
_LITERAL = re.compile(r"""(')(?:''|\\.|[^'\\])*(?:'|\\?$)|(")(?:""|\\.|[^"\\])*(?:"|\\?$)|`[^`]*`""", re.DOTALL)


def without_literals(text: str) -> str:
    """The text in one line of at most 200 characters. What is in quotes is replaced by `…`; names in backticks stay."""
    shown = " ".join(_LITERAL.sub(_without_text, text).split())
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _without_text(literal: re.Match[str]) -> str:
    quote = literal.group(1) or literal.group(2)
    return f"{quote}…{quote}" if quote else literal.group()
