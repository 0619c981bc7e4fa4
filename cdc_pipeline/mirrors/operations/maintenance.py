"""Upkeep of a lake: small files put together, and files that no kept version needs any more removed.

Nothing that can be read changes. Versions stay readable for `keep_hours` after they were replaced, and with them each cut
that was the newest within that time: a version's files are removed by the time at which they were replaced.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta.tables import DeltaTable

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import OWN_TABLES
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.settings.table_patterns import matches_any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

LEAST_KEEP_HOURS = 168
"""Delta's own limit: a reader, or a writer that is slow, may need what was replaced while it was at work."""


@dataclass(frozen=True)
class Upkeep:
    """One table: how many small files went into how many, and whether what is old was removed."""

    table: str
    files_removed: int
    files_added: int
    vacuumed: bool
    seconds: float


@dataclass(frozen=True)
class Maintenance:
    """What to do: `tables` are patterns on a table's name as it is below the pipeline's folder, `change_log` or
    `mirror/shop.orders`. Raises LakeError where `keep_hours` is below what readers need."""

    tables: Sequence[str] = ("*",)
    compact: bool = True
    vacuum: bool = True
    keep_hours: int = LEAST_KEEP_HOURS

    def __post_init__(self) -> None:
        if self.keep_hours < LEAST_KEEP_HOURS:
            raise LakeError(
                f"keep_hours: {self.keep_hours} is too little: {LEAST_KEEP_HOURS} or more are expected, so that cuts stay "
                "readable for those who read them"
            )

    def done(self, spark: SparkSession, paths: LakePaths, report: Callable[[str], None]) -> list[Upkeep]:
        """Keeps each chosen table up, one after another. Call it as the only writer (`lake.lock`).

        Raises LakeError where no table has such a name, and where a cut was begun and not published: its mirrors have
        gone on already, and only the next ingest may say that what they were is not needed.
        """
        published = published_cut(spark, paths)
        if is_begun(spark, paths, published):
            raise LakeError("a cut was begun and is not published: run the ingest first", pipeline=paths.pipeline)
        names = {table: paths.table(table) for table in OWN_TABLES}
        names |= {f"mirror/{name}": paths.mirror(name) for name in sorted(published.names)}
        chosen = {name: path for name, path in names.items() if matches_any(name, self.tables)}
        if not chosen:
            raise LakeError(
                f"{list(self.tables)} names no table of the lake: {', '.join(names)}", pipeline=paths.pipeline
            )
        found = []
        for name, path in chosen.items():
            if table_state(spark, path) is not None:
                found.append(self._kept_up(spark, name, path))
                report(
                    f"{name}: {found[-1].files_removed} files into {found[-1].files_added}, {found[-1].seconds:.1f} s"
                )
        return found

    def _kept_up(self, spark: SparkSession, name: str, path: str) -> Upkeep:
        started = time.monotonic()
        table = DeltaTable.forPath(spark, path)
        removed = added = 0
        if self.compact:
            metrics = table.optimize().executeCompaction().select("metrics.numFilesRemoved", "metrics.numFilesAdded")
            removed, added = metrics.collect()[0]
        if self.vacuum:
            table.vacuum(self.keep_hours)
        return Upkeep(name, removed, added, self.vacuum, time.monotonic() - started)
