"""Which commits count as another writer's. The logs are written by hand, so no JVM is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.checks.cuts import own_commits_result
from cdc_pipeline.checks.results import WRONG_TABLES
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.log_files import has_version
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.lakes.mirror_checks import CUTS

_ROWS: dict[str, Any] = {"add": {"path": "a.parquet", "dataChange": True}}


def _commit(operation: str, *actions: dict[str, Any], writer: str | None = None, **parameters: Any) -> str:
    info = {"operation": operation, "operationParameters": parameters, "engineInfo": "Spark/4"}
    written = [] if writer is None else [{"txn": {"appId": writer, "version": 1}}]
    return "\n".join(json.dumps(action) for action in [{"commitInfo": info}, *written, *actions])


_OWN = _commit("MERGE", _ROWS, writer="cdc:shop:steps")
_DELETE = _commit("DELETE", {"remove": {"path": "a.parquet", "dataChange": True}})
_BY_HAND = "commit 1 (DELETE by Spark/4) is not of this pipeline"
_LOGS: dict[str, tuple[list[str], str | None]] = {
    "no log": ([], None),
    "own commits": ([_OWN, _OWN], None),
    "DELETE": ([_OWN, _DELETE], _BY_HAND),
    "an own commit follows": ([_OWN, _DELETE, _OWN], _BY_HAND),
    "the newest is named": ([_OWN, _commit("WRITE", _ROWS), _commit("UPDATE", _ROWS)], "commit 2 (UPDATE by Spark/4)"),
    "another pipeline, a streaming query": (
        [_OWN, _commit("WRITE", _ROWS, writer="cdc:shop2:raw")],
        "commit 1 (WRITE by",
    ),
    "a rebuild follows": ([_OWN, _DELETE, _commit("WRITE", _ROWS, writer="cdc:shop:rebuild:ab")], None),
    "changed after a rebuild": ([_commit("WRITE", _ROWS, writer="cdc:shop:rebuild:ab"), _DELETE], _BY_HAND),
    "OPTIMIZE": ([_OWN, _commit("OPTIMIZE", {"add": {"path": "b", "dataChange": False}})], None),
    "VACUUM": ([_OWN, _commit("VACUUM START"), _commit("VACUUM END")], None),
    "settings": ([_OWN, _commit("SET TBLPROPERTIES", {"metaData": {}}), _commit("UPGRADE", {"protocol": {}})], None),
    "undone": ([_OWN, _DELETE, _commit("RESTORE", _ROWS, version=0)], None),
    "changed after it was undone": (
        [_OWN, _commit("WRITE", _ROWS), _commit("RESTORE", _ROWS, version=0), _DELETE],
        "commit 3 (DELETE by",
    ),
    "the change was there before": (
        [_OWN, _DELETE, _commit("WRITE", _ROWS), _commit("RESTORE", _ROWS, version=1)],
        _BY_HAND,
    ),
    "restored to a time": ([_OWN, _DELETE, _commit("RESTORE", _ROWS, timestamp="2026-01-01")], "commit 2 (RESTORE by"),
    "a damaged commit that a checkpoint covers": ([_OWN, _DELETE, "{", _OWN], _BY_HAND),
    "a commit without commitInfo": ([_OWN, json.dumps(_ROWS)], "commit 1 (None by None) is not of this pipeline"),
}


def _write_log(table: str, commits: list[str], first: int = 0) -> None:
    log = Path(table, "_delta_log")
    log.mkdir(parents=True)
    for number, text in enumerate(commits, first):
        (log / f"{number:020}.json").write_text(text, encoding="utf-8")


@pytest.mark.parametrize("case", _LOGS)
def test_rows_of_other_writers(case: str, paths: LakePaths) -> None:
    commits, expected = _LOGS[case]
    if commits:
        _write_log(f"{paths.home}/mirror/db/t", commits)
    _write_log(f"{paths.home}/change_log", [_OWN])
    result = own_commits_result(Lake(cast("SparkSession", None), paths), ["change_log", "mirror/db/t"], CUTS)
    wrong = [] if expected is None else ["mirror/db/t"]
    assert (result.passed, result.metadata[WRONG_TABLES].value) == (expected is None, wrong)
    if expected is not None:
        assert result.description is not None
        assert result.description.startswith(f"`mirror/db/t: {expected}")
        assert "shop_rebuild" in result.description


def test_which_versions_a_table_has(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    assert not has_version(table, 0)
    _write_log(table, [_OWN, _OWN], first=7)
    # a log may have removed its old commits
    assert [has_version(table, version) for version in (0, 7, 8, 9)] == [True, True, True, False]
