"""Columns that messages spell otherwise than the mirror: in another case, which upstream never distinguishes, or with each
back-tick twice, as Canal copies them from the definition (canal-facts 14)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cdc_pipeline.mirrors.changes.row_groups import RowGroup
    from cdc_pipeline.mirrors.model.state import MirrorState


def column_spellings(groups: Sequence[RowGroup], state: MirrorState | None) -> dict[str, str]:
    """Name in the messages → name in the mirror, of columns that they spell otherwise. A new column is spelled as in the
    first message that has it."""
    names = {} if state is None else {name.casefold(): name for name in state.schema.column_names}
    found: dict[str, str] = {}
    for group in groups:
        doubles = dialect_has_trait(group.dialect, Trait.DOUBLES_BACK_TICKS)
        for name in (*group.columns, *group.key_names):
            folded = name.casefold()
            single = folded.replace("``", "`") if doubles else folded
            if (known := names.setdefault(single if single in names else folded, name)) != name:
                found[name] = known
    return found


def with_spellings(group: RowGroup, spellings: Mapping[str, str]) -> RowGroup:
    """The group with its columns as the mirror spells them."""

    def spelled(name: str) -> str:
        return spellings.get(name, name)

    types = replace(
        group.types,
        mysql_types={spelled(name): text for name, text in group.types.mysql_types.items()},
        encodings={spelled(name): encoding for name, encoding in group.types.encodings.items()},
    )
    columns, key = (tuple(map(spelled, names)) for names in (group.columns, group.key_names))
    return replace(group, columns=columns, key_names=key, types=types)
