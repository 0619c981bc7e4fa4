"""Dagster's daemon on the definitions of the local broker."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cdc_pipeline_tests.local_kafka.definitions import BOOTSTRAP, LAKE

_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 30


@contextmanager
def running_daemon(place: Path, bootstrap: str, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `dagster-daemon` while the block runs, then kills it with its code server and its runs.

    In the folder `place` are its home `dagster`, the lake `lake` and its log `daemon.log`. `environment`: further variables.
    """
    home = place / "dagster"
    home.mkdir()
    shutil.copy(_ROOT / "dagster.yaml", home)
    command = [str(Path(sys.executable).with_name("dagster-daemon")), "run", "-m", f"{__package__}.definitions"]
    own = {"DAGSTER_HOME": str(home), BOOTSTRAP: bootstrap, LAKE: str(place / "lake")}
    with (place / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **own, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=_ROOT,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_PATIENCE_SECONDS)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
