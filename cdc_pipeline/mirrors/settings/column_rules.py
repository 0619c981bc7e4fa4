"""The column rules of a pipeline: `metadata_columns`, `mask`, `soft_delete` and `computed`.

The rules apply when a mirror is created; after that its `MirrorState` stores what it has. Masks can be added to an
existing mirror. Only a rebuild removes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from pydantic import Field

from cdc_pipeline.errors import LakeError
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn, ComputedRules, merged_columns
from cdc_pipeline.mirrors.model.masks import HASH, NULL, Mask, salt_key
from cdc_pipeline.mirrors.model.source_tables import SOURCE_NAMES
from cdc_pipeline.mirrors.model.state import DELETED, METADATA_COLUMNS, RETIRED_MARK, MirrorState
from cdc_pipeline.mirrors.model.steps import Step, final_states
from cdc_pipeline.mirrors.settings.table_patterns import matches, matches_any
from cdc_pipeline.mysql.model.table import Column, TableName
from cdc_pipeline.stored_json import StoredJson

HAS_OWN_DELETED = Gap(
    GapKind.NAME_CONFLICT,
    f"soft_delete: the table has a column {DELETED} of its own, so deletes remove rows from the mirror",
)


class MaskSaltError(LakeError):
    """The declared `mask_salt` differs from the one that stored values were hashed with: equal values would get different
    hashes."""


@dataclass(frozen=True)
class ColumnRules:
    """The declared rules. Patterns match `database.table` (`table_patterns`); column names ignore case, as in MySQL."""

    metadata: tuple[str, ...] = METADATA_COLUMNS
    """`metadata_columns` of new mirrors, in the order of `state.METADATA`."""
    masks: tuple[tuple[str, tuple[tuple[str, Mask], ...]], ...] = ()
    """(pattern, (column, mask) …). For each column the first entry that names it wins."""
    salt: Annotated[str, Field(exclude=True)] = field(default="", repr=False)
    """`mask_salt`. Never stored."""
    soft_delete: tuple[str, ...] = ()
    """Patterns of new mirrors that keep deleted rows."""
    computed: ComputedRules = ()
    """`computed` columns of mirrors that are created or renamed."""

    @property
    def mask_key(self) -> str:
        """Identifies the salt without revealing it; empty without a salt."""
        return salt_key(self.salt) if self.salt else ""

    def has_masks_for(self, name: TableName) -> bool:
        """Whether a pattern of `masks` may match the mirror: its name, or the former name of a retired one."""
        former = replace(name, table=name.table.rpartition(RETIRED_MARK)[0])
        patterns = [pattern for pattern, _ in self.masks]
        return matches_any(str(name), patterns) or (bool(former.table) and matches_any(str(former), patterns))

    def mask_for(self, name: TableName, column: str) -> Mask | None:
        return next(
            (
                mask
                for pattern, columns in self.masks
                if matches(str(name), pattern)
                for masked, mask in columns
                if masked.casefold() == column.casefold()
            ),
            None,
        )

    def computed_for(self, state: MirrorState) -> tuple[ComputedColumn, ...]:
        """The computed columns that the rules declare for a mirror of this name."""
        declared: tuple[ComputedColumn, ...] = ()
        for pattern, columns in self.computed:
            if matches(str(state.former_name), pattern):
                declared = merged_columns(declared, (*declared, *columns))
        return declared

    def with_masks(self, state: MirrorState, earlier: Mapping[str, Mask]) -> MirrorState:
        """The state with `earlier` masks (by today's column names) and those of the rules, and with the gaps they cause."""
        masks: dict[str, Mask] = {}
        gaps = []
        key = {name.casefold() for name in state.schema.row_key}
        for column in state.schema.columns:
            mask = earlier.get(column.name) or self.mask_for(state.former_name, column.name)
            if mask is not None and state.source_tables is not None and column.name in SOURCE_NAMES:
                gaps.append(_mask_gap(column, "it identifies the source table of a merged mirror and is not masked"))
                continue
            if mask == NULL and column.name.casefold() in key:
                # a key column cannot be NULL
                gaps.append(
                    _mask_gap(column, "it is part of the key and is masked with hash instead of the declared null")
                )
                mask = HASH
            if mask is not None:
                masks[column.name] = mask
        has_hashes = HASH in masks.values()
        masked = replace(state, masks=tuple(masks.items()), mask_key=self.mask_key if has_hashes else "")
        return masked.with_gaps(*gaps)

    def declares_soft_delete(self, name: TableName) -> bool:
        """Whether `soft_delete` is declared for the table. It takes effect only if rows have a key."""
        return matches_any(str(name), self.soft_delete)

    def with_soft_delete(self, state: MirrorState, key: tuple[str, ...]) -> MirrorState:
        """The state of a new, empty mirror with its `soft_delete` key; without one where the rules do not apply."""
        applies = self.declares_soft_delete(state.name) and bool(key)
        if applies and state.schema.find(DELETED) is not None:
            return replace(state, soft_delete_key=None).with_gaps(HAS_OWN_DELETED)
        return replace(state, soft_delete_key=key if applies else None)

    def soft_delete_problem(self, state: MirrorState, key: tuple[str, ...]) -> str:
        """Why a mirror with `soft_delete` declared does not keep deleted rows; empty if it does, or if none is declared."""
        if state.has_soft_delete or not self.declares_soft_delete(state.name) or not state.schema.columns:
            return ""
        if state.schema.find(DELETED) is not None:
            return f"the table has a column {DELETED} of its own"
        if not key:
            return "its rows have no key"
        return (
            "the mirror was created before soft_delete was declared or before the table had a key; rebuild the mirror"
        )

    def has_same_salt(self, state: MirrorState) -> bool:
        """Whether the declared salt is the one that the mirror's hashes use; True without hashes."""
        return state.mask_key in ("", self.mask_key)

    def check_salt(self, state: MirrorState) -> None:
        """Raises MaskSaltError if the mirror's hashes use another salt than the declared one."""
        if not self.has_same_salt(state):
            raise MaskSaltError(
                f"mask_salt: values of {state.name} were hashed with another salt than the declared one. Declare the former "
                "salt again, or run the rebuild job to hash all values with the new one"
            )

    def with_salt(self, salt: str, mask_key: str) -> ColumnRules:
        """Stored rules with the salt, which is not stored. Raises MaskSaltError if `mask_key` is not its key."""
        rules = replace(self, salt=salt)
        if self.masks and mask_key not in ("", rules.mask_key):
            raise MaskSaltError(
                "mask_salt: it is missing, or it differs from the salt that stored values were hashed with"
            )
        return rules

    def to_json(self) -> str:
        """JSON with the `mask_key` instead of the salt."""
        return _RULES_JSON.to_json((self, self.mask_key))


_RULES_JSON = StoredJson(tuple[ColumnRules, str])


def _mask_gap(column: Column, message: str) -> Gap:
    return Gap(GapKind.MASK_DIFFERS, message, column.name)


def unknown_masked_columns(rules: ColumnRules, steps: Iterable[Step]) -> dict[TableName, list[str]]:
    """The masked columns that a table does not have after the steps (misspelled, or former names), by table.

    Only those of rules that name the table exactly, without a wildcard.
    """
    found = dict[TableName, list[str]]()
    for state in sorted(final_states(steps), key=lambda state: state.name):
        own = [columns for pattern, columns in rules.masks if pattern.lower() == str(state.name).lower()]
        existing = {name.casefold() for name in state.schema.column_names}
        if unknown := {column for columns in own for column, _ in columns if column.casefold() not in existing}:
            found[state.name] = sorted(unknown)
    return found


def soft_delete_problems(
    rules: ColumnRules, steps: Iterable[Step], key_of: Callable[[MirrorState], tuple[str, ...]]
) -> dict[TableName, str]:
    """Why mirrors with `soft_delete` declared do not keep deleted rows after the steps, by table."""
    reasons = {state.name: rules.soft_delete_problem(state, key_of(state)) for state in final_states(steps)}
    return {name: reason for name, reason in sorted(reasons.items()) if reason}
