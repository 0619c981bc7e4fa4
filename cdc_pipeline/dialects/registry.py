"""The known dialects."""

from __future__ import annotations

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.dataworks import DATAWORKS
from cdc_pipeline.dialects.ticdc import TICDC

DIALECTS = (DATAWORKS, TICDC, CANAL)
"""In the order in which a message is matched. The last dialect matches every message."""
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
