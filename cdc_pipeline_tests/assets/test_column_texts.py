"""Every column of the lake's own tables has a text in Dagster's UI."""

from __future__ import annotations

from cdc_pipeline.assets.column_texts import COLUMN_TEXTS
from cdc_pipeline.dialects.unified import CHANGE_COLUMNS, DDL_COLUMNS, DEAD_LETTER_COLUMNS
from cdc_pipeline.sources.records import RECORD

_DDL_RESULTS = ("changes", "status", "effect", "cut_id", "tables")
_WATERMARK_COLUMNS = ("watermark_ts", "watermark_time")


def test_every_column_has_a_text() -> None:
    columns = {*RECORD.names, *CHANGE_COLUMNS, *DDL_COLUMNS, *_DDL_RESULTS, *_WATERMARK_COLUMNS, *DEAD_LETTER_COLUMNS}
    assert set(COLUMN_TEXTS) == columns
