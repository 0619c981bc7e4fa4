"""A small lake in the metastore of PySpark's jars, and queries by name through a session with Hive."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cdc_pipeline.catalogs import hive
from cdc_pipeline.catalogs.entries import Definition
from cdc_pipeline.catalogs.hive import Hive, HiveCatalog
from cdc_pipeline.catalogs.updates import CatalogUpdates
from cdc_pipeline.component.catalog_field import HiveCatalog as HiveField
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import change, create, delete, put, update
from cdc_pipeline_tests.support.messages import Topic, watermark
from cdc_pipeline_tests.support.servers.metastore import hive_metastore
from cdc_pipeline_tests.support.spark_settings import SHORT_LIVED

_PARTITIONS = (0, 1)


@pytest.fixture(scope="module")
def _metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hive_metastore(tmp_path_factory.mktemp("metastore")) as found:
        yield found


@pytest.fixture
def uri(_metastore: str, spark: SparkSession) -> str:
    """The address of an empty metastore."""
    catalog = Hive(_metastore).connect(spark)
    for name in catalog.databases():
        for entry in catalog.entries(name):
            catalog.drop(name, entry.name)
        if name != "default":
            catalog.drop_database(name)
    return _metastore


@dataclass
class _Pipeline:
    """A pipeline `shop`, reconciled with a metastore after each cut."""

    spark: SparkSession
    uri: str
    folder: Path
    name: str
    warnings: list[str] = field(default_factory=list)
    topic: Topic = field(default_factory=Topic)
    batches: int = 0

    def send(self, until: int, *messages: tuple[str, int]) -> None:
        for payload, partition in messages:
            self.topic.send(payload, partition)
        for partition in _PARTITIONS:
            self.topic.send(watermark(until), partition)
        self.topic.write(self.folder / "captures", f"{until:04d}.jsonl")
        paths = LakePaths(str(self.folder / "lake ü"), self.name)
        report = ingest(self.spark, paths, self.folder / "captures", columns=ColumnRules(soft_delete=("db.kept",)))
        CatalogUpdates(Hive(self.uri), self.warnings.append).after_cut(
            Lake(self.spark, paths), report.cut_id, report.mirrors
        )

    @property
    def catalog(self) -> HiveCatalog:
        return Hive(self.uri).connect(self.spark)


def _schemas(catalog: HiveCatalog, pipeline: str) -> dict[str, list[str]]:
    return {
        name: sorted(entry.name for entry in catalog.entries(name))
        for name, parameters in catalog.databases().items()
        if parameters.get("cdc.pipeline") == pipeline
    }


_QUERIES = """
import json, sys
from pyspark.sql import SparkSession
from cdc_pipeline.spark.session import SparkLakehouse
uri, queries = sys.argv[1], sys.argv[2:]
settings = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uri, **SETTINGS}
spark = SparkLakehouse(driver_memory="1g", settings=settings).session
print("ROWS", json.dumps([[list(row) for row in spark.sql(query).collect()] for query in queries], default=str))
"""


def _query(uri: str, *queries: str) -> list[list[list[Any]]]:
    """The rows of each query, in a session of its own that has the metastore as its catalog."""
    program = _QUERIES.replace("SETTINGS", repr(dict(SHORT_LIVED)))
    done = subprocess.run(
        [sys.executable, "-c", program, uri, *queries], capture_output=True, text=True, check=False, env=os.environ
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("ROWS ")]
    assert rows, done.stderr[-3000:]
    found: list[list[list[Any]]] = json.loads(rows[0].removeprefix("ROWS "))
    return found


def test_mirrors_by_name(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    shop = _Pipeline(spark, uri, tmp_path, "shop")
    shop.send(
        10,
        *(create(name, 1) for name in ("t", "old", "gone", "kept", "Order-Items")),
        put("t", 2, "1", "a"),
        put("old", 3, "1", "o"),
        put("gone", 3, "1", "g"),
        put("kept", 3, "1", "k"),
        put("kept", 3, "2", "l"),
        put("Order-Items", 3, "1", "i"),
    )
    items = "order_items_21f5372a"
    assert _schemas(shop.catalog, "shop") == {
        "db": ["gone", "kept", "old", items, "t"],
        "shop_cut_1": ["gone", "kept", "old", items, "t"],
    }
    shop.send(
        20,
        update("t", 12, ("1", "a"), ("1", "b")),
        change("RENAME TABLE old TO new", 13),
        put("new", 14, "2", "p"),
        change("DROP TABLE gone", 15),
        delete("kept", 16, "2", "l"),
    )
    assert shop.warnings == []
    assert _schemas(shop.catalog, "shop") == {
        "db": ["kept", "new", items, "t"],
        "shop_cut_1": ["gone", "kept", "old", items, "t"],
        "shop_cut_2": ["kept", "new", items, "t"],
    }
    assert list((tmp_path / "lake ü" / "shop" / "dropped").rglob("*.parquet")) != []
    (described,) = [entry for entry in shop.catalog.entries("db") if entry.name == items]
    assert described.parameters["cdc.name"] == "db.Order-Items"
    assert described.parameters["comment"] == "db.Order-Items, mirrored by the pipeline shop"

    found = _query(
        uri,
        "SELECT id, v FROM db.t",
        "SELECT id, v FROM db.new ORDER BY id",
        f"SELECT id, v FROM db.{items}",
        "SELECT t.v, old.v, gone.v FROM shop_cut_1.t JOIN shop_cut_1.old USING (id) JOIN shop_cut_1.gone USING (id)",
        "SELECT t.v, new.v FROM shop_cut_2.t JOIN shop_cut_2.new USING (id)",
        "SELECT id, v FROM shop_cut_1.kept ORDER BY id",
        "SELECT id, v, _deleted FROM db.kept ORDER BY id",
        "SELECT id, v FROM shop_cut_2.kept",
        "SHOW COLUMNS IN shop_cut_2.kept",
        f"CREATE TABLE db.by_spark USING delta LOCATION '{tmp_path}/lake ü/shop/mirror/db/t'",
        "CREATE VIEW db.view_by_spark AS SELECT * FROM db.t",
    )
    assert found[:8] == [
        [[1, "b"]],
        [[1, "o"], [2, "p"]],
        [[1, "i"]],
        [["a", "o", "g"]],
        [["b", "o"]],
        [[1, "k"], [2, "l"]],
        [[1, "k", False], [2, "l", True]],
        [[1, "k"]],
    ]
    assert ["_deleted"] not in found[8]

    # as Spark writes a table and a view, but without the columns of a view: Hive has not every type and name
    placeholder = [("col", "array<string>", "from deserializer")]
    table, view = (_stored(shop.catalog, database, "t") for database in ("db", "shop_cut_2"))
    assert table == _stored(shop.catalog, "db", "by_spark")
    assert table["columns"] == view["columns"] == placeholder
    assert view == {**_stored(shop.catalog, "db", "view_by_spark"), "columns": placeholder}


_OF_EACH = re.compile(
    r"(cdc|delta|view\.sqlConfig)\..*|view\.(referred.*|schemaMode)|comment|transient_lastDdlTime|totalSize|numFiles"
)


def _stored(catalog: HiveCatalog, database: str, name: str) -> dict[str, Any]:
    """A table as the metastore has it, without the parameters that differ from table to table."""
    table = catalog.client.getTable(database, name)
    storage, parameters = table.getSd(), dict(table.getParameters())
    serde = storage.getSerdeInfo()
    return {
        # the order of its keys differs
        "schema": json.loads(parameters.pop("spark.sql.sources.schema")),
        "parameters": {key: value for key, value in parameters.items() if not _OF_EACH.fullmatch(key)},
        "type": table.getTableType(),
        "columns": [(column.getName(), column.getType(), column.getComment()) for column in storage.getCols()],
        "formats": (storage.getInputFormat(), storage.getOutputFormat(), serde.getSerializationLib()),
        "serde": dict(serde.getParameters()),
    }


def test_a_table_of_somebody_else_is_left(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    shop = _Pipeline(spark, uri, tmp_path, "shop")
    shop.send(10, create("t", 1))
    shop.catalog.create("db", Definition("x", {"owner": "somebody"}, f"file:{tmp_path}", ""))
    shop.send(20, create("x", 11))
    (warning,) = shop.warnings
    assert "db.x exists and is not of this pipeline, so db.x has no entry" in warning
    assert shop.catalog.client.getTable("db", "x").getParameters()["owner"] == "somebody"
    assert _schemas(shop.catalog, "shop")["shop_cut_2"] == ["t", "x"]
    shop.catalog.drop("db", "x")
    shop.send(30, put("x", 21, "1", "a"))
    assert len(shop.warnings) == 1
    assert _schemas(shop.catalog, "shop")["db"] == ["t", "x"]


def test_a_metastore_that_is_away_is_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        away = f"thrift://127.0.0.1:{free.getsockname()[1]}"
        shop = _Pipeline(spark, away, tmp_path, "shop")
        shop.send(10, create("t", 1))
    (warning,) = shop.warnings
    assert f"the catalog {away} is not up to date with cut 1" in warning
    assert "Connection refused" in warning


def test_a_metastore_that_does_not_answer_is_given_up(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(hive._SETTINGS, "hive.metastore.client.socket.timeout", "1s")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = Hive(f"thrift://127.0.0.1:{silent.getsockname()[1]}")
        started = time.monotonic()
        with pytest.raises(Py4JJavaError, match="timed out"):
            found.connect(spark).databases()
        assert time.monotonic() - started < 10


def test_columns_of_a_large_view_arrive_in_one_call(spark: SparkSession, uri: str) -> None:
    """Characters that Java's format of properties escapes."""
    catalog = Hive(uri).connect(spark)
    names = {"cdc.pipeline": "p", "cdc.name": "a=b: #!\\\n\t 订单 \U0001f600", "comment": "  spaces  "}
    catalog.create_database("db", {}, "file:/tmp")
    catalog.create("db", Definition("v", {**names, "long": "x" * 4000}, "", "SELECT 1"))
    (entry,) = catalog.entries("db")
    assert entry.parameters == names


