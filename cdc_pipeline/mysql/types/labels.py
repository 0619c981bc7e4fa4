"""Labels of ENUM and SET: which one a text means.

An exact match wins in any case. Else the column's collation decides; where it is not known the labels say something of it
themselves: of a list that has two labels apart, the collation tells them apart. Spaces at the end never count.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class LabelError(ValueError):
    """A text that is no label, or of which the label that it means is not known."""


def label_of(text: str, members: Sequence[str], collation: str | None) -> str:
    """The label that a statement means by a text. Raises LabelError where none or more than one could be meant.

    Upstream has accepted the text, so that one is meant: where the collation is not known, the label that differs least.
    """
    wanted = text.rstrip(" ")
    if wanted in members:
        return wanted
    for fold in _folds(collation):
        found = [member for member in members if fold(member) == fold(wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            raise LabelError(
                f"{text!r} may be any of the labels {', '.join(map(repr, found))}: the collation is not known"
            )
    raise LabelError(f"{text!r} is no label")


def labels_of(text: str, members: Sequence[str], collation: str | None) -> str:
    """The value of a SET that a statement means: its labels in the order of the definition, each once."""
    chosen = {label_of(part, members, collation) for part in text.rstrip(" ").split(",")} if text.rstrip(" ") else set()
    return ",".join(member for member in members if member in chosen)


def _folds(collation: str | None) -> list[Callable[[str], str]]:
    """What a collation holds for equal, from the least that it overlooks to the most."""
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
