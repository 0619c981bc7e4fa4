"""`rounded_sql` rounds texts as a MODIFY does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mirrors.changes.rebased_values import rounded_sql
from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# type → text → rounded text; MySQL rounds half away from zero
CASES: dict[MySqlType, dict[str | None, str | None]] = {
    MySqlType("time"): {
        "23:59:59.5": "24:00:00",
        "-00:00:00.400": "00:00:00",
        "-838:59:58.999000": "-838:59:59",
        "12:00:00": "12:00:00",
        None: None,
    },
    MySqlType("time", (3,)): {"10:00:00.0005": "10:00:00.001", "10:00:00.25": "10:00:00.25"},
    MySqlType("datetime"): {
        "2025-12-31 23:59:59.5": "2026-01-01 00:00:00",
        "0000-00-00 00:00:00.000": "0000-00-00 00:00:00.000",
        "2025-01-01 10:00:00": "2025-01-01 10:00:00",
    },
    MySqlType("timestamp", (2,)): {
        "2025-01-01 10:00:00.125": "2025-01-01 10:00:00.13",
        "2025-01-01 10:00:00.1249": "2025-01-01 10:00:00.12",
    },
    MySqlType("datetime", (6,)): {"2025-01-01 10:00:00.123456": "2025-01-01 10:00:00.123456"},
    MySqlType("decimal"): {"2.5": "3", "-2.5": "-3", "7": "7", "no number": "no number"},
    MySqlType("decimal", (45, 1)): {
        "1234567890123456789012345678901234567890.95": "1234567890123456789012345678901234567891.0"
    },
}


def test_texts_are_rounded_as_by_mysql(spark: SparkSession) -> None:
    texts = list(dict.fromkeys(text for found in CASES.values() for text in found))
    frame = small_frame(spark, [(text,) for text in texts], "text STRING")
    columns = [F.expr(rounded_sql("text", kind)).alias(str(place)) for place, kind in enumerate(CASES)]
    rows = {row["text"]: row for row in frame.select("text", *columns).collect()}
    found = {
        kind: {text: rows[text][str(place)] for text in wanted} for place, (kind, wanted) in enumerate(CASES.items())
    }
    assert found == CASES
