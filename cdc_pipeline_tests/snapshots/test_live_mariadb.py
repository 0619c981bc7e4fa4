"""A dump of a running MariaDB has the rows that the server itself returns, and its position."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cdc_pipeline.snapshots.export import Export, open_export
from cdc_pipeline_tests.support.exports import EXPORTS, Rows, rows_of
from cdc_pipeline_tests.support.servers.mariadb import MariaDb

_SOURCE = EXPORTS / "mysqldump" / "source.sql"
_DATABASES = ("snap", "a.b%c", "数据")


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> MariaDb:
    """With tables of every type, at its limits."""
    mariadb.execute(_SOURCE.read_text(encoding="utf-8"))
    return mariadb


def _dumped(server: MariaDb, folder: Path, *options: str) -> Export:
    path = folder / "dump.sql"
    server.dump(path, *options, "--databases", *_DATABASES)
    return open_export("mysqldump", str(path))


def _multiset(rows: Rows) -> Counter[tuple[tuple[str, str | None], ...]]:
    return Counter(tuple(row.items()) for row in rows)


@pytest.mark.parametrize(
    "options",
    [
        ("--single-transaction", "--master-data=2", "--gtid", "--hex-blob"),
        ("--single-transaction", "--master-data=2"),
        ("--skip-extended-insert", "--complete-insert"),
        ("--skip-opt", "--create-options", "--routines", "--triggers", "--events", "--skip-tz-utc"),
        ("--replace", "--order-by-primary", "--net-buffer-length=4096"),
    ],
    ids=" ".join,
)
def test_a_dump_has_the_rows_of_the_server(server: MariaDb, options: tuple[str, ...], tmp_path: Path) -> None:
    export = _dumped(server, tmp_path, *options)
    tables = server.execute(
        "SELECT table_schema, table_name FROM information_schema.tables"
        " WHERE table_type = 'BASE TABLE' AND table_schema IN ('snap', 'a.b%c', '数据')"
    )
    assert [(table.name.database, table.name.table) for table in export.tables] == sorted(tables)
    for table in export.tables:
        true = server.rows(table.name.database, table.name.table)
        assert _multiset(rows_of(export, str(table.name))) == _multiset(true)


def test_a_dump_has_the_position_of_the_server(server: MariaDb, tmp_path: Path) -> None:
    export = _dumped(server, tmp_path, "--single-transaction", "--master-data=2", "--gtid")
    ((log_file, log_position, *_),) = server.execute("SHOW MASTER STATUS")
    ((gtids,),) = server.execute("SELECT @@gtid_binlog_pos")
    assert export.position.tso is None
    assert f"LOG_FILE='{log_file}', MASTER_LOG_POS={log_position}" in export.position.binlog
    assert f"'{gtids}'" in export.position.binlog
    assert export.time_zone == "+00:00"
