"""A pipeline as declared: where records come from, where the lake is, how values are read. Plain values, no Dagster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.resources.lake import LakePaths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.dialects.decode import DialectName


@dataclass(frozen=True)
class Pipeline:
    """One pipeline. `captures` is the folder of its source; `time_zone` is where the encoder prints TIMESTAMP; `keys` are
    the columns that identify a row, by `database.table`, for tables whose definition has no key; `ddl_policy` is what DDL
    may do to mirrors."""

    name: str
    captures: str
    lake: str
    time_zone: str = "UTC"
    side_by_side: int = 2
    dialect: DialectName = "auto"
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ddl_policy: DdlPolicy = field(default_factory=DdlPolicy)

    @property
    def paths(self) -> LakePaths:
        return LakePaths(self.lake, self.name)
