"""Gaps: what is known to be missing or unsure in a mirror, as values. Words are made of them only where people look."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class GapKind(Enum):
    """Why a mirror may differ from upstream. The values are stored in lakes: they stay as they are."""

    # the beginning
    UNSEEN_START = "unseen_start"
    """No CREATE TABLE was seen."""
    UNSEEN_TABLES = "unseen_tables"
    """The same of some of the tables of a merged mirror."""
    NOT_INCLUDED_BEFORE = "not_included_before"
    """The selection did not have the table before, nor its rows."""
    ROWS_OF_QUERY = "rows_of_query"
    """A table's first rows are those of a query, or of a table that is not here."""

    # statements
    DDL_NOT_APPLIED = "ddl_not_applied"
    LATE_DDL = "late_ddl"
    HELD = "held"
    """The table waits before a statement (`ddl_policy`)."""
    PUT_ASIDE = "put_aside"
    """A step of the table has failed again and again: it waits for a rebuild."""

    UNSURE_ORDER = "unsure_order"
    """Nothing tells in which order changes came that arrived over several partitions."""

    UNSURE_COPIES = "unsure_copies"
    """Nothing tells whether equal changes of a table without a key are one that was delivered twice."""

    # records and rows
    DEAD_LETTERS = "dead_letters"
    BAD_VALUES = "bad_values"
    """Values that their types cannot hold."""
    LATE_CHANGES = "late_changes"
    HANDLE_KEY_ONLY = "handle_key_only"
    UNKNOWN_ROWS = "unknown_rows"
    """Partial images of rows that the mirror does not have."""
    UNSURE_PARTITION = "unsure_partition"
    """Whether rows lay in a partition that was emptied, dropped or exchanged."""
    NOT_RESTORED = "not_restored"
    """Rows or columns of a table that came back (RECOVER, FLASHBACK)."""

    # columns
    UNTOLD_COLUMN = "untold_column"
    """Rows have it and no DDL has told of it."""
    UNCLEAR_TYPE = "unclear_type"
    """Only messages name its type, and not all of it."""
    VIRTUAL_NOT_SENT = "virtual_not_sent"
    PARTIAL_IMAGES = "partial_images"
    """Rows came without it."""
    ABSENT_DEFAULT = "absent_default"
    """The default of rows that came without it is not known."""
    UNSURE_CONVERSION = "unsure_conversion"
    """A change of type, after which values may not be upstream's."""
    NO_SURE_EQUAL = "no_sure_equal"
    """Values that have none in the new type."""
    NULL_IN_OLDER_ROWS = "null_in_older_rows"
    NOT_COMPUTED = "not_computed"
    """A generated column of older rows."""
    UNSURE_FORMULA = "unsure_formula"
    """What upstream computes is not sure, or not here, for some rows."""
    DAMAGED_TEXT = "damaged_text"
    SHOWN_TWICE = "shown_twice"
    """Texts of a TIMESTAMP that are the local time of two instants."""
    NEVER_SHOWN = "never_shown"
    """Texts of a TIMESTAMP that are a local time which the zone's clock leaves out."""
    TABLES_DIFFER = "tables_differ"
    """The tables of a merged mirror do not have it alike."""
    KEYS_DIFFER = "keys_differ"
    """The tables of a merged mirror do not identify rows alike."""
    MASKED_OTHERWISE = "masked_otherwise"
    """A mask is not as it was declared."""
    HASHED_AS_BEFORE = "hashed_as_before"
    """Values were hashed as those of another type."""
    OWN_COLUMN = "own_column"
    """Upstream's own column displaces one of ours."""


_RUN_ON = frozenset({GapKind.NULL_IN_OLDER_ROWS, GapKind.NOT_COMPUTED, GapKind.ABSENT_DEFAULT})
"""Of these the detail goes on with the sentence: column `a` of older rows is NULL."""
_LISTED = frozenset({GapKind.UNTOLD_COLUMN, GapKind.VIRTUAL_NOT_SENT, GapKind.PARTIAL_IMAGES})
"""Of these one sentence names all columns, at its end."""
_LONGEST_STATEMENT = 200
_LONGEST_DETAIL = 600


