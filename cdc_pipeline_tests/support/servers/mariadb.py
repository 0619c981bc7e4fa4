"""A MariaDB server for tests, from Debian's packages, and its client programs."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdc_pipeline_tests.local_kafka.ports import free_ports
from cdc_pipeline_tests.local_kafka.process import BrokerProcess
from cdc_pipeline_tests.local_kafka.settings import HOST

NO_PROGRAMS = "no mariadbd; on Debian: apt-get install mariadb-server-core mariadb-client (.ci/run does)"
"""The reason for which tests are skipped."""
_SBIN = "/usr/sbin"
"""Debian's folder of the server, which is not on the PATH of every user."""
_SYSTEM_TABLES = ("system_tables", "performance_tables", "system_tables_data")
"""Files of SQL that mariadb-install-db passes to the server, in this order. The texts of HELP are left out."""
_SETTINGS = (
    "bind-address=127.0.0.1",
    "skip-name-resolve",
    # for --master-data, which dumps the position of the binary log
    "log-bin=binlog",
    "server-id=1",
    "character-set-server=utf8mb4",
    "default-time-zone=+00:00",
    # less to write: nobody starts the server again
    "innodb-log-file-size=8M",
    "innodb-buffer-pool-size=32M",
    "innodb-flush-log-at-trx-commit=0",
    "innodb-doublewrite=0",
)
_START_SECONDS = 60.0
_BYTES = frozenset({"bit", "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "point", "geometry"})
"""Types whose values are read as bytes."""
_BYTES_CELL = "LOWER(HEX(CAST({} AS BINARY)))"
_TEXT_CELL = "HEX(CONVERT(CAST({} AS CHAR) USING utf8mb4))"
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}
"""Those of the output of mariadb --batch."""


@dataclass(frozen=True)
class Programs:
    server: Path
    client: Path
    dump: Path
    """mariadb-dump, also known as mysqldump."""
    system_tables: tuple[Path, ...]


@dataclass(frozen=True)
class MariaDb:
    """A running server without databases of its own. The user may do everything."""

    programs: Programs
    folder: Path
    port: int
    password: str
    user: str = "reader"
    host: str = HOST

    @property
    def options_file(self) -> Path:
        """Of the client programs, which take `--defaults-file=…` as their first option: address, user and password."""
        return self.folder / "client.cnf"

    def jdbc_url(self, database: str = "") -> str:
        """For the driver `org.mariadb.jdbc.Driver`, without user and password.

        With `jdbc:mariadb:` Spark quotes names as if they were strings, and each row has the names as its values.
        """
        return f"jdbc:mysql://{self.host}:{self.port}/{database}?permitMysqlScheme&sslMode=disable"

    def execute(self, sql: str, database: str = "") -> list[tuple[str | None, ...]]:
        """Runs statements, and returns the rows of all of them. Raises RuntimeError at the first one that fails.

        Values are texts in UTF-8: select HEX(…) of others. The text `NULL` is not distinguished from NULL.
        """
        options = ["--batch", "--skip-column-names", "--default-character-set=utf8mb4"]
        output = self._run(self.programs.client, *options, *([database] if database else ()), statements=sql)
        return [tuple(map(_value, line.split("\t"))) for line in output.decode().split("\n")[:-1]]

    def rows(self, database: str, table: str) -> list[dict[str, str | None]]:
        """The rows of a table, with texts as in `snapshots.cell_texts`: Unicode, or hexadecimal digits of bytes."""
        columns = self.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            f" WHERE table_schema = {_literal(database)} AND table_name = {_literal(table)} ORDER BY ordinal_position"
        )
        are_bytes = {str(name): kind in _BYTES for name, kind in columns}
        cells = [_BYTES_CELL if is_bytes else _TEXT_CELL for is_bytes in are_bytes.values()]
        selected = ", ".join(cell.format(_name(name)) for cell, name in zip(cells, are_bytes, strict=True))
        return [
            {
                name: digits if digits is None or is_bytes else bytes.fromhex(digits).decode()
                for (name, is_bytes), digits in zip(are_bytes.items(), row, strict=True)
            }
            for row in self.execute(f"SELECT {selected} FROM {_name(database)}.{_name(table)}")
        ]

    def dump(self, file: Path, *options: str) -> None:
        """Writes what mysqldump prints with these options. Raises RuntimeError if it fails."""
        file.write_bytes(self._run(self.programs.dump, *options))

    def _run(self, program: Path, *options: str, statements: str = "") -> bytes:
        command = [str(program), f"--defaults-file={self.options_file}", *options]
        done = subprocess.run(command, input=statements.encode(), capture_output=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{program.name}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout


def mariadb_programs() -> Programs | None:
    """The programs of this machine, or None if one of them is missing."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), _SBIN))
    server, client, dump = (shutil.which(name, path=path) for name in ("mariadbd", "mariadb", "mariadb-dump"))
    if server is None or client is None or dump is None:
        return None
    shared = Path(server).resolve().parents[1] / "share"
    # the names begin with mysql_ or mariadb_, by version
    found = [next(shared.glob(f"m*/m*_{name}.sql"), None) for name in _SYSTEM_TABLES]
    tables = tuple(file for file in found if file is not None)
    return Programs(Path(server), Path(client), Path(dump), tables) if len(tables) == len(found) else None


@contextmanager
def running_mariadb(programs: Programs) -> Iterator[MariaDb]:
    """Starts a server on a free port. It ends with the context, and also if the process that started it is killed.

    Raises RuntimeError with the server's reason if it fails.
    """
    # not pytest's folder, whose path may be too long for a socket
    with tempfile.TemporaryDirectory(prefix="cdc_pipeline-mariadb-") as name:
        folder = Path(name)
        (port,) = free_ports(1)
        server = MariaDb(programs, folder, port, secrets.token_urlsafe())
        _write_options(server)
        _create_system_tables(server)
        process = BrokerProcess(_server_command(server), folder / "log")
        try:
            _wait(server, process)
            yield server
        finally:
            process.kill()


def _write_options(server: MariaDb) -> None:
    """The options of both sides, and the statements that create the user."""
    folder = server.folder
    (folder / "data").mkdir()
    places = [f"datadir={folder / 'data'}", f"socket={folder / 'socket'}", f"pid-file={folder / 'pid'}"]
    # the server refuses root, unless it is named
    account = ["user=root"] if os.geteuid() == 0 else []
    (folder / "server.cnf").write_text("\n".join(["[mariadbd]", *places, *account, *_SETTINGS, ""]))
    access = [f"socket={folder / 'socket'}", f"user={server.user}", f"password={server.password}"]
    server.options_file.write_text("\n".join(["[client]", *access, ""]))
    account_name = f"'{server.user}'@'%'"
    (folder / "users.sql").write_text(
        f"CREATE USER {account_name} IDENTIFIED BY '{server.password}';\n"
        f"GRANT ALL PRIVILEGES ON *.* TO {account_name} WITH GRANT OPTION;\n"
    )


def _server_command(server: MariaDb) -> list[str]:
    options = [f"--defaults-file={server.folder / 'server.cnf'}", f"--port={server.port}"]
    return [str(server.programs.server), *options, f"--init-file={server.folder / 'users.sql'}"]


def _create_system_tables(server: MariaDb) -> None:
    """Does what mariadb-install-db does, without its users that need no password."""
    files = [file.read_text(encoding="utf-8") for file in server.programs.system_tables]
    begin, end = (
        "CREATE DATABASE mysql;\nUSE mysql;",
        "DELETE FROM global_priv WHERE user = 'root';\nDELETE FROM proxies_priv;",
    )
    done = subprocess.run(
        [
            str(server.programs.server),
            f"--defaults-file={server.folder / 'server.cnf'}",
            "--bootstrap",
            "--skip-log-bin",
        ],
        input="\n".join([begin, *files, end, ""]).encode(),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"mariadbd --bootstrap: {done.stderr.decode(errors='replace')}")


def _wait(server: MariaDb, process: BrokerProcess) -> None:
    """Waits until the server answers."""
    until = time.monotonic() + _START_SECONDS
    while True:
        try:
            server.execute("SELECT 1")
            return
        except RuntimeError as error:
            if time.monotonic() > until or process.status is not None:
                raise RuntimeError(f"mariadbd did not start: {process.error_line()}") from error
            time.sleep(0.05)


def _value(text: str) -> str | None:
    return None if text == "NULL" else _ESCAPED.sub(lambda found: _ESCAPES.get(found[1], found[0]), text)


def _name(text: str) -> str:
    return f"`{text.replace('`', '``')}`"


def _literal(text: str) -> str:
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "''"))
