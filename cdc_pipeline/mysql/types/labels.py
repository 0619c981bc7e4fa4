"""Matches text in statements to the labels of ENUM and SET columns.

An exact match has priority, then a match under the collation of the column. If the collation is unknown, the text must
match exactly one label at the first level of folding (case, accents, both) that matches any. Trailing spaces are ignored.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LabelError(ValueError):
    """A text that matches no label, or more than one."""


def matching_label(text: str, members: Sequence[str], collation: str | None) -> str:
    """The label that matches the text. Raises LabelError if no label or more than one matches.

    Upstream has accepted the text. So if the collation is unknown, the label that differs least is the match.
    """
    wanted = text.rstrip(" ")
    if wanted in members:
        return wanted
    for fold in _folds(collation):
        matches = [member for member in members if fold(member) == fold(wanted)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise LabelError(
                f"{text!r} may be any of the labels {', '.join(map(repr, matches))}: the collation is not known"
            )
    raise LabelError(f"{text!r} is no label")


def matching_labels(text: str, members: Sequence[str], collation: str | None) -> str:
    """The value of a SET: the labels that match the comma-separated text, in definition order, each once.

    Raises LabelError as `matching_label` does.
    """
    chosen = (
        {matching_label(part, members, collation) for part in text.rstrip(" ").split(",")}
        if text.rstrip(" ")
        else set()
    )
    return ",".join(member for member in members if member in chosen)


def _folds(collation: str | None) -> list[Callable[[str], str]]:
    """The foldings under which the collation compares text, from the weakest to the strongest."""
    if collation is None:
        return [_without_case, _without_accents, _without_both]
    if collation == "binary" or collation.endswith("_bin"):
        return []
    accents = "_as_" not in collation and not collation.endswith("_as")
    case = not collation.endswith(("_cs", "_cs_0900", "_ks"))
    return [
        *([_without_case] if case else []),
        *([_without_accents] if accents else []),
        *([_without_both] if case and accents else []),
    ]


def _without_case(text: str) -> str:
    return unicodedata.normalize("NFC", text.casefold())


def _without_accents(text: str) -> str:
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if not unicodedata.combining(letter))


def _without_both(text: str) -> str:
    return _without_accents(text.casefold()).casefold()
