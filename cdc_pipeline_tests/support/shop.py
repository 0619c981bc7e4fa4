"""The capture `shop` and its expected tables."""

from __future__ import annotations

from pathlib import Path

from cdc_pipeline_tests.support.lakes.runs import (
    read_json,
)

CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "shop"


TABLES = read_json(CAPTURE / "expected.json")["tables"]
