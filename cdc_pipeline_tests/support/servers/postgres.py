"""A PostgreSQL server for one test, if the machine has its programs."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_DEBIAN = "/usr/lib/postgresql"
"""Debian's folder of PostgreSQL versions, whose programs are not on PATH."""
_START_SECONDS = 60


@dataclass(frozen=True)
class Postgres:
    """A running server with the superuser `user` and the database `postgres`."""

    port: int
    user: str
    password: str
    host: str = "127.0.0.1"
    database: str = "postgres"


def postgres_programs() -> Path | None:
    """The folder of initdb, pg_ctl and postgres, or None if one of them is missing."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path(_DEBIAN).glob("*/bin"), reverse=True)
    names = ("initdb", "pg_ctl", "postgres")
    return next((folder for folder in folders if all((folder / name).is_file() for name in names)), None)


@contextlib.contextmanager
def running_postgres(programs: Path) -> Iterator[Postgres]:
    """Starts a server on a free port and stops it afterwards. Raises RuntimeError with the server's log if it fails."""
    # not pytest's folder, which only this user can enter
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-postgres-") as name:
        folder, server = Path(name), Postgres(_free_port(), "dagster", secrets.token_urlsafe())
        data, log, password = folder / "data", folder / "log", folder / "password"
        password.write_text(server.password)
        for path in (folder, password):
            if os.geteuid() == 0:
                shutil.chown(path, _account())
        options = f"-p {server.port} -h {server.host} -k {folder} -F"
        access = ["--auth=scram-sha-256", f"--username={server.user}", f"--pwfile={password}"]
        _run(log, programs / "initdb", f"--pgdata={data}", *access, "--encoding=UTF8", "--locale=C", "--no-sync")
        control = (programs / "pg_ctl", f"--pgdata={data}", "--wait")
        _run(log, *control, f"--timeout={_START_SECONDS}", f"--log={log}", f"--options={options}", "start")
        try:
            yield server
        finally:
            _run(log, *control, "--mode=immediate", "stop")


def _account() -> str:
    """The user of the server's processes: PostgreSQL refuses root."""
    return "nobody" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def _run(log: Path, *command: str | Path) -> None:
    # a file, not a pipe: the server inherits it, and a pipe would stay open until it ends
    with tempfile.TemporaryFile("w+") as output:
        status = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            user=_account() if os.geteuid() == 0 else None,
            check=False,
        ).returncode
        output.seek(0)
        shown = output.read() + (log.read_text(errors="replace") if log.exists() else "")
    if status != 0:
        raise RuntimeError(f"{command[0]} ended with status {status}: {shown}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
