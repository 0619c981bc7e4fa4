"""One pipeline's tables in a lake, with the Spark session that reads and writes them."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import TableState, table_state
from cdc_pipeline.lake.file_statistics import find_batch_files
from cdc_pipeline.lake.paths import LakePaths, is_for_delta_rs
from cdc_pipeline.lake.store import storage_options
from cdc_pipeline.spark.jvm import balanced


@dataclass(frozen=True)
class Lake:
    """The handle that every function takes which reads or writes the lake."""

    spark: SparkSession
    paths: LakePaths

    def start_session(self) -> None:
        """Starts the session if it is `started_later`: PySpark builds no columns before."""
        _ = self.spark.sparkContext

    def read(self, table: str) -> DataFrame:
        """The rows of one of `paths.OWN_TABLES`, which must exist."""
        return self.read_path(self.paths.table(table))

    def read_if_exists(self, table: str) -> DataFrame | None:
        """As `read`; None if the table does not exist."""
        return self.read(table) if self.exists(table) else None

    def read_batches(self, table: str, first: int, last: int, above: Mapping[str, int] | None = None) -> DataFrame:
        """The rows of the batches from `first` to `last`. Fast if they have few files.

        `above`: without rows, or without files, in which no column is above its bound.
        """
        bounds = above or {}
        files = find_batch_files(self.paths.table(table), first, last, bounds)
        self.start_session()
        of_batches = F.col("batch_id").between(first, last)
        if files is None:
            higher = (F.col(column) > bound for column, bound in bounds.items())
            return self.read(table).where(of_batches & balanced(operator.or_, higher, F.lit(True)))
        if not files.paths:
            return self.spark.createDataFrame([], files.schema)
        rows = self.spark.read.schema(files.schema).parquet(*files.paths)
        return rows.where(of_batches) if files.has_others else rows  # a condition less to compile for each batch

    def read_path(self, path: str, version: int | None = None) -> DataFrame:
        """The rows of the Delta table at `path`, such as a mirror's. `version`: None: the newest."""
        reader = self.spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(path)

    def error(self, message: str) -> LakeError:
        """The error to raise if the lake is not as expected; it names the pipeline."""
        return LakeError(message, pipeline=self.paths.pipeline)

    def state(self, table: str) -> TableState | None:
        """Metadata of one of `paths.OWN_TABLES`; None if it does not exist."""
        return table_state(self.spark, self.paths.table(table))

    def exists(self, table: str) -> bool:
        """Whether one of `paths.OWN_TABLES` exists."""
        path = self.paths.table(table)
        if is_for_delta_rs(path):
            return DeltaTable.is_deltatable(path, storage_options(path))
        return self.state(table) is not None
