"""The settings of a cut. They are stored with its plan and published with the cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection


@dataclass(frozen=True)
class CutSettings:
    """What a pipeline declares about its cuts."""

    time_zone: str
    """The zone in which the encoder prints TIMESTAMP."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Key columns by `database.table`, for tables whose definition has no key."""
    policy: DdlPolicy = field(default_factory=DdlPolicy)
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)
