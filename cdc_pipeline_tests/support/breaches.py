"""What the rules of a model find in a frame."""

from __future__ import annotations

from typing import Any

import pandera.pyspark as pa
from pyspark.sql import DataFrame

from cdc_pipeline.contracts.rules import Breach, breaches_of_counts, rule_counts, wrong_types


def find_breaches(frame: DataFrame, model: type[pa.DataFrameModel[Any]]) -> tuple[Breach, ...]:
    """As the check `contract` does it. `frame` has topic, partition and offset."""
    if types := wrong_types(frame, model):
        return types
    return breaches_of_counts(frame, model, frame.agg(*rule_counts(model)).collect())
