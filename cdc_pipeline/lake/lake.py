"""One pipeline's tables in a lake, with the Spark session that reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import is_for_delta_rs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.delta import TableState
    from cdc_pipeline.lake.paths import LakePaths


@dataclass(frozen=True)
class Lake:
    """The handle that every function takes which reads or writes the lake."""

    spark: SparkSession
    paths: LakePaths

    def read(self, table: str) -> DataFrame:
        """The rows of one of `paths.OWN_TABLES`, which must exist."""
        return self.read_path(self.paths.table(table))

    def read_if_exists(self, table: str) -> DataFrame | None:
        """As `read`; None if the table does not exist."""
        return self.read(table) if self.exists(table) else None

    def read_path(self, path: str) -> DataFrame:
        """The rows of the Delta table at `path`, such as a mirror's."""
        return self.spark.read.format("delta").load(path)

    def state(self, table: str) -> TableState | None:
        """Metadata of one of `paths.OWN_TABLES`, without a Spark job; None if it does not exist."""
        return table_state(self.spark, self.paths.table(table))

    def exists(self, table: str) -> bool:
        """Whether one of `paths.OWN_TABLES` exists."""
        path = self.paths.table(table)
        return DeltaTable.is_deltatable(path) if is_for_delta_rs(path) else self.state(table) is not None
