"""The dialects that there are."""

from __future__ import annotations

from cdc_pipeline.dialects.canal import CANAL
from cdc_pipeline.dialects.dataworks import DATAWORKS
from cdc_pipeline.dialects.ticdc import TICDC

# the order in which they are asked: the last one takes what is left
DIALECTS = (DATAWORKS, TICDC, CANAL)
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}
