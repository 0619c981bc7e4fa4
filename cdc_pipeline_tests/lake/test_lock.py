"""The writer lock: one run at a time writes a pipeline."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.lock import writer_lock
from cdc_pipeline.lake.paths import LakePaths

_HOLD = """
import sys, time
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.lock import writer_lock
with writer_lock(LakePaths(sys.argv[1], "shop"), "other-run", print):
    print("held", flush=True)
    time.sleep(600)
"""


def _quiet(_: str) -> None:
    pass


def test_a_second_writer_waits_and_says_for_whom(paths: LakePaths) -> None:
    said: list[str] = []
    order: list[str] = []
    waits = threading.Event()

    def report(line: str) -> None:
        said.append(line)
        waits.set()

    def second() -> None:
        with writer_lock(paths, "run-2", report, wait_seconds=30):
            order.append("second")

    thread = threading.Thread(target=second)
    with writer_lock(paths, "run-1", _quiet):
        thread.start()
        assert waits.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert len(said) == 1
    assert "run run-1" in said[0]


def test_one_that_waits_too_long_may_be_tried_again(paths: LakePaths) -> None:
    with (
        writer_lock(paths, "run-1", _quiet),
        pytest.raises(TransientError, match=r"run run-1 .*did not end within 0 s \[pipeline shop\]"),
        writer_lock(paths, "run-2", _quiet, wait_seconds=0),
    ):
        pass


def test_pipelines_of_one_lake_do_not_wait_for_each_other(paths: LakePaths) -> None:
    with (
        writer_lock(paths, "run-1", _quiet),
        writer_lock(LakePaths(paths.root, "other"), "run-2", _quiet, wait_seconds=0),
    ):
        # each pipeline has its own lock
        for pipeline in ("shop", "other"):
            with (
                pytest.raises(TransientError, match=rf"did not end within 0 s \[pipeline {pipeline}\]"),
                writer_lock(LakePaths(paths.root, pipeline), "run-3", _quiet, wait_seconds=0),
            ):
                pass


def test_a_writer_that_was_killed_holds_nothing(paths: LakePaths) -> None:
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, paths.root], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(TransientError, match="run other-run"), writer_lock(paths, "run-2", _quiet, wait_seconds=0):
        pass
    holder.kill()
    holder.wait()
    holder.stdout.close()
    with writer_lock(paths, "run-3", _quiet, wait_seconds=0):
        pass


def test_one_that_wrote_nothing_leaves_no_trace(paths: LakePaths) -> None:
    with writer_lock(paths, "run-1", _quiet):
        assert Path(paths.home, ".lock").exists()
    assert not Path(paths.root).exists()


def test_what_was_written_stays(paths: LakePaths) -> None:
    with writer_lock(paths, "run-1", _quiet):
        Path(paths.home, "table").mkdir()
    assert [path.name for path in Path(paths.home).iterdir()] == ["table"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file")
    with (
        pytest.raises(LakeError, match="cannot be written"),
        writer_lock(LakePaths(str(tmp_path / "lake"), "shop"), "run-1", _quiet),
    ):
        pass


def test_a_remote_lake_has_no_such_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs hold it at the same time, and no local folder is created. For a local lake the second run waits."""
    monkeypatch.chdir(tmp_path)
    remote, inside = LakePaths("hdfs://host/lake", "shop"), []
    with writer_lock(remote, "run-1", _quiet), writer_lock(remote, "run-2", _quiet, wait_seconds=0):
        inside += tmp_path.iterdir()
    assert inside == []
    local = LakePaths("lake", "shop")
    with (
        writer_lock(local, "run-1", _quiet),
        pytest.raises(TransientError),
        writer_lock(local, "run-2", _quiet, wait_seconds=0),
    ):
        pass


def test_nobody_else_can_open_the_lock(paths: LakePaths) -> None:
    """A user who can open the file, even for reading, could lock it forever."""
    with writer_lock(paths, "run-1", _quiet):
        assert stat.S_IMODE((Path(paths.home) / ".lock").stat().st_mode) == 0o600
