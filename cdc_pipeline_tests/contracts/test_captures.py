"""Records of real encoders break no rule, neither rejecting nor warning, except the listed ones."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.rules import find_breaches
from cdc_pipeline.dialects.decode import COMPLETE_CONTRACTS, decode_with_reasons
from cdc_pipeline.dialects.senders import with_senders
from cdc_pipeline.dialects.shapes import complete_messages
from cdc_pipeline_tests.support.dialect_cases import RAW

_CAPTURES = Path(__file__).parents[2] / "data" / "captures"
_NAMES = sorted(folder.name for folder in _CAPTURES.iterdir())
# what Canal does not send, by the captures' README: MINIMAL images and PARTIAL_JSON
_NOT_SENT = {"image_has_key": 2, "values_are_whole": 2}
_REJECTED = {
    "types-canal": _NOT_SENT,
    "types-canal-hash3": _NOT_SENT,
    "world-canal-update-without-old": {"image_has_key": 1},
}
# the UPDATEs with MINIMAL images break this rule too
_MINIMAL = {"old_has_the_rows_of_data": 2}
_WARNED: dict[str, dict[str, int]] = {
    "types-canal": _MINIMAL,
    "types-canal-hash3": _MINIMAL,
    "world-canal-nulls-left-out": {
        "mysql_type_fits_data": 7,
        "sql_type_fits_data": 7,
        "old_is_of_data": 3,
        "old_has_the_rows_of_data": 1,
    },
    "world-canal-update-without-old": {"old_has_the_rows_of_data": 3},
}
_ZERO_IS_CANAL = ("byteplus",)
"""Topics whose messages with `id` 0 are not TiCDC's."""


def _raw(spark: SparkSession, name: str) -> DataFrame:
    """All records of the capture, with their times."""
    rows = []
    for part in sorted((_CAPTURES / name).glob("*.jsonl.gz")):
        with gzip.open(part, "rt", encoding="utf-8", newline="\n") as lines:
            for line in lines:
                record = json.loads(line)
                value = None if record["payload"] is None else bytearray(record["payload"].encode())
                time = datetime.fromtimestamp(record["ts"] / 1000, timezone.utc)
                rows.append((1, record["topic"], record["partition"], record["offset"], time, None, value, None, None))
    return spark.createDataFrame(rows, RAW)


@pytest.mark.parametrize("name", _NAMES)
def test_records_of_a_real_encoder(name: str, spark: SparkSession) -> None:
    raw = with_senders(_raw(spark, name), _ZERO_IS_CANAL).persist()
    decoded = decode_with_reasons(raw).select("kind", "rule").persist()
    rejected = decoded.where("kind = 'dead_letter'").groupBy("rule").count().collect()
    frame = complete_messages(raw).persist()
    warned: dict[str, int] = {}
    for form, contract in COMPLETE_CONTRACTS.items():
        fields = contract.to_schema().columns
        of_form = frame.where(F.col("form") == form).select("topic", "partition", "offset", *fields)
        for breach in find_breaches(of_form, contract):
            if breach.warn:
                warned[breach.rule] = warned.get(breach.rule, 0) + breach.count
    for kept in (raw, decoded, frame):
        kept.unpersist()
    assert {row["rule"]: row["count"] for row in rejected} == _REJECTED.get(name, {})
    assert warned == _WARNED.get(name, {})
