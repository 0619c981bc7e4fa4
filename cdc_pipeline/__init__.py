"""Canal-JSON change topics as an auditable lakehouse: Dagster, PySpark, Delta Lake, Pandera."""

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource, KafkaSource, TicdcStorageSource
from cdc_pipeline.mirrors.cuts.reading import CutTables, read_cut
from cdc_pipeline.spark.session import SparkLakehouse, jar_packages

__all__ = [
    "CaptureFilesSource",
    "CdcPipeline",
    "CutTables",
    "KafkaSource",
    "SparkLakehouse",
    "TicdcStorageSource",
    "jar_packages",
    "read_cut",
]
