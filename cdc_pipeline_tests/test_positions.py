"""Positions of records: their text and their columns."""

from __future__ import annotations

from cdc_pipeline.dialects.unified import RECORD_COLUMNS
from cdc_pipeline.positions import BATCH_POSITION, POSITION, Position
from cdc_pipeline.sources.records import RECORD


def test_text_is_what_a_release_accepts() -> None:
    assert str(Position("shop", 0, 17)) == "shop/0@17"


def test_columns_are_those_of_raw_and_decoded_records() -> None:
    assert set(POSITION) <= set(RECORD.names)
    assert RECORD_COLUMNS[: len(BATCH_POSITION)] == BATCH_POSITION
