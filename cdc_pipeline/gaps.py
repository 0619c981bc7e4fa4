"""Gaps: known or possible differences between a mirror and upstream, as values, and their texts for the UI."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from cdc_pipeline.stored_json import StoredJson

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cdc_pipeline.positions import Position


class GapKind(Enum):
    """Why a mirror may differ from upstream. Lakes store the values, so they must not change."""

    # start of a mirror
    UNSEEN_START = "unseen_start"
    """No CREATE TABLE was seen."""
    UNSEEN_TABLES = "unseen_tables"
    """No CREATE TABLE was seen for some source tables of a merged mirror."""
    NOT_INCLUDED_BEFORE = "not_included_before"
    """Earlier selections excluded the table, so its earlier rows are missing."""
    FILLED_BY_QUERY = "rows_of_query"
    """The table was filled by a query (CREATE TABLE … SELECT), or from a table without a mirror."""

    NAMES_DIFFER_IN_CASE = "names_differ_in_case"
    """Two tables may share the mirror, because their names differ in case only."""

    # statements
    DDL_NOT_APPLIED = "ddl_not_applied"
    LATE_DDL = "late_ddl"
    HELD = "held"
    """`ddl_policy` holds a statement of the table."""
    QUARANTINED = "put_aside"
    """The table is quarantined: its steps failed repeatedly. A rebuild ends the quarantine."""

    UNSURE_ORDER = "unsure_order"
    """The order of changes from several partitions is unknown."""

    UNKNOWN_DUPLICATES = "unsure_copies"
    """Equal changes of a keyless table may be redeliveries."""

    # records and rows
    DEAD_LETTERS = "dead_letters"
    BAD_VALUES = "bad_values"
    """Rows with values that their column types cannot hold."""
    LATE_CHANGES = "late_changes"
    HANDLE_KEY_ONLY = "handle_key_only"
    UNKNOWN_ROWS = "unknown_rows"
    """Partial row images for rows that are not in the mirror."""
    UNSURE_UPDATES = "unsure_updates"
    """UPDATEs of a keyless table whose before image is not certain."""
    UNSURE_PARTITION = "unsure_partition"
    """Unknown whether rows belong to a table partition that was truncated, dropped or exchanged."""
    NOT_RESTORED = "not_restored"
    """RECOVER or FLASHBACK did not restore all rows or columns of the table."""

    # columns
    UNDECLARED_COLUMN = "untold_column"
    """Rows have the column, but no DDL declares it."""
    CONTRADICTORY_TYPES = "contradictory_types"
    """Messages name two types for a column that contradict each other."""
    UNCLEAR_TYPE = "unclear_type"
    """The type is known from messages only, and not completely."""
    VIRTUAL_NOT_SENT = "virtual_not_sent"
    PARTIAL_IMAGES = "partial_images"
    """Row images without the column."""
    ABSENT_DEFAULT = "absent_default"
    """Row images without the column, whose default is unknown."""
    UNSURE_CONVERSION = "unsure_conversion"
    """A type change may have converted values differently upstream."""
    NO_EXACT_EQUIVALENT = "no_sure_equal"
    """Values without an exact equivalent in the new type."""
    NULL_IN_OLDER_ROWS = "null_in_older_rows"
    NOT_COMPUTED = "not_computed"
    """Older rows lack the values of a generated column."""
    UNSURE_FORMULA = "unsure_formula"
    """The value that upstream computes is uncertain or missing for some rows."""
    DAMAGED_TEXT = "damaged_text"
    AMBIGUOUS_TIME = "shown_twice"
    """TIMESTAMP texts that are the local time of two instants (end of daylight saving time)."""
    NONEXISTENT_TIME = "never_shown"
    """TIMESTAMP texts that do not exist in the time zone (start of daylight saving time)."""
    TABLES_DIFFER = "tables_differ"
    """The source tables of a merged mirror define the column differently."""
    KEYS_DIFFER = "keys_differ"
    """The source tables of a merged mirror have different keys."""
    MASK_DIFFERS = "masked_otherwise"
    """The mask differs from the declared one."""
    HASHED_AS_OTHER_TYPE = "hashed_as_before"
    """Values were hashed as another type."""
    NAME_CONFLICT = "own_column"
    """An upstream column has the name of a metadata or computed column and replaces it."""


_RUN_ON = frozenset({GapKind.NULL_IN_OLDER_ROWS, GapKind.NOT_COMPUTED, GapKind.ABSENT_DEFAULT})
"""The detail of these kinds continues the sentence: column `a` of older rows is NULL."""
_LISTED = frozenset({GapKind.UNDECLARED_COLUMN, GapKind.VIRTUAL_NOT_SENT, GapKind.PARTIAL_IMAGES})
"""One text lists all columns with a gap of these kinds."""
_LONGEST_DETAIL = 600


@dataclass(frozen=True)
class Gap:
    """One reason why a mirror may differ from upstream. Its text quotes neither statements nor values."""

    kind: GapKind
    detail: str
    """Short text."""
    column: str | None = None
    """None: the gap concerns the table."""
    example: str = field(default="", compare=False, kw_only=True)
    """A source table of a merged mirror with this gap. Gaps that differ only in it are equal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", _cut(self.detail, _LONGEST_DETAIL))

    def __str__(self) -> str:
        return f"{self.sentence}{_such_as(self.example)}"

    @property
    def sentence(self) -> str:
        """The text without the example."""
        if self.column is None:
            return self.detail
        if self.kind in _LISTED:
            return f"{self.detail}: {self.column}"
        return f"column {self.column}{' ' if self.kind in _RUN_ON else ': '}{self.detail}"


def statement_gap(kind: GapKind, text: str, position: Position) -> Gap:
    """A gap that a statement causes. `position`: that of the statement."""
    return Gap(kind, f"{text}: see ddl_history at {position}")


GAPS_JSON = StoredJson(tuple[Gap, ...])


def merge_gaps(gaps: Iterable[Gap], more: Iterable[Gap]) -> tuple[Gap, ...]:
    """The gaps of both, without duplicate texts."""
    found: dict[str, Gap] = {}
    for gap in (*gaps, *more):
        found.setdefault(gap.sentence, gap)
    return tuple(found.values())


def gaps_after_alter(gaps: Iterable[Gap], now: Mapping[str, str | None]) -> tuple[Gap, ...]:
    """The gaps after column changes. `now`: old name → new name, or None for a dropped column, whose gaps are removed.

    Columns that are not in `now` keep their name.
    """
    folded = {name.casefold(): new for name, new in now.items()}
    found = []
    for gap in gaps:
        name = None if gap.column is None else folded.get(gap.column.casefold(), gap.column)
        if gap.column is None or name is not None:
            found.append(gap if name == gap.column else replace(gap, column=name))
    return tuple(found)


def without_kinds(gaps: Iterable[Gap], *kinds: GapKind) -> tuple[Gap, ...]:
    return tuple(gap for gap in gaps if gap.kind not in kinds)


def gap_texts(gaps: Iterable[Gap]) -> tuple[str, ...]:
    """The texts of the gaps. Equal gaps of several columns are one text."""
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
