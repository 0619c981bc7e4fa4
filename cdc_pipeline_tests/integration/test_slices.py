"""The shop capture in two slices: after each, every mirror is the table that upstream had at the resolved TSO."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.progress import published_cut
from cdc_pipeline.schemas.table import TableName
from cdc_pipeline_tests.integration.runs import mirror_differences, read_json, run_ingest
from cdc_pipeline_tests.integration.test_shop import CAPTURE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.resources.lake import LakePaths

PARTITIONS = 4


def _lines() -> list[str]:
    lines: list[str] = []
    for part in sorted(CAPTURE.glob("part-*.jsonl.gz")):
        with gzip.open(part, "rt", encoding="utf-8") as stream:
            lines += stream.read().rstrip("\n").split("\n")  # not splitlines(): payloads hold U+0085
    return lines


def _end_of(watermark: int, lines: list[str]) -> int:
    """The number of lines up to the one by which every partition has the watermark."""
    seen: set[int] = set()
    for place, line in enumerate(lines):
        if f'\\"watermarkTs\\":{watermark}' in line:
            seen.add(json.loads(line)["partition"])
            if len(seen) == PARTITIONS:
                return place + 1
    raise AssertionError(f"watermark {watermark} is not in all partitions")


def test_each_slice_is_a_state_that_upstream_had(spark: SparkSession, tmp_path: Path, paths: LakePaths) -> None:
    lines = _lines()
    with (CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        truths = {truth["watermark"]: truth["tables"] for truth in map(json.loads, stream)}
    first = sorted(truths)[5]
    # some rows beyond the watermark come along: they must wait
    ends = [_end_of(first, lines) + 9, len(lines)]
    captures = tmp_path / "captures"
    captures.mkdir()
    done = 0
    for number, (end, watermark) in enumerate(zip(ends, (first, None), strict=True)):
        (captures / f"slice-{number}.jsonl").write_text("\n".join(lines[done:end]) + "\n", encoding="utf-8")
        done = end
        result = run_ingest(captures, Path(paths.root))
        assert result.success
        cut = published_cut(spark, paths)
        tables = read_json(CAPTURE / "expected.json")["tables"] if watermark is None else truths[watermark]
        if watermark is not None:
            assert cut.resolved_tso == watermark
        assert {f"{mirror['database']}.{mirror['table']}" for mirror in cut.mirrors} == set(tables)
        wrong = {
            table: found
            for table, truth in tables.items()
            if (
                found := mirror_differences(
                    spark, paths, TableName(*table.split(".", 1)), truth["columns"], truth["rows"]
                )
            )
        }
        assert wrong == {}
