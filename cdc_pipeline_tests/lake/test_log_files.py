"""Detection of truncated, empty and missing commit files. The check reports the file and changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.log_files import require_intact_log
from cdc_pipeline_tests.support.folders import tree

COMMITS = 13
"""One checkpoint, at version 10, and two commits after it."""


@pytest.fixture(scope="module")
def whole(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("log") / "a table"
    for number in range(COMMITS):
        spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(str(table))
    return table


@pytest.fixture
def table(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "a table")


def _commit(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def _half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


DAMAGE: dict[str, tuple[Callable[[Path], object], int, str]] = {
    "the newest one empty": (lambda file: file.write_bytes(b""), 12, "is empty"),
    "the newest one half": (_half, 12, "has a line that is not a Delta action"),
    "the newest one of zeros": (
        lambda file: file.write_bytes(b"\0" * 600),
        12,
        "has a line that is not a Delta action",
    ),
    "the newest one gone": (lambda file: file.unlink(), 12, "is missing"),
    "one before it gone": (lambda file: file.unlink(), 11, "is missing"),
    "one before it cut at a line": (
        lambda file: file.write_bytes(b"{}\n{\n"),
        11,
        "has a line that is not a Delta action",
    ),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_log_is_named_and_left_as_it_is(case: str, table: Path) -> None:
    damage, version, said = DAMAGE[case]
    damage(_commit(table, version))
    before = tree(table)
    with pytest.raises(LakeError) as caught:
        require_intact_log(str(table))
    assert f"{table} is damaged: {version:020}.json {said}" in str(caught.value)
    assert tree(table) == before


@pytest.mark.parametrize("gone", [[], list(range(11))], ids=["all there", "those before the checkpoint expired"])
def test_a_whole_log_passes(gone: list[int], table: Path) -> None:
    for version in gone:
        _commit(table, version).unlink()
    require_intact_log(str(table))
    # the check reads the files: it fails after one more is removed
    _commit(table, COMMITS - 2).unlink()
    with pytest.raises(LakeError, match="is missing"):
        require_intact_log(str(table))


def test_a_folder_without_a_table_passes(tmp_path: Path) -> None:
    require_intact_log(str(tmp_path / "nothing"))
    require_intact_log(str(tmp_path))
    # the first file of a log makes the folder a table
    (tmp_path / "_delta_log").mkdir()
    _commit(tmp_path, 0).touch()
    with pytest.raises(LakeError, match="is empty"):
        require_intact_log(str(tmp_path))
