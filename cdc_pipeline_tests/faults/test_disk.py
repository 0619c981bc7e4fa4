"""A full or read-only disk: the run fails with one line, the lake does not change, and the next run resumes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline_tests.support.lakes.story_lake import FIRST, StoryLake, as_a_new_process
from cdc_pipeline_tests.support.messages import watermark_tso

_PAGE = 4096
_STEP = 16 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder `lake` that is its own file system in memory."""
    folder = tmp_path / "lake"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("needs a user who may mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def _sized(disk: Path, free: int) -> None:
    """Sets the free bytes of the disk."""
    _remount(disk, f"size={-(-(shutil.disk_usage(disk).used + free) // _PAGE) * _PAGE}")


def survived_full_disks(lake: StoryLake, disk: Path, free: int) -> int:
    """Runs the last slice with `free` bytes on the disk, and `_STEP` more after each failure. Returns the failed runs.

    A run keeps the commits of earlier ones, so each run fails at a later write. With constant space, no run could pass a
    commit that needs more than `free`.
    """
    for failures in range(50):
        _sized(disk, free + failures * _STEP)
        error = _error_of(lake)
        if error is None:
            return failures
        fault = to_lake_error(error)
        assert isinstance(fault, TransientError), error
        assert "the disk is full" in str(fault)
        assert published_cut(Lake(lake.spark, lake.paths)).resolved_tso == watermark_tso(FIRST)
        as_a_new_process(lake.spark)
    raise AssertionError("no run got through")


def _error_of(lake: StoryLake) -> Exception | None:
    try:
        lake.run()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("free", [160 * 1024, pytest.param(24 * 1024, marks=pytest.mark.long)])
def test_a_full_disk_at_each_write(
    first_slice: StoryLake, disk: Path, tmp_path: Path, free: int, counted: Callable[[str, int], None]
) -> None:
    lake = first_slice.copied(tmp_path)
    failures = survived_full_disks(lake, disk, free)
    counted("runs that a full disk stopped", failures)
    assert failures > 1
    _remount(disk, "size=64m")
    lake.assert_right()


def test_a_read_only_lake(first_slice: StoryLake, disk: Path, tmp_path: Path) -> None:
    lake = first_slice.copied(tmp_path)
    _remount(disk, "ro")
    with pytest.raises(LakeError, match=r"the lake '.*' cannot be written: Read-only file system"):
        lake.run()
    _remount(disk, "rw")
    lake.run()
    lake.assert_right()
