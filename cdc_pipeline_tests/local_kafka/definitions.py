"""Definitions for `make kafka-demo`: the pipeline `live` on the local broker; the runs of its sensor follow the topics."""

import os

import dagster as dg

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.run_fields import FollowSettings, SensorSettings
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.spark.session import SparkLakehouse

BOOTSTRAP, LAKE, TOPIC = "CDC_KAFKA", "CDC_LAKE", "shop"
FOLLOW_MINUTES = "CDC_FOLLOW_MINUTES"


@dg.definitions
def defs() -> dg.Definitions:
    pipeline = CdcPipeline(
        name="live",
        source=KafkaSource(
            type="kafka", bootstrap_servers=os.environ.get(BOOTSTRAP, "127.0.0.1:9092"), topic_pattern=f"{TOPIC}.*"
        ),
        lake=os.environ.get(LAKE, "data/lake"),
        sensor=SensorSettings(running=True, interval_seconds=5),
        follow=FollowSettings(enabled=True, maximum_minutes=float(os.environ.get(FOLLOW_MINUTES, "30"))),
        spark_resource="spark",
    )
    spark = SparkLakehouse(driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "2g"))
    shared = dg.Definitions(resources={"spark": spark}, executor=dg.in_process_executor)
    return dg.Definitions.merge(pipeline.build_defs(), shared)
