"""Gaps: known or possible differences between a mirror and upstream, as values, and their texts for the UI."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from cdc_pipeline.positions import Position
from cdc_pipeline.stored_json import StoredJson


class GapKind(Enum):
    """Why a mirror may differ from upstream. Lakes store the name in lower case, so a member must not be renamed."""

    _generate_next_value_ = staticmethod(lambda name, start, count, last_values: name.lower())

    # start of a mirror
    UNSEEN_START = auto()
    """No CREATE TABLE was seen."""
    UNSEEN_TABLES = auto()
    """No CREATE TABLE was seen for some source tables of a merged mirror."""
    NOT_INCLUDED_BEFORE = auto()
    """Earlier selections excluded the table, so its earlier rows are missing."""
    NAMES_DIFFER_IN_CASE = auto()
    """Two tables may share the mirror, because their names differ in case only."""

    # statements
    DDL_NOT_APPLIED = auto()
    LATE_DDL = auto()
    HELD = auto()
    """`ddl_policy` holds a statement of the table."""
    QUARANTINED = auto()
    """The table is quarantined: its steps failed repeatedly. A rebuild ends the quarantine."""

    # records and rows
    UNSURE_ORDER = auto()
    """The order of changes from several partitions is unknown."""
    UNKNOWN_DUPLICATES = auto()
    """Equal changes of a keyless table, or equal statements, may be redeliveries."""
    DEAD_LETTERS = auto()
    BAD_VALUES = auto()
    """Rows with values that their column types cannot hold."""
    LATE_CHANGES = auto()
    CONTRADICTED = auto()
    """Changes say of their rows what the mirror did not have (`mirrors.operations.verification`)."""
    HANDLE_KEY_ONLY = auto()
    UNKNOWN_ROWS = auto()
    """Partial row images for rows that are not in the mirror, or changes of rows without a key that it does not have."""
    UNSURE_UPDATES = auto()
    """UPDATEs of a keyless table whose before image is not certain."""
    UNSURE_PARTITION = auto()
    """Unknown whether rows belong to a table partition that was truncated, dropped or exchanged."""
    NOT_RESTORED = auto()
    """RECOVER or FLASHBACK brought the table back without its rows."""
    CASCADES = auto()
    """A foreign key changes rows of the table without row events in the binlog."""
    UNLOGGED_ENGINE = auto()
    """The storage engine changes rows without row events in the binlog, or the reverse."""
    TIME_ZONE_CHANGED = auto()
    """The setting `time_zone` has changed since values were read."""

    # columns
    UNDECLARED_COLUMN = auto()
    """Rows have the column, but no DDL declares it."""
    CONTRADICTORY_TYPES = auto()
    """Messages name two types for a column that contradict each other, or other labels than its definition."""
    UNCLEAR_TYPE = auto()
    """The type is known from messages only, and not completely."""
    VIRTUAL_NOT_SENT = auto()
    PARTIAL_IMAGES = auto()
    """Row images without the column."""
    ABSENT_DEFAULT = auto()
    """Row images without the column, whose default is unknown."""
    UNSURE_CONVERSION = auto()
    """A type change may have converted values differently upstream."""
    NO_EXACT_EQUIVALENT = auto()
    """Values without an exact equivalent in the new type."""
    NULL_IN_OLDER_ROWS = auto()
    NOT_COMPUTED = auto()
    """Older rows lack the values of a generated column."""
    UNSURE_FORMULA = auto()
    """The value that upstream computes is uncertain or missing for some rows."""
    FEW_DIGITS = auto()
    """Values that an export prints with six digits."""
    DAMAGED_TEXT = auto()
    AMBIGUOUS_TIME = auto()
    """TIMESTAMP texts that are the local time of two instants (end of daylight saving time)."""
    NONEXISTENT_TIME = auto()
    """TIMESTAMP texts that do not exist in the time zone (start of daylight saving time)."""
    TABLES_DIFFER = auto()
    """The source tables of a merged mirror define the column differently."""
    KEYS_DIFFER = auto()
    """The source tables of a merged mirror have different keys, or messages name another key than the definition."""
    MASK_DIFFERS = auto()
    """The mask differs from the declared one."""
    HASHED_AS_OTHER_TYPE = auto()
    """Values were hashed as another type."""
    NAME_CONFLICT = auto()
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
    """A source table of a merged mirror with this gap; for BAD_VALUES the position of the first message. Gaps that differ
    only in it are equal."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", _cut(self.detail, _LONGEST_DETAIL))

    def __str__(self) -> str:
        if self.kind is GapKind.BAD_VALUES and self.example:
            return f"{self.sentence}, the first at {self.example}"
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
