"""Limits of maintenance, and which table has its turn in which cut; `lake/test_upkeep.py` tests the effect on a table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from delta.exceptions import ConcurrentAppendException

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import CONTROL_TABLES, OWN_TABLES, LakePaths
from cdc_pipeline.mirrors.changes.progress import StreamProgress
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry
from cdc_pipeline.mirrors.operations import maintenance
from cdc_pipeline.mirrors.operations.maintenance import Maintenance
from cdc_pipeline.mysql.model.table import TableName

_MIRRORS = [f"{number:04x}" for number in range(30)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(Mock(), LakePaths(str(tmp_path), "p"))


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Receives table and kept versions (0: control table) at each turn of a table."""
    found: list[tuple[str, int]] = []

    def compact_rows(_: Lake, table: str) -> bool:
        found.append((table, 0))
        return True

    def shorten_log(_: Any, path: str, kept_versions: int) -> None:
        found.append((path.rpartition("/")[2], kept_versions))

    monkeypatch.setattr(maintenance, "compact_rows", compact_rows)
    monkeypatch.setattr(maintenance, "compact_small_files", lambda spark, path: (0, 0))
    monkeypatch.setattr(maintenance, "shorten_log", shorten_log)
    monkeypatch.setattr(maintenance, "table_state", lambda spark, path: object())
    return found


def _report(lake: Lake, cut: int, *, published: bool = True, batch: int = 0) -> CutReport:
    """A cut that has changed all mirrors: their versions equal its id."""
    streams = StreamProgress(batch or cut, True, 1, None, ())
    mirrors = tuple(
        MirrorEntry(name := TableName("d", mirror), mirror, lake.paths.mirror(name), cut, 1, 1, ())
        for mirror in _MIRRORS
    )
    before = dict.fromkeys(_MIRRORS, cut - 1) if published else {}
    return CutReport(published, cut, 1, streams, mirrors, versions_before=before)


def test_each_table_has_a_turn_in_a_hundred_cuts(lake: Lake, turns: list[tuple[str, int]]) -> None:
    most = 0
    for cut in range(1, 400):
        before = len(turns)
        maintenance.keep_small(lake, _report(lake, cut), lambda line: None)
        most = max(most, len(turns) - before)
        assert turns == [] or cut >= 100
    counted = Counter(table for table, _ in turns)
    assert {counted[table] for table in OWN_TABLES} == {3}
    assert {counted[mirror] for mirror in _MIRRORS} <= {3, 4}
    assert most <= 4
    assert dict(turns)["change_log"] == dict(turns)[_MIRRORS[0]] == maintenance.KEPT_VERSIONS
    assert dict(turns)["raw_topic_snapshot"] == maintenance.KEPT_OWN_VERSIONS
    assert {table for table, kept in turns if kept == 0} == set(CONTROL_TABLES)


def test_batches_without_a_cut_have_turns_too(lake: Lake, turns: list[tuple[str, int]]) -> None:
    for batch in range(100, 201):
        maintenance.keep_small(lake, _report(lake, 7, published=False, batch=batch), lambda line: None)
    assert {table for table, _ in turns} == set(OWN_TABLES)


@pytest.mark.parametrize("error", [ConcurrentAppendException("files were added"), OSError("files were added")])
def test_an_error_leaves_the_table_to_its_next_turn(
    lake: Lake, turns: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    said: list[str] = []
    monkeypatch.setattr(maintenance, "compact_small_files", Mock(side_effect=error))
    maintenance.keep_small(lake, _report(lake, 100, published=False), said.append)
    assert said == ["raw_topic_snapshot: small files and old commits stay until the next time: files were added"]
    assert turns == []


def test_files_that_readers_need_are_kept() -> None:
    with pytest.raises(LakeError, match="keep_hours: 24 is too little: 168 or more are expected"):
        Maintenance(keep_hours=24)
