"""Opens a lake to read its own tables, without Spark where that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import OWN_TABLES, is_for_delta_rs
from cdc_pipeline.spark.session import own_spark

if TYPE_CHECKING:
    from cdc_pipeline.cli.declared import DeclaredPipeline
    from cdc_pipeline.lake.paths import LakePaths


def readable_lake(paths: LakePaths, declared: DeclaredPipeline | None = None) -> Lake:
    """The lake, for `control_tables.read_rows` and what builds on it. Starts Spark only if the lake is not a local folder:
    that of the pipeline if it is declared.

    Raises DeclarationError if there is no pipeline of that name.
    """
    # the functions that read control tables of a local folder do not use the session
    spark: Any = None
    if not is_for_delta_rs(paths.home):
        spark = (own_spark() if declared is None else declared.spark).session
    lake = Lake(spark, paths)
    if not any(lake.exists(table) for table in OWN_TABLES if spark is not None or is_for_delta_rs(paths.table(table))):
        raise DeclarationError(f"there is no pipeline {paths.pipeline!r} in the lake {paths.root}: run it first")
    return lake
