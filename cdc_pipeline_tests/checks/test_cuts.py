"""Commits of other writers, and the results of single mirrors. The logs are written by hand, so no JVM is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.checks import cuts as checks
from cdc_pipeline.checks.cuts import before_images_results, mirror_gaps_results, no_gaps_result, own_commits_result
from cdc_pipeline.checks.results import WRONG_TABLES
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.log_files import has_version
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.tables.verifications import Verified
from cdc_pipeline.mirrors.changes.progress import StreamProgress
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry, with_held_gaps
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position
from cdc_pipeline_tests.support.lakes.mirror_checks import CHECKED, CUTS

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


_WARN, _ERROR = dg.AssetCheckSeverity.WARN, dg.AssetCheckSeverity.ERROR


def _report(gaps: dict[str, tuple[str, ...]], held: tuple[HeldTable, ...] = ()) -> CutReport:
    """`gaps`: mirror → gaps."""
    mirrors = [MirrorEntry(TableName("db", name), name, "/lake", 1, 1, 2, found) for name, found in gaps.items()]
    streams = StreamProgress(1, has_tsos=False, resolved_tso=None, held_by=None, without_watermark=())
    return CutReport(True, 3, None, streams, with_held_gaps(mirrors, held), held=held)


def _of_mirrors(results: list[dg.AssetCheckResult]) -> dict[str, tuple[bool, dg.AssetCheckSeverity]]:
    shown = {}
    for result in results:
        assert result.asset_key is not None
        shown[result.asset_key.path[-1]] = result.passed, result.severity
    return shown


def test_a_mirror_shows_its_gaps_once() -> None:
    before = _report({"a": (), "b": ("a gap",), "c": (), "d": ("old",)})
    assert _of_mirrors(mirror_gaps_results(before, None, CHECKED)) == {
        **dict.fromkeys("ac", (True, _WARN)),
        **dict.fromkeys("bd", (False, _WARN)),
    }
    previous = {name: entry.value for name, entry in no_gaps_result(before, CUTS).metadata.items()}
    assert mirror_gaps_results(before, previous, CHECKED) == []
    # changed rows, a new gap, a gap that ended
    now = _report({"a": (), "b": ("a gap",), "c": ("new",), "d": ()})
    assert _of_mirrors(mirror_gaps_results(now, previous, CHECKED, [TableName("db", "a")])) == {
        "a": (True, _WARN),
        "c": (False, _WARN),
        "d": (True, _WARN),
    }


def test_a_held_and_a_quarantined_mirror_say_what_to_do() -> None:
    held = HeldTable(TableName("db", "a"), Position("t", 0, 437), 1)
    broken = HeldTable(TableName("db", "b"), Position("t", 0, 438), 1, error="ApplyRows failed")
    report = _report({"a": ("another gap",), "b": ()}, held=(held, broken))
    of_held, of_broken = mirror_gaps_results(report, {}, CHECKED)
    assert (of_held.passed, of_held.severity) == (False, _WARN)
    assert str(of_held.description).startswith(
        "`held (ddl_policy) until its statement is approved: see ddl_history at t/0@437; another gap`. "
        "The mirror is as of before this statement. Run "
    )
    assert "shop_approve_ddl for held statements" in str(of_held.description)
    assert (of_broken.passed, of_broken.severity) == (False, _ERROR)
    assert "resolve the error, then run shop_rebuild" in str(of_broken.description)


def test_before_images_of_a_mirror_are_shown_when_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    totals = {name: Verified(name, "db", name, 5, 4, int(name == "b")) for name in "ab"}
    monkeypatch.setattr(checks, "verified_totals", lambda _: totals)
    monkeypatch.setattr(checks, "last_verified_cut", lambda _: 3)
    gaps = {TableName("db", "b"): Gap(GapKind.CONTRADICTED, "1 change found another row")}

    def results(previous: dict[str, Any], found: dict[TableName, Gap]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The metadata of the result of all, and the results of single mirrors."""
        of_all, *of_mirrors = before_images_results(cast("Any", None), found, (), previous, CHECKED)
        assert of_all.passed == (not found)
        return {name: entry.value for name, entry in of_all.metadata.items()}, _of_mirrors(of_mirrors)

    previous, shown = results({}, gaps)
    assert shown == {"a": (True, _ERROR), "b": (False, _ERROR)}
    assert results(previous, gaps)[1] == {}
    assert results(previous, {})[1] == {"b": (True, _ERROR)}
    totals["a"] = Verified("a", "db", "a", 9, 9)
    assert results(previous, gaps)[1] == {"a": (True, _ERROR)}
    previous = results(previous, gaps)[0]
    of_all, of_b = before_images_results(cast("Any", None), gaps, (), previous, CHECKED, [TableName("db", "b")])
    assert (of_all.asset_key, of_b.asset_key) == (CUTS, CHECKED.mirror(TableName("db", "b")))


def test_before_images_follow_a_rename() -> None:
    """Before the mirror is verified again, also if a table that was dropped had the name."""
    row = {"cut_id": 3, "database": "db", "changes": 5, "proved": 4, "contradicted": 0, "reason": None}
    verified = [{**row, "mirror_id": "1", "table": "a"}, {**row, "mirror_id": "2", "table": "b", "proved": 5}]
    before = {"a": "4 of 5 change(s) proved their row", "b": "5 of 5 change(s) proved their row"}
    renamed = MirrorEntry(TableName("db", "b"), "1", "path", 2, 7, 2, ())
    of_all, of_b = before_images_results(
        verified, {}, [renamed], {f"db.{name}": before[name] for name in "ab"}, CHECKED
    )
    assert {name: entry.value for name, entry in of_all.metadata.items()} == {
        "verified_up_to_cut": 3,
        "db.b": before["a"],
    }
    assert (of_b.asset_key, of_b.passed) == (CHECKED.mirror(renamed.name), True)
