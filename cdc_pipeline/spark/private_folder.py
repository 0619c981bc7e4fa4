"""A folder below the temporary folder that only this user may read and write."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from cdc_pipeline.errors import TransientError


def private_folder() -> Path:
    """The folder, created if missing. Raises TransientError if another user owns or may write what is at its path."""
    folder = Path(tempfile.gettempdir(), f"cdc_pipeline-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not is_private(folder.lstat()):
        raise TransientError(
            f"{folder} is not a folder that only this user may write: remove it, or set TMPDIR to a folder of your own"
        )
    return folder


def is_private(status: os.stat_result) -> bool:
    """Whether it is the status of a folder that belongs to this user and that no other user may write."""
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def private_file(folder: Path, name: str) -> int:
    """The descriptor of a file (mode 0600), created if missing. No other user can open it, and so none can lock it."""
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
