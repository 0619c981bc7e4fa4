"""Mirrors read by engines other than Spark, in the versions of requirements.lock.

Unsupported features are tested too. If an engine gains one, the test fails, and docs/reading.md needs an update.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import quote

import deltalake
import duckdb
import duckdb_extension_delta
import polars as pl
import pyarrow as pa
import pytest
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.merge import apply_rows
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark, watermark_tso

DOCS = Path(__file__).parents[2] / "docs"
_TYPES = {
    "id": "bigint unsigned",
    "n": "int",
    "d": "decimal(20,4)",
    "b": "varbinary(8)",
    "at": "datetime(6)",
    "ts": "timestamp(3)",
    "day": "date",
    "v": "varchar(20)",
    "f": "double",
    "e": "enum('a','b')",
}
_NULLS = ("1", *[None] * 9)
_LEAST = ("2", "7", "-0.0001", "", "1000-01-01 00:00:00.000001", "2038-01-19 03:14:07.999", "9999-12-31", "")
_LEAST = (*_LEAST, "-1.5e300", "2")
_MOST = ("18446744073709551615", "-5", "1234567890123456.7891", "\x00ÿz", "2024-02-29 23:59:59.123456")
_MOST = (*_MOST, "2024-02-29 23:59:59.123", "1000-01-01", "é中😀", "0.1", "1")
_WITH_6 = (_MOST[0], "6", *_MOST[2:])
# The same rows as Python values.
_NULLS_READ = (Decimal(1), *[None] * 9)
_LEAST_READ = (
    *(Decimal(2), 7, Decimal("-0.0001"), b"", datetime(1000, 1, 1, 0, 0, 0, 1)),
    *(datetime(2038, 1, 19, 3, 14, 7, 999000, timezone.utc), date(9999, 12, 31), "", -1.5e300, "b"),
)
_MOST_READ = (
    *(Decimal(18446744073709551615), -5, Decimal("1234567890123456.7891"), b"\x00\xffz"),
    *(datetime(2024, 2, 29, 23, 59, 59, 123456), datetime(2024, 2, 29, 23, 59, 59, 123000, timezone.utc)),
    *(date(1000, 1, 1), "é中😀", 0.1, "a"),
)
_WITH_6_READ = (_MOST_READ[0], 6, *_MOST_READ[2:])
BEFORE, AFTER = [_NULLS_READ, _LEAST_READ, _MOST_READ], [_NULLS_READ, _WITH_6_READ]

PLAIN, RENAMED, WIDENED = "plain", "renamed", "widened"
"""Three mirrors: only rows change; a column is renamed; a column changes its type without a rewrite."""
TABLES = (PLAIN, RENAMED, WIDENED)
_ALTERED = {
    RENAMED: "ALTER TABLE `renamed` RENAME COLUMN `n` TO `number`",
    WIDENED: "ALTER TABLE `widened` MODIFY COLUMN `n` BIGINT",
}

Read = list[tuple[Any, ...]]


class ForeignLake:
    """Two cuts: before the ALTERs, and after them with an update and a delete of rows in files of the first cut.

    `versions`: the Delta version of each mirror in each cut.
    """

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.paths = LakePaths(str(folder / "lake"), "shop")
        topic = Topic()
        for table in TABLES:
            columns = ",".join(f"`{name}` {kind}" for name, kind in _TYPES.items())
            topic.send(ddl(f"CREATE TABLE `{table}` ({columns},PRIMARY KEY (`id`))", 1, table=table, kind="CREATE"))
            for values in (_NULLS, _LEAST, _MOST):
                topic.send(_row("INSERT", table, 2, _TYPES, values))
        topic.send(watermark(10)).write(folder / "captures", "1.jsonl")
        ingest(spark, self.paths, folder / "captures")
        for table in TABLES:
            types = {"number" if name == "n" and table == RENAMED else name: kind for name, kind in _TYPES.items()}
            if table in _ALTERED:
                topic.send(ddl(_ALTERED[table], 12, table=table))
            topic.send(_row("UPDATE", table, 14, types, _WITH_6, _MOST))
            topic.send(_row("DELETE", table, 15, types, _LEAST))
        topic.send(watermark(20)).write(folder / "captures", "2.jsonl")
        with patch.object(apply_rows, "SMALL_MIRROR", 0):  # deletes with deletion vectors, as in large mirrors
            ingest(spark, self.paths, folder / "captures")
        assert all('"deletionVector":{' in self._log(table) for table in TABLES)
        cuts = spark.read.format("delta").load(self.paths.table("consistent_cuts")).orderBy("cut_id").collect()
        assert [cut["resolved_tso"] for cut in cuts] == [watermark_tso(10), watermark_tso(20)]
        self.versions = [{mirror["table"]: mirror["version"] for mirror in cut["mirrors"]} for cut in cuts]

    def _log(self, table: str) -> str:
        return "".join(commit.read_text() for commit in Path(self.path(table)).glob("_delta_log/*.json"))

    def path(self, table: str) -> str:
        return self.paths.mirror(TableName("db", table))

    def cut(self, number: int, table: str) -> tuple[str, int]:
        return self.path(table), self.versions[number][table]


def _row(
    kind: str, table: str, step: int, types: dict[str, str], values: Any, old: tuple[str | None, ...] | None = None
) -> str:
    before = None if old is None else dict(zip(types, old, strict=True))
    data = dict(zip(types, values, strict=True))
    return row(kind, table, step, data, old=before, types=types, key=["id"])


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ForeignLake:
    return ForeignLake(spark, tmp_path_factory.mktemp("foreign"))


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    """DuckDB with its Delta extension from PyPI. It does not download extensions."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    (extension,) = (Path(duckdb_extension_delta.__file__).parent / "extensions").rglob("*.duckdb_extension")
    connection.load_extension(str(extension))
    return connection


