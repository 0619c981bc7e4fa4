"""The Spark session of all pipelines, configured by environment variables."""

import os

import dagster as dg

from cdc_pipeline.spark.session import SparkLakehouse


@dg.definitions
def resources() -> dg.Definitions:
    spark = SparkLakehouse(
        master=os.environ.get("CDC_SPARK_MASTER", "local[*]"),
        driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "4g"),
    )
    return dg.Definitions(resources={"spark": spark})
