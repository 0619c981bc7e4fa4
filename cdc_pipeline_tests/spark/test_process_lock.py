from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.process_lock import process_lock

_NAME = "test_turns"
_HOLDER = f"""
import time
from cdc_pipeline.spark.process_lock import process_lock
with process_lock({_NAME!r}):
    print("mine", flush=True)
    time.sleep(60)
"""
_WAITER = f"""
from cdc_pipeline.spark.process_lock import process_lock
print("waits", flush=True)
with process_lock({_NAME!r}):
    print("mine", flush=True)
"""


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's private folder, below the test's own temporary folder."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return place / f"cdc_pipeline-{os.getuid()}"


def _process(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def test_the_second_waits_until_the_first_is_gone() -> None:
    with _process(_HOLDER) as holder:
        try:
            assert _line(holder) == "mine\n"
            with _process(_WAITER) as waiter:
                try:
                    assert _line(waiter) == "waits\n"
                    time.sleep(0.3)
                    assert waiter.poll() is None
                    holder.send_signal(signal.SIGKILL)  # a kill releases the lock
                    assert _line(waiter) == "mine\n"
                    assert waiter.wait(120) == 0
                finally:
                    waiter.kill()
        finally:
            holder.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_turns_follow_one_another() -> None:
    """A lock can be taken again after its release, and by nobody before. Locks of other names are independent."""
    for _ in range(2):
        with process_lock(_NAME):
            with pytest.raises(TransientError), process_lock(_NAME, wait_seconds=0):
                pass
            with process_lock("another", wait_seconds=0):
                pass


def test_a_lock_that_is_not_released_is_reported(private: Path) -> None:
    words = f"another process has held the lock {private}/{_NAME}.lock for 0 s: "
    with process_lock(_NAME), pytest.raises(TransientError, match=words), process_lock(_NAME, wait_seconds=0.2):
        pass


def test_nobody_else_can_open_what_a_turn_holds(private: Path) -> None:
    with process_lock(_NAME):
        pass
    file = private / f"{_NAME}.lock"
    assert (stat.S_IMODE(private.stat().st_mode), stat.S_IMODE(file.stat().st_mode)) == (0o700, 0o600)


def test_what_others_have_put_there_is_refused(private: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("")
    private.mkdir(mode=0o700)
    (private / f"{_NAME}.lock").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic link"), process_lock(_NAME):
        pass
    (private / f"{_NAME}.lock").unlink()
    private.chmod(0o777)
    with (
        pytest.raises(
            TransientError, match=f"{private} is not a folder that only this user may write: remove it, or set"
        ),
        process_lock(_NAME),
    ):
        pass
    private.chmod(0o700)
    private.rename(tmp_path / "moved")
    private.symlink_to(tmp_path / "moved")
    with pytest.raises(TransientError, match="is not a folder that only this user may write"), process_lock(_NAME):
        pass