def _rows(found: Any) -> Read:
    """The rows of an Arrow table by `id`, without metadata columns."""
    table = pa.table(found).to_pylist()
    return sorted(
        (tuple(value for name, value in row.items() if not name.startswith("_")) for row in table),
        key=lambda row: row[0],
    )


def _by_duckdb(duck: duckdb.DuckDBPyConnection, path: str, version: int) -> Read:
    return _rows(duck.execute("SELECT * FROM delta_scan(?, version => ?)", [path, version]).to_arrow_table())


def _by_polars(path: str, version: int) -> Read:
    return _rows(pl.read_delta(path, version=version))


def _by_delta_rs(path: str, version: int) -> Read:
    """Uses delta-rs's own query engine. Its pyarrow datasets support fewer features."""
    table = deltalake.DeltaTable(path, version=version)
    return _rows(deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all())


@pytest.mark.parametrize("table", TABLES)
def test_spark_and_duckdb_read_all_mirrors(
    lake: ForeignLake, spark: SparkSession, duck: duckdb.DuckDBPyConnection, table: str
) -> None:
    for number, truth in enumerate((BEFORE, AFTER)):
        path, version = lake.cut(number, table)
        by_spark = spark.read.format("delta").option("versionAsOf", version).load(path)
        assert _rows(by_spark.toArrow()) == truth
        assert _by_duckdb(duck, path, version) == truth
    newest = duck.execute("SELECT * FROM delta_scan(?)", [lake.path(table)])
    assert [column[0] for column in newest.description or []][:2] == ["id", "number" if table == RENAMED else "n"]
    assert _rows(newest.to_arrow_table()) == AFTER


def test_polars_and_delta_rs_read_deletion_vectors(lake: ForeignLake) -> None:
    """And versions before an ALTER."""
    for read in (_by_polars, _by_delta_rs):
        assert read(*lake.cut(1, PLAIN)) == AFTER
        for table in TABLES:
            assert read(*lake.cut(0, table)) == BEFORE


