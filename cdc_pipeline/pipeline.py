"""A pipeline as declared: where records come from, where the lake is, how values are read. Plain values, no Dagster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.dialects.decode import DialectName
    from cdc_pipeline.sources.source import Source


@dataclass(frozen=True)
class Pipeline:
    """One pipeline. `source` is where its records come from; `time_zone` is where the encoder prints TIMESTAMP; `keys` are
    the columns that identify a row, by `database.table`, for tables whose definition has no key; `ddl_policy` is what DDL
    may do to mirrors; `claim_store` is where TiCDC puts messages that are too large for a topic;
    `owners` and `tags` are shown on every node; `key_check_rows` is how large a mirror may be for its keys to be looked at
    whole; `max_runtime_seconds` is after how long a run is ended, None where Dagster's own limit holds; `selection` is
    which tables are mirrored, and under which names; `columns` are what mirrors carry beside upstream's."""

    name: str
    source: Source
    lake: str
    time_zone: str = "UTC"
    side_by_side: int = 2
    dialect: DialectName = "auto"
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ddl_policy: DdlPolicy = field(default_factory=DdlPolicy)
    claim_store: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    key_check_rows: int = 1_000_000
    max_runtime_seconds: int | None = None
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)

    @property
    def run_tags(self) -> dict[str, str]:
        """Tags of each run: whose it is, of which one at a time may run (`dagster.yaml`), and when it is ended."""
        limit = {} if self.max_runtime_seconds is None else {"dagster/max_runtime": str(self.max_runtime_seconds)}
        return {"cdc/pipeline": self.name, **limit}

    @property
    def paths(self) -> LakePaths:
        return LakePaths(self.lake, self.name)