@dataclass(frozen=True)
class Gap:
    """One reason why a mirror may differ from upstream.

    `detail` says it in words, and is short. `column` is the one that it is about, None where it is about the table. `clear`
    is said instead where no column of the table is masked: there may be values in it. `example` is one table of a merged
    mirror of which it is so; with another example it is the same gap.
    """

    kind: GapKind
    detail: str
    column: str | None = None
    clear: str = ""
    example: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", _cut(self.detail, _LONGEST_DETAIL))
        object.__setattr__(self, "clear", _cut(self.clear, _LONGEST_DETAIL))

    def __str__(self) -> str:
        return f"{self.sentence}{_such_as(self.example)}"

    @property
    def sentence(self) -> str:
        """What it says, whichever table of many is named."""
        said = self.clear or self.detail
        if self.column is None:
            return said
        if self.kind in _LISTED:
            return f"{said}: {self.column}"
        return f"column {self.column}{' ' if self.kind in _RUN_ON else ': '}{said}"

    @property
    def hidden(self) -> Gap:
        """The same without words that may have values in them."""
        return replace(self, clear="") if self.clear else self

    def as_plain(self) -> dict[str, str]:
        column = {} if self.column is None else {"column": self.column}
        more = {"clear": self.clear, "example": self.example}
        return {
            "kind": self.kind.value,
            **column,
            "detail": self.detail,
            **{name: text for name, text in more.items() if text},
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Gap:
        return Gap(
            GapKind(plain["kind"]),
            plain["detail"],
            plain.get("column"),
            plain.get("clear", ""),
            plain.get("example", ""),
        )


def of_statement(kind: GapKind, hidden: str, clear: str, statement: str) -> Gap:
    """A gap that quotes a statement, of which a masked mirror says `hidden` alone. What is long is in `ddl_history`."""
    return Gap(kind, hidden, clear=f"{_cut(clear, _LONGEST_STATEMENT)}: {short_statement(statement)}")


def short_statement(statement: str) -> str:
    """The statement as it is quoted: its beginning, and where the whole is."""
    if len(statement) <= _LONGEST_STATEMENT:
        return statement
    return f"{statement[:_LONGEST_STATEMENT]}… ({len(statement)} characters, all of them in ddl_history)"


def gaps_to_json(gaps: Iterable[Gap]) -> str:
    """The text that `gaps_from_json` reads back to equal gaps."""
    return json.dumps([gap.as_plain() for gap in gaps], ensure_ascii=False)


def gaps_from_json(text: str) -> tuple[Gap, ...]:
    return tuple(map(Gap.from_plain, json.loads(text)))


def added(gaps: Iterable[Gap], more: Iterable[Gap]) -> tuple[Gap, ...]:
    """The gaps with those of the others that say something new."""
    found: dict[str, Gap] = {}
    for gap in (*gaps, *more):
        found.setdefault(gap.sentence, gap)
    return tuple(found.values())


def carried(gaps: Iterable[Gap], now: Mapping[str, str | None]) -> tuple[Gap, ...]:
    """The gaps after columns have changed: `now` has the new name of each column that has another one, None for one that is
    gone, and its gaps with it. A column that `now` does not name is as it was."""
    folded = {name.casefold(): new for name, new in now.items()}
    found = []
    for gap in gaps:
        name = None if gap.column is None else folded.get(gap.column.casefold(), gap.column)
        if gap.column is None or name is not None:
            found.append(gap if name == gap.column else replace(gap, column=name))
    return tuple(found)


def of_other_kinds(gaps: Iterable[Gap], *kinds: GapKind) -> tuple[Gap, ...]:
    return tuple(gap for gap in gaps if gap.kind not in kinds)


def in_words(gaps: Iterable[Gap]) -> tuple[str, ...]:
    """The gaps as people see them; columns of which the same is to be said are in one sentence."""
    listed: dict[tuple[GapKind, str, str], list[str]] = {}
    found: list[str | tuple[GapKind, str, str]] = []
    for gap in gaps:
        if gap.kind not in _LISTED or gap.column is None:
            found.append(str(gap))
            continue
        same = (gap.kind, gap.detail, gap.example)
        if same not in listed:
            found.append(same)
        listed.setdefault(same, []).append(gap.column)
    return tuple(
        item if isinstance(item, str) else f"{item[1]}: {', '.join(listed[item])}{_such_as(item[2])}" for item in found
    )


def _such_as(example: str) -> str:
    return f", such as in {example}" if example else ""


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
