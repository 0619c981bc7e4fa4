"""The check `field_rules`: validation once per shape of messages, and notes that persist between runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.checks.contract import NO_NOTES, field_rules_result, read_notes, validate_table, write_notes
from cdc_pipeline.contracts.rules import Breach
from cdc_pipeline.dialects.decoded_tables import decode_batches
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.capture_files.source import ingest_new_files
from cdc_pipeline.sources.raw_batches import newest_batch
from cdc_pipeline_tests.support.messages import Topic, canal, dataworks, ddl, row, tso, watermark

_KEY = dg.AssetKey("change_log")
_TABLES = ("change_log", "ddl_history", "watermarks", "dead_letters")
_GOOD = row("INSERT", "t", 1, {"id": "1"}, key=["id"])


def _other(message: str, **fields: Any) -> str:
    return json.dumps({**json.loads(message), **fields}, ensure_ascii=False)


class _Lake:
    """A pipeline that ingests and validates messages."""

    def __init__(self, spark: SparkSession, paths: LakePaths, folder: Path) -> None:
        self.spark, self.paths, self.folder = spark, paths, folder
        self.topic = Topic()

    def run(self, *messages: str) -> dg.AssetCheckResult:
        for message in messages:
            self.topic.send(message)
        if messages:
            number = newest_batch(Lake(self.spark, self.paths))
            self.topic.write(self.folder / "captures", f"{number}.jsonl")
            ingest_new_files(Lake(self.spark, self.paths), str(self.folder / "captures"), "run")
        batches = [batch.batch_id for batch in decode_batches(Lake(self.spark, self.paths))]
        rows = 1000 if batches else 0
        validations = [validate_table(Lake(self.spark, self.paths), table, batches, rows) for table in _TABLES]
        assert all(not validation.errors for validation in validations)
        return field_rules_result(Lake(self.spark, self.paths), validations, batches, "auto", _KEY)


@pytest.fixture
def lake(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> _Lake:
    return _Lake(spark, paths, tmp_path)


def test_valid_messages_pass(lake: _Lake) -> None:
    types: dict[str, Any] = {"types": {"id": "LONG"}, "key": ["id"], "sequence": "7"}
    found = lake.run(
        _other(_GOOD, mysqlType={"id": "varchar"}),
        ddl("DROP TABLE u", 2),
        watermark(3),
        canal("INSERT", "t", 4, [{"id": "1"}], key=["id"]),
        dataworks("INSERT", "t", 5, after={"id": 1}, **types),
        dataworks("ALTER", "t", 6, sql="ALTER TABLE t ADD c INT", sequence="8"),
    )
    assert (found.passed, found.description) == (True, None)
    assert found.metadata["shapes"].value == 6


def test_broken_rules_of_a_shape_are_reported_in_every_run(lake: _Lake) -> None:
    """Only the first message of a shape is validated, and its broken rules are reported in every run."""
    bad = _other(_GOOD, sqlType={"id": 4}, mysqlType={"id": "varchar", "w": "int"})
    found = lake.run(bad)
    assert (found.passed, found.severity) == (False, dg.AssetCheckSeverity.WARN)
    expected = "`mysql_type_fits_data: 1, for example t/0@0; sql_type_is_of_mysql_type: 1, for example t/0@0`. "
    assert (found.description or "").startswith(expected)
    assert "(column id)" in str(found.metadata["sql_type_is_of_mysql_type"].value)

    second = lake.run(_other(bad, es=tso(2) >> 18, _tidb={"commitTs": tso(2)}), _GOOD.replace('"t"', '"u"'))
    assert (second.description or "").startswith(expected)
    assert second.metadata["shapes"].value == 2
    nothing_new = lake.run()
    assert (nothing_new.passed, nothing_new.description) == (False, second.description)


def test_rules_of_rows_are_counted_per_row(lake: _Lake) -> None:
    late = _other(_GOOD, _tidb={"commitTs": tso(9)})
    found = lake.run(_GOOD, late, _other(late, data=[{"id": "2"}]))
    assert (found.description or "").startswith("`tso_is_es: 2, for example t/0@1`. ")
    second = lake.run(_other(watermark(9), es=tso(8) >> 18))
    assert (second.description or "").startswith("`tso_is_es: 3, for example t/0@1`. ")


def test_original_messages_are_validated(lake: _Lake) -> None:
    """Before decoding: missing and wrong types, numbers, a missing key, ids."""
    found = lake.run(
        _other(_GOOD, mysqlType=None, sqlType="x", table="a"),
        _other(_GOOD, mysqlType=[], data=[{"id": 1}], table="b"),
        _other(_GOOD, id=3, pkNames=["gone"], table="c"),
        _other(ddl("DROP TABLE u", 2), pkNames=[], type="INSERT"),
        _other(watermark(3), database="d", mysqlType={}),
        dataworks("INSERT", "t", 5, after={"id": "1"}, types={"id": "LONG"}),
        dataworks("INSERT", "u", 5, after={"id": 1}, types={"x": "NUMBER"}, sequence="9"),
    )
    counts = {rule: int(str(value.value).split(",")[0]) for rule, value in found.metadata.items() if rule != "shapes"}
    assert counts == {
        "mysql_type_is_map": 2,
        "sql_type_fits_data": 1,
        "values_are_texts": 1,
        "id_is_zero": 1,
        "key_is_in_data": 1,
        "types_are_of_rows": 2,
        "type_is_of_ddl": 1,
        "watermark_is_of_no_table": 1,
        "sequence_is_there": 1,
        "values_fit_types": 1,
        "columns_are_typed": 1,
        "columns_are_of_image": 1,
    }


# ---- notes

_BREACH = Breach("r", "what is expected", 2, ("t/0@1", "t/0@2"), warn=True, found="this")


def test_notes_sum_counts() -> None:
    notes = NO_NOTES.extended(1, [1, 2], [_BREACH]).extended(3, [2, 3], [_BREACH, _BREACH])
    assert notes.shapes == (1, 2, 3)
    (warned,) = notes.warned
    assert (warned.count, warned.last_batch, len(warned.places), warned.found) == (6, 3, 5, "this")


def test_notes_round_trip(paths: LakePaths) -> None:
    Path(paths.home).mkdir(parents=True)
    notes = NO_NOTES.extended(1, [-(2**63), 2], [_BREACH])
    write_notes(paths, notes)
    assert read_notes(paths) == notes


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"batch": 1, "shapes": ["x"], "warned": []}', "[" * 100_000])
def test_damaged_notes_are_ignored(paths: LakePaths, text: str) -> None:
    Path(paths.home).mkdir(parents=True)
    (Path(paths.home) / "field_rules.json").write_text(text, encoding="utf-8")
    assert read_notes(paths) == NO_NOTES
