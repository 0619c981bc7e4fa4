"""A disk that is full or read-only: the run fails in one line, the lake stands as it was, and the next run goes on."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline_tests.support.lakes.told import FIRST, Told, as_a_new_process
from cdc_pipeline_tests.support.messages import tso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_PAGE = 4096
_STEP = 16 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder `lake` that is a file system of its own, in memory."""
    folder = tmp_path / "lake"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("needs a user who may mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def _remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def _sized(disk: Path, free: int) -> None:
    """The disk has so many bytes left."""
    _remount(disk, f"size={-(-(shutil.disk_usage(disk).used + free) // _PAGE) * _PAGE}")


def survived_full_disks(told: Told, disk: Path, free: int) -> int:
    """Runs the last slice with `free` bytes on the disk, and `_STEP` more after each failure. Returns how many failed.

    A run keeps what earlier ones committed, so that each fails at a later write. With the same space each time, a run never
    gets through a commit that needs more than `free`.
    """
    for failures in range(50):
        _sized(disk, free + failures * _STEP)
        error = _error_of(told)
        if error is None:
            return failures
        fault = to_lake_error(error)
        assert isinstance(fault, TransientError), error
        assert "the disk is full" in str(fault)
        assert published_cut(told.spark, told.paths).resolved_tso == tso(FIRST)
        as_a_new_process(told.spark)
    raise AssertionError("no run got through")


def _error_of(told: Told) -> Exception | None:
    try:
        told.run()
    except Exception as error:
        return error
    return None


@pytest.mark.parametrize("free", [160 * 1024, pytest.param(24 * 1024, marks=pytest.mark.long)])
def test_a_disk_that_is_full_at_each_write(
    whole: Told, disk: Path, tmp_path: Path, free: int, counted: Callable[[str, int], None]
) -> None:
    told = whole.copied(tmp_path)
    failures = survived_full_disks(told, disk, free)
    counted("runs that a full disk stopped", failures)
    assert failures > 1
    _remount(disk, "size=64m")
    told.assert_right()


def test_a_lake_that_is_read_only(whole: Told, disk: Path, tmp_path: Path) -> None:
    told = whole.copied(tmp_path)
    _remount(disk, "ro")
    with pytest.raises(LakeError, match=r"the lake '.*' cannot be written: Read-only file system"):
        told.run()
    _remount(disk, "rw")
    told.run()
    told.assert_right()