def test_runs_of_a_pipeline(spark: SparkSession, uri: str, tmp_path: Path) -> None:
    """An ingest, one whose metastore is away, and a rebuild, which repairs the catalog."""
    topic = Topic()
    away = "thrift://127.0.0.1:9"
    with dg.DagsterInstance.ephemeral() as instance:

        def run(job: str, address: str) -> list[str]:
            """The warnings."""
            pipeline = CdcPipeline(
                name="shop",
                source=CaptureFilesSource(type="capture_files", path=str(tmp_path / "captures")),
                lake=str(tmp_path / "lake"),
                catalog=HiveField(type="hive", uri=address),
            )
            result = pipeline.build_defs().resolve_job_def(job).execute_in_process(instance=instance)
            logs = instance.all_logs(result.run_id)
            return [entry.user_message for entry in logs if entry.level == logging.WARNING]

        def send(step: int, *messages: str) -> None:
            for message in (*messages, watermark(step)):
                topic.send(message)
            topic.write(tmp_path / "captures", f"{step}.jsonl")

        send(3, create("t", 1)[0], put("t", 2, "1", "a")[0])
        assert run("shop_ingest", uri) == []
        send(5, create("u", 4)[0])
        (warning,) = run("shop_ingest", away)
        assert warning.startswith(f"the catalog {away} is not up to date with cut 2; a later cut tries again: ")
        assert _schemas(Hive(uri).connect(spark), "shop") == {"db": ["t"], "shop_cut_1": ["t"]}
        # a mirror that a rebuild has to write
        spark.sql(f"DELETE FROM delta.`{tmp_path}/lake/shop/mirror/db/t`")
        assert run("shop_rebuild", uri) == []
        assert _schemas(Hive(uri).connect(spark), "shop") == {
            "db": ["t", "u"],
            "shop_cut_1": ["t"],
            "shop_cut_3": ["t", "u"],
        }
