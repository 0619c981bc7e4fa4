"""The settings that a cut is made with: they are stored with its plan, and published with the cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class CutSettings:
    """What a pipeline declares of how its cuts are made: `time_zone` is where the encoder prints TIMESTAMP; `keys` are the
    columns that identify a row, by `database.table`, for tables whose definition has no key; `selection` is which tables
    are mirrored, under which names; `columns` are what mirrors carry beside upstream's."""

    time_zone: str
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: DdlPolicy = field(default_factory=DdlPolicy)
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)
