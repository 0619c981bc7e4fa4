"""Glue, as moto answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from pyspark.sql.types import LongType, StructType

from cdc_pipeline.catalogs import updates as module
from cdc_pipeline.catalogs.glue import Glue
from cdc_pipeline.catalogs.updates import CatalogUpdates, update_catalog
from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.servers.object_store import ObjectStore

_NO_SPARK: Any = None
_LAKE = Lake(_NO_SPARK, LakePaths("s3a://lake", "shop"))


def _mirror(name: str, mirror_id: str, **more: Any) -> MirrorEntry:
    path = f"s3a://lake/shop/mirrors/{mirror_id}"
    return MirrorEntry(TableName(*name.split(".")), mirror_id, path, 7, 1, 2, (), **more)


@pytest.fixture
def client(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Of an empty catalog."""
    columns = StructType().add("id", LongType())
    monkeypatch.setattr(module, "_state", lambda lake, is_newest, mirror: TableState(mirror.version, columns, {}))
    client = boto3.client("glue", region_name=s3.environment["AWS_REGION"])
    yield client
    for found in client.get_databases()["DatabaseList"]:
        client.delete_database(Name=found["Name"])


def _tables(client: Any, database: str) -> dict[str, Any]:
    return {found["Name"]: found for found in client.get_tables(DatabaseName=database)["TableList"]}


def test_tables_and_views(client: Any) -> None:
    first = [_mirror("db.old", "1"), _mirror("db.gone", "2"), _mirror("db.Kept", "3")]
    assert update_catalog(Glue().connect(_NO_SPARK), _LAKE, 1, first) == []
    table = _tables(client, "db")["old"]
    storage = table["StorageDescriptor"]
    assert (table["TableType"], table["Description"]) == ("EXTERNAL_TABLE", "db.old, mirrored by the pipeline shop")
    assert storage["Location"] == storage["SerdeInfo"]["Parameters"]["path"] == "s3://lake/shop/mirrors/1"
    assert table["Parameters"]["spark.sql.sources.provider"] == "delta"
    view = _tables(client, "shop_cut_1")["old"]
    assert view["TableType"] == "VIRTUAL_VIEW"
    assert view["ViewOriginalText"] == view["ViewExpandedText"] == "SELECT * FROM delta.`s3a://lake/shop/mirrors/1@v7`"
    assert view["Parameters"]["view.query.out.col.0"] == "id"

    kept = next(name for name in _tables(client, "db") if name.startswith("kept_"))
    module_mirrors = {1: first}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_mirrors_of", lambda lake, cut_id, newest: module_mirrors[cut_id])
        second = [_mirror("db.new", "1"), _mirror("db.Kept", "3", keeps_deleted=True)]
        assert update_catalog(Glue().connect(_NO_SPARK), _LAKE, 2, second) == []
        assert update_catalog(Glue().connect(_NO_SPARK), _LAKE, 2, second) == []
    found = _tables(client, "db")
    assert found.keys() == {"new", kept}
    assert found["new"]["Parameters"]["cdc.mirror_id"] == "1"
    assert found[kept]["Description"].endswith("_deleted true")
    assert _tables(client, "shop_cut_1").keys() == {"old", "gone", kept}
    assert "WHERE NOT _deleted" in _tables(client, "shop_cut_2")[kept]["ViewOriginalText"]


@pytest.mark.usefixtures("client")
def test_more_than_a_page_of_tables() -> None:
    mirrors = [_mirror(f"db.t{number}", str(number)) for number in range(130)]
    assert update_catalog(Glue().connect(_NO_SPARK), _LAKE, 1, mirrors) == []
    assert len(Glue().connect(_NO_SPARK).entries("db")) == 130


def test_a_database_with_a_table_of_somebody_else_stays(client: Any) -> None:
    update_catalog(Glue().connect(_NO_SPARK), _LAKE, 1, [_mirror("db.t", "1")])
    client.create_table(DatabaseName="db", TableInput={"Name": "report"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_mirrors_of", lambda *_: [])
        assert update_catalog(Glue().connect(_NO_SPARK), _LAKE, 2, []) == []
    assert _tables(client, "db").keys() == {"report"}


def test_a_service_that_is_away_is_a_warning(s3: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    warnings = list[str]()
    CatalogUpdates(Glue(), warnings.append).after_cut(_LAKE, 1, [_mirror("db.t", "1")])
    (warning,) = warnings
    assert warning.startswith(
        "the catalog glue is not up to date with cut 1; a later cut tries again: Could not connect"
    )
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in warning


def test_the_missing_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['boto3'] = None\n"
        "from cdc_pipeline.catalogs.glue import Glue\n"
        "try: Glue().connect(None)\n"
        "except Exception as error: print(error)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found.strip() == "the extra glue is missing: pip install 'cdc_pipeline[glue]'"
