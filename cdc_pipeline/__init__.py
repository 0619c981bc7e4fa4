"""Canal-JSON change topics as an auditable lakehouse: Dagster, PySpark, Delta Lake, Pandera."""

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.mirrors.cuts.reading import CutTables, read_cut

__all__ = ["CdcPipeline", "CutTables", "read_cut"]
