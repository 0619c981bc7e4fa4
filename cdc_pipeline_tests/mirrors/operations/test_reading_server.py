"""Tables of a running MariaDB, read by JDBC, as the beginning of mirrors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import CdcError, SourceError, TransientError
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.baselines import baseline_tables
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations import reading_server
from cdc_pipeline.mirrors.operations.adoption import Adoption, adopt
from cdc_pipeline.mirrors.operations.reading_server import ServerReading
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.jdbc import JdbcServer
from cdc_pipeline_tests.support.exports import EXPORTS, true_tables
from cdc_pipeline_tests.support.lakes.runs import mirror_differences
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import canal
from cdc_pipeline_tests.support.servers.mariadb import MariaDb

_DATABASES = ("snap", "a.b%c", "数据")
_DRIVER = "org.mariadb.jdbc.Driver"


@pytest.fixture(scope="module")
def server(mariadb: MariaDb) -> Iterator[MariaDb]:
    """With tables of every type, at its limits."""
    mariadb.execute((EXPORTS / "mysqldump" / "source.sql").read_text(encoding="utf-8"))
    yield mariadb
    for database in _DATABASES:
        mariadb.execute(f"DROP DATABASE `{database}`")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    found = Stream(spark, tmp_path / "one")
    _send(found, canal("INSERT", "old", 10, [{"id": "1"}], types={"id": "int"}, key=["id"]))
    return found


def _send(stream: Stream, payload: str) -> None:
    stream.topic.send(payload, 0)
    stream.slices += 1
    stream.topic.write(stream.folder / "captures", f"{stream.slices}.jsonl")
    stream.run()


def _address(server: MariaDb, scheme: str = "mariadb", password: str | None = None) -> JdbcServer:
    options = {"mariadb": "sslMode=disable", "mysql": "permitMysqlScheme&sslMode=disable"}[scheme]
    url = f"jdbc:{scheme}://{server.host}:{server.port}/?{options}"
    return JdbcServer(url, _DRIVER, server.user, server.password if password is None else password)


def _load(stream: Stream, address: JdbcServer, *databases: str) -> str:
    reading = ServerReading(stream.lake, "load", lambda line: None)
    return reading.load(address, lambda name: name.database in (databases or _DATABASES))


def _adopt(stream: Stream, baseline: str) -> Adoption:
    maker = CutMaker(Lake(stream.spark, stream.paths), "adopt", "Asia/Shanghai", 2, lambda line: None)
    return adopt(Rebuilder(maker), baseline)


@pytest.mark.parametrize("scheme", ["mariadb", "mysql"])
def test_mirrors_equal_the_tables(scheme: str, server: MariaDb, stream: Stream) -> None:
    """All values, also zero dates, TIMEs above 24 hours, the digits of FLOAT, and texts in other character sets."""
    with patch.object(reading_server, "_ROWS_PER_RANGE", 30):
        baseline = _load(stream, _address(server, scheme))
    assert _adopt(stream, baseline).rebuilt is not None
    truth = true_tables("mysqldump/expected.json.gz")
    for full_name, table in truth.items():
        database = next(name for name in _DATABASES if full_name.startswith(f"{name}."))
        name = TableName(database, full_name.removeprefix(f"{database}."))
        found = mirror_differences(stream.spark, stream.paths, name, table["columns"], table["rows"])
        assert found == [], "\n".join(found)
    published = published_cut(stream.lake)
    for name in published.names:
        if name.database in _DATABASES:
            state = table_state(stream.spark, published.mirror_folder(name, stream.paths))
            assert state is not None
            assert MirrorState.from_properties(state.properties).gaps == ()
    files = stream.spark.read.format("delta").load(stream.paths.table("baseline_files"))
    of_many = files.where("`table` = 'many'").orderBy("number").collect()
    assert len(of_many) > 1
    assert of_many[1]["path"].startswith("range_key >= ")


def test_a_new_read_after_an_adopted_one(server: MariaDb, stream: Stream) -> None:
    server.execute(
        "CREATE DATABASE again; CREATE TABLE again.t (id INT PRIMARY KEY, v FLOAT); INSERT INTO again.t VALUES (1, 0.1)"
    )
    try:
        first = _load(stream, _address(server), "again")
        assert _load(stream, _address(server), "again") == first
        _adopt(stream, first)
        server.execute("UPDATE again.t SET v = 16777216; INSERT INTO again.t VALUES (2, NULL)")
        second = _load(stream, _address(server), "again")
        assert second != first
        _adopt(stream, second)
        path = published_cut(stream.lake).mirror_folder(TableName("again", "t"), stream.paths)
        rows = stream.spark.read.format("delta").load(path).select("id", "v").orderBy("id").collect()
        assert [tuple(row) for row in rows] == [(1, 16777216.0), (2, None)]
    finally:
        server.execute("DROP DATABASE again")


def test_a_load_that_was_stopped_goes_on(server: MariaDb, stream: Stream) -> None:
    said: list[str] = []

    def stop(line: str) -> None:
        said.append(line)
        raise KeyboardInterrupt

    reading = ServerReading(stream.lake, "load", stop)
    for count in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            reading.load(_address(server), lambda name: name.database == "snap")
        assert len(said) == count
    baseline = _load(stream, _address(server), "snap")
    tables = baseline_tables(stream.lake, baseline)
    assert len({table.number for table in tables}) == len(tables) > 2


def test_what_is_refused(server: MariaDb, stream: Stream) -> None:
    cases: dict[JdbcServer, tuple[type[CdcError], str]] = {
        _address(server, password="wrong-secret"): (SourceError, "Access denied"),
        JdbcServer("jdbc:mariadb://127.0.0.1:1/", _DRIVER): (TransientError, "does not answer"),
        JdbcServer(_address(server).url, "org.missing.Driver"): (
            SourceError,
            "the session has no class org.missing.Driver",
        ),
        JdbcServer("jdbc:oracle://host", _DRIVER): (SourceError, "not an address of the driver"),
    }
    for address, (error, text) in cases.items():
        with pytest.raises(error, match=text) as raised:
            _load(stream, address)
        assert "wrong-secret" not in str(raised.value)
    with pytest.raises(SourceError, match=r"has none of the tables\. Its tables: "):
        _load(stream, _address(server), "absent")