def test_polars_and_delta_rs_reject_unsupported_features(lake: ForeignLake) -> None:
    """None of them returns wrong rows. delta-rs's queries support column mapping, its datasets not even deletion vectors."""

    def refused(read: Callable[[], object], feature: str) -> None:
        with pytest.raises(
            DeltaError, match=rf"(?i)(not (yet )?supported|unsupported).*{feature}|{feature}.*supported"
        ):
            read()

    refused(lambda: _by_polars(*lake.cut(1, RENAMED)), "columnMapping")
    refused(lambda: _by_polars(*lake.cut(1, WIDENED)), "typeWidening")
    refused(lambda: _by_delta_rs(*lake.cut(1, WIDENED)), "typeWidening")
    assert _by_delta_rs(*lake.cut(1, RENAMED)) == AFTER
    for table, feature in ((PLAIN, "deletionVectors"), (RENAMED, "columnMapping"), (WIDENED, "typeWidening")):
        refused(deltalake.DeltaTable(lake.path(table)).to_pyarrow_table, feature)


def test_names_of_folders(lake: ForeignLake, duck: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    """DuckDB needs a URI for a name that is not ASCII.

    All of them decode a percent-encoded name once too often, also through a symbolic link.
    """
    folder = tmp_path / "x"
    shutil.copytree(lake.path(PLAIN), folder)
    version = lake.versions[1][PLAIN]
    for name in ("a b", "o'clock", "é中😀"):
        folder = folder.rename(tmp_path / name)
        assert _by_duckdb(duck, f"file://{quote(str(folder))}", version) == AFTER, name
        assert _by_delta_rs(str(folder), version) == AFTER, name
    folder = folder.rename(tmp_path / "a%2Fb")
    link = tmp_path / "link"
    link.symlink_to(folder)
    for path in (str(folder), f"file://{quote(str(folder))}", str(link)):
        with pytest.raises(duckdb.IOException, match=r"(?i)not found|does not exist"):
            _by_duckdb(duck, path, version)
    for read in (_by_delta_rs, _by_polars):
        for path in (str(folder), str(link)):
            with pytest.raises(DeltaError, match=r"(?i)not found"):
                read(path, version)


def _documented(heading: str, lake: ForeignLake, **names: Any) -> dict[str, Any]:
    """Runs the code below that heading of docs/reading.md on this lake. Returns its variables."""
    section = (DOCS / "reading.md").read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n## ")[0]
    (code, *_) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    code = code.replace("data/lake/shop", lake.paths.home).replace("shop/orders", "db/plain")
    code = code.replace("INSTALL delta; LOAD delta", "SELECT 1").replace("duckdb.connect()", "duck")
    exec(compile(code.replace("shop_orders", "db_renamed"), heading, "exec"), names)
    return names


def test_a_cut_in_duckdb_as_documented(lake: ForeignLake, duck: duckdb.DuckDBPyConnection) -> None:
    names = _documented("DuckDB", lake, duck=duck)
    assert _rows(names["orders"].to_arrow_table()) == AFTER
    found = duck.execute("SELECT (SELECT count(*) FROM db_plain), (SELECT count(*) FROM db_widened)").fetchall()
    assert found == [(2, 2)]
    # the message of a row, without Spark
    (message,) = duck.execute(
        "SELECT decode(r.value) FROM db_plain m JOIN delta_scan(?) r ON r.topic = m._topic AND r.partition = m._partition "
        "AND r.offset = m._offset WHERE m.n = 6",
        [lake.paths.table("raw_topic_snapshot")],
    ).fetchone() or [""]
    assert '"type": "UPDATE"' in message
    assert '"table": "plain"' in message


def test_polars_as_documented(lake: ForeignLake) -> None:
    assert _rows(_documented("Polars and delta-rs", lake)["orders"]) == AFTER
