"""What a pipeline says of the columns of its mirrors: which they have beside upstream's, and which they do not show.

A mirror keeps what held when it was made: its own state has it (`state.MirrorState`). Masks only grow, until a rebuild.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.computed_columns import (
    DerivedColumn,
    DerivedRules,
    merged,
    rules_as_plain,
    rules_from_plain,
)
from cdc_pipeline.mirrors.model.masks import HASH, NULL, Mask, salt_key
from cdc_pipeline.mirrors.model.shards import SOURCE_NAMES
from cdc_pipeline.mirrors.model.state import DELETED, TRACE_NAMES, MirrorState
from cdc_pipeline.mirrors.model.steps import ApplyRows, states_left
from cdc_pipeline.mirrors.settings.table_patterns import matches, matches_any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cdc_pipeline.mirrors.model.steps import Step
    from cdc_pipeline.mysql.model.table import Column, TableName


OWN_DELETED = Gap(
    GapKind.OWN_COLUMN,
    f"soft_delete: the table has a column {DELETED} of its own, so that rows which upstream deletes go",
)

OWN_COMMIT_TS = Gap(
    GapKind.OWN_COLUMN,
    "the table has a column _commit_ts of its own, so that rows do not say when they were committed: where there are no "
    "watermarks, an old change that is delivered again may undo a newer one",
)


class MaskSaltError(LakeError):
    """Values were hashed with another salt than the one that is declared: equal ones would not be equal any more."""


@dataclass(frozen=True)
class ColumnRules:
    """`trace` are the columns of `state.TRACE` that mirrors have which are made from now on, in its order.

    `masks` are (pattern on `database.table`, (column, how) …) in order; the first that names a column of a table counts.
    A pattern is as in `DdlPolicy`; columns' names are compared without case, as MySQL does. `salt` is that of hashed values.
    `soft_delete` are patterns on mirrors that keep what upstream deletes, if they are made from now on. `derived` are the
    columns that mirrors have which are made or get a name from now on, in the same way as `masks`.
    """

    trace: tuple[str, ...] = TRACE_NAMES
    masks: tuple[tuple[str, tuple[tuple[str, Mask], ...]], ...] = ()
    salt: str = field(default="", repr=False)
    soft_delete: tuple[str, ...] = ()
    derived: DerivedRules = ()

    @property
    def mask_key(self) -> str:
        return salt_key(self.salt) if self.salt else ""

    def names(self, name: TableName) -> bool:
        """Whether a pattern matches the table."""
        return matches_any(str(name), (pattern for pattern, _ in self.masks))

    def mask_of(self, name: TableName, column: str) -> Mask | None:
        return next(
            (
                how
                for pattern, columns in self.masks
                if matches(str(name), pattern)
                for named, how in columns
                if named.casefold() == column.casefold()
            ),
            None,
        )

    def derived_of(self, state: MirrorState) -> tuple[DerivedColumn, ...]:
        """The derived columns of a mirror of this name."""
        found: tuple[DerivedColumn, ...] = ()
        for pattern, columns in self.derived:
            if matches(str(state.name_upstream), pattern):
                found = merged(found, (*found, *columns))
        return found

    def without_column(self, state: MirrorState) -> list[str]:
        """The columns that the rules name for this very table, and that it does not have."""
        there = {name.casefold() for name in state.schema.column_names}
        return sorted(
            {
                column
                for pattern, columns in self.masks
                if pattern == str(state.name)
                for column, _ in columns
                if column.casefold() not in there
            }
        )

    def masked(self, state: MirrorState, carried: Mapping[str, Mask]) -> MirrorState:
        """The state with its masks: those `carried` from columns that were masked before, by the names they have now, and
        those of the rules. A column that identifies rows cannot be NULL: it is hashed."""
        found: dict[str, Mask] = {}
        gaps = []
        key = {name.casefold() for name in state.schema.row_key}
        for column in state.schema.columns:
            how = carried.get(column.name) or self.mask_of(state.name_upstream, column.name)
            if how is not None and state.shards is not None and column.name in SOURCE_NAMES:
                gaps.append(_masked(column, "it tells tables apart that are merged, and is not masked"))
                continue
            if how == NULL and column.name.casefold() in key:
                gaps.append(_masked(column, "it identifies rows, and is hashed (mask) where null was declared"))
                how = HASH
            if how is not None:
                found[column.name] = how
        hashed = HASH in found.values()
        if state.has_own_commit_ts:
            gaps.append(OWN_COMMIT_TS)
        masked = replace(state, masks=tuple(found.items()), mask_key=self.mask_key if hashed else "")
        return masked.with_gaps(*gaps)

    def keeps_deleted(self, name: TableName) -> bool:
        """Whether the table's mirror is to keep what upstream deletes, if its rows have a key."""
        return matches_any(str(name), self.soft_delete)

    def with_deleted(self, state: MirrorState, key: tuple[str, ...]) -> MirrorState:
        """The state of a mirror that is made now, in which no row is; `key` identifies its rows."""
        wanted = self.keeps_deleted(state.name) and bool(key)
        if wanted and state.schema.find(DELETED) is not None:
            return replace(state, soft_key=None).with_gaps(OWN_DELETED)
        return replace(state, soft_key=key if wanted else None)

    def why_not_kept(self, state: MirrorState, key: tuple[str, ...]) -> str:
        """Why the table's mirror, which the rules want to, does not keep what upstream deletes; empty where it does, or is
        not wanted to."""
        if state.keeps_deleted or not self.keeps_deleted(state.name) or not state.schema.columns:
            return ""
        if state.schema.find(DELETED) is not None:
            return f"the table has a column {DELETED} of its own"
        if not key:
            return "its rows have no key"
        return "the mirror was made without it, or before its rows had a key: a rebuild lets it"

    def has_salt(self, state: MirrorState) -> bool:
        """Whether the mirror's values were hashed with this salt, if any were."""
        return state.mask_key in ("", self.mask_key)

    def check_salt(self, state: MirrorState) -> None:
        """Raises MaskSaltError where the mirror has values that were hashed with another salt."""
        if not self.has_salt(state):
            raise MaskSaltError(
                f"mask_salt: values of {state.name} were hashed with another, or none is declared now. Declare the one of "
                "before, or let the rebuild job hash everything anew"
            )

    def as_plain(self) -> dict[str, Any]:
        """What `from_plain` reads back to equal rules, as JSON can hold it. Of the salt it has the `mask_key` only."""
        masks = [[pattern, [list(column) for column in columns]] for pattern, columns in self.masks]
        return {
            "trace": list(self.trace),
            "masks": masks,
            "mask_key": self.mask_key if masks else "",
            "soft_delete": list(self.soft_delete),
            "computed": rules_as_plain(self.derived),
        }

    @staticmethod
    def from_plain(plain: dict[str, Any], salt: str = "") -> ColumnRules:
        """Raises MaskSaltError where values were hashed with another salt than this."""
        masks = tuple(
            (pattern, tuple((column, how) for column, how in columns)) for pattern, columns in plain.get("masks", ())
        )
        soft_delete, derived = tuple(plain.get("soft_delete", ())), rules_from_plain(plain.get("computed", ()))
        rules = ColumnRules(tuple(plain["trace"]), masks, salt, soft_delete, derived)
        if plain.get("mask_key") and plain["mask_key"] != rules.mask_key:
            raise MaskSaltError("mask_salt: it is missing here, or is another than values were hashed with before")
        return rules


