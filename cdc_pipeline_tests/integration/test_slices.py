"""The shop capture in slices: after each slice, every mirror equals upstream's table at the resolved TSO."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.captures import capture_lines
from cdc_pipeline_tests.support.lakes.runs import (
    end_of_watermark,
    mirror_differences,
    read_json,
    run_ingest,
)
from cdc_pipeline_tests.support.shop import CAPTURE


@pytest.mark.parametrize(
    "indexes",
    [pytest.param((0, 2), marks=pytest.mark.core(3)), (4, 5, None)],
    ids=["to_the_third_watermark", "whole"],
)
def test_each_slice_is_a_state_that_upstream_had(
    spark: SparkSession, tmp_path: Path, paths: LakePaths, indexes: tuple[int, int | None]
) -> None:
    """Each slice ends with a watermark, or (None) with the capture."""
    lines = capture_lines(CAPTURE)
    with (CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        truths = {truth["watermark"]: truth["tables"] for truth in map(json.loads, stream)}
    watermarks = [None if index is None else sorted(truths)[index] for index in indexes]
    # some rows beyond the watermark are included, which must wait
    ends = [len(lines) if tso is None else end_of_watermark(tso, lines) + 9 for tso in watermarks]
    captures = tmp_path / "captures"
    captures.mkdir()
    done = 0
    for number, (end, watermark) in enumerate(zip(ends, watermarks, strict=True)):
        (captures / f"slice-{number}.jsonl").write_text("\n".join(lines[done:end]) + "\n", encoding="utf-8")
        done = end
        result = run_ingest(captures, Path(paths.root))
        assert result.success
        cut = published_cut(Lake(spark, paths))
        tables = read_json(CAPTURE / "expected.json")["tables"] if watermark is None else truths[watermark]
        if watermark is not None:
            assert cut.resolved_tso == watermark
        assert {f"{mirror['database']}.{mirror['table']}" for mirror in cut.mirrors} == set(tables)
        differences = {
            table: found
            for table, truth in tables.items()
            if (
                found := mirror_differences(
                    spark, paths, TableName(*table.split(".", 1)), truth["columns"], truth["rows"]
                )
            )
        }
        assert differences == {}
