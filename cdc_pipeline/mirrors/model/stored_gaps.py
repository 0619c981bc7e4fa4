"""Gaps as the text that is kept in a lake. Those of lakes of format 2 are sentences: only here are they taken apart."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from cdc_pipeline.gaps import Gap, GapKind, added

if TYPE_CHECKING:
    from collections.abc import Iterable

_SUCH_AS = ", such as in "
_SENTENCES = (
    (re.compile(r"no CREATE TABLE was seen"), GapKind.UNSEEN_START),
    (re.compile(r"of some of its tables no CREATE TABLE was seen"), GapKind.UNSEEN_TABLES),
    (re.compile(r".* was not included before cut \d+: "), GapKind.NOT_INCLUDED_BEFORE),
    (re.compile(r"soft_delete: the table has a column _deleted of its own"), GapKind.OWN_COLUMN),
    (re.compile(r"the table has a column _commit_ts of its own"), GapKind.OWN_COLUMN),
    (re.compile(r"\d+ record\(s\) are dead letters of rule "), GapKind.DEAD_LETTERS),
)
_OF_COLUMN = (
    (re.compile(r"its type is not known, values are kept as text$"), GapKind.UNCLEAR_TYPE),
    (re.compile(r".* is no type of MySQL that is known here, values are kept as text$"), GapKind.UNCLEAR_TYPE),
    (re.compile(r"the labels of the .* are not known, numbers are kept as text$"), GapKind.UNCLEAR_TYPE),
    (re.compile(r"values were .* converted without certainty$"), GapKind.UNSURE_CONVERSION),
    (re.compile(r"it tells tables apart that are merged, and is not masked$"), GapKind.MASKED_OTHERWISE),
    (re.compile(r"it identifies rows, and is hashed \(mask\) where null was declared$"), GapKind.MASKED_OTHERWISE),
    (re.compile(r"the encoder has damaged its text$"), GapKind.DAMAGED_TEXT),
    (re.compile(r"its tables have .* values of some of them may not be upstream's$"), GapKind.TABLES_DIFFER),
)
_RUN_ON = (
    (re.compile(r"of older rows is not what upstream computes as "), GapKind.NOT_COMPUTED),
    (re.compile(r"of older rows (of .* )?is NULL: "), GapKind.NULL_IN_OLDER_ROWS),
    (re.compile(r"of rows that came without it is NULL: "), GapKind.ABSENT_DEFAULT),
)
_LISTED = (
    (re.compile(r"(rows have columns that no DDL has told of): (.+)", re.DOTALL), GapKind.UNTOLD_COLUMN),
    (
        re.compile(r"(virtual generated columns are not sent, they are NULL here): (.+)", re.DOTALL),
        GapKind.VIRTUAL_NOT_SENT,
    ),
    (
        re.compile(r"(rows came without some columns, which are NULL here \([^)]*\)): (.+)", re.DOTALL),
        GapKind.PARTIAL_IMAGES,
    ),
)


def gaps_text(gaps: Iterable[Gap]) -> str:
    """As JSON that `gaps_of_text` reads back to equal gaps."""
    return json.dumps([gap.as_plain() for gap in gaps], ensure_ascii=False)


def gaps_of_text(text: str, columns: Iterable[str]) -> tuple[Gap, ...]:
    """`columns` are those of the table: in the sentences of before, names are not marked as such."""
    names = tuple(columns)
    found: list[Gap] = []
    for plain in json.loads(text):
        found += gaps_of_sentence(plain, names) if isinstance(plain, str) else [Gap.from_plain(plain)]
    return added((), found)


def gaps_of_sentence(words: str, columns: tuple[str, ...]) -> list[Gap]:
    """The gaps that a version before format 3 has said in these words. Where they do not tell, the sentence is the gap."""
    sentence, _, example = words.partition(_SUCH_AS)
    for pattern, kind in _LISTED:
        if found := pattern.fullmatch(sentence):
            names = _names(found[2], columns)
            return [Gap(kind, found[1], name, example=example) for name in names] or [Gap(kind, words)]
    # the longest: of columns `a` and `a b` the words may be about either
    for name in sorted(columns, key=len, reverse=True):
        start = f"column {name}"
        if sentence.startswith(f"{start}: "):
            detail = sentence[len(start) + 2 :]
            return [Gap(_kind(_OF_COLUMN, detail), detail, name, example=example)]
        if (
            sentence.startswith(f"{start} ")
            and (kind := _kind(_RUN_ON, detail := sentence[len(start) + 1 :])) is not GapKind.EARLIER
        ):
            return [Gap(kind, detail, name, example=example)]
    return [Gap(_kind(_SENTENCES, words), words)]


def _kind(patterns: tuple[tuple[re.Pattern[str], GapKind], ...], text: str) -> GapKind:
    return next((kind for pattern, kind in patterns if pattern.match(text)), GapKind.EARLIER)


def _names(text: str, columns: tuple[str, ...]) -> list[str]:
    """The columns that the list names; none where it may be read otherwise."""
    names = text.split(", ")
    return names if set(names) <= set(columns) else []