def _masked(column: Column, words: str) -> Gap:
    return Gap(GapKind.MASKED_OTHERWISE, words, column.name)


def check_order(steps: Iterable[Step], resolved_tso: int | None, pipeline: str) -> None:
    """Where there are no watermarks a change may be delivered again after newer ones, and only the `_commit_ts` of a
    mirror's row tells that. Raises LakeError, before anything is touched, where rows would go into mirrors without it."""
    if resolved_tso is not None:
        return
    states = [step.state for step in steps if isinstance(step, ApplyRows)]
    # one that upstream's own column has displaced is a gap of its table, which stops no other
    bare = [state for state in states if "_commit_ts" not in state.trace and not state.has_own_commit_ts]
    names = sorted({str(state.name) for state in bare})
    if names:
        raise LakeError(
            "metadata_columns: _commit_ts is left out, and the streams have no watermarks: an old change that is delivered "
            f"again could undo a newer row of {', '.join(names)}. Keep _commit_ts in metadata_columns",
            pipeline=pipeline,
        )


def nowhere(rules: ColumnRules, steps: Iterable[Step]) -> dict[TableName, list[str]]:
    """For each table that the steps leave, the masked columns that it does not have: names that were misspelt, or that
    columns had before."""
    found = {state.name: rules.without_column(state) for state in states_left(steps)}
    return {name: columns for name, columns in sorted(found.items()) if columns}


def not_kept(
    rules: ColumnRules, steps: Iterable[Step], key_of: Callable[[MirrorState], tuple[str, ...]]
) -> dict[TableName, str]:
    """For each table that the steps leave, why its mirror does not keep what upstream deletes although it is wanted to."""
    found = {state.name: rules.why_not_kept(state, key_of(state)) for state in states_left(steps)}
    return {name: reason for name, reason in sorted(found.items()) if reason}
