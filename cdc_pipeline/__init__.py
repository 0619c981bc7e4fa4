"""Canal-JSON change topics as an auditable lakehouse: Dagster, PySpark, Delta Lake, Pandera."""

from cdc_pipeline.component import CdcPipeline

__all__ = ["CdcPipeline"]
