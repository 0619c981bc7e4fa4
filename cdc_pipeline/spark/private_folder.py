"""The folder of this user in the temporary folder, for what no other user of the machine may read, hold or put there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cdc_pipeline.errors import TransientError
from cdc_pipeline.spark.jvm_keeper import NotPrivateError, require_private


def private_folder() -> Path:
    """The folder, made where there is none. Raises TransientError where another user has put something in its place."""
    folder = Path(tempfile.gettempdir(), f"cdc_pipeline-{os.getuid()}")
    try:
        require_private(folder)
    except NotPrivateError as error:
        raise TransientError(f"{error}: remove it, or set TMPDIR to a folder of your own") from error
    return folder


def private_file(folder: Path, name: str) -> int:
    """The descriptor of the file, made where there is none, which nobody else can read: who can open a file can lock it."""
    return os.open(folder / name, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
