"""The definitions that Dagster loads, without and with a lake, and a snapshot of the asset graph."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import Definitions

from cdc_pipeline.definitions import defs
from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry, write_catalog
from cdc_pipeline.lake.paths import LakePaths

SNAPSHOT = Path(__file__).parent / "snapshots" / "asset_graph.json"


@pytest.fixture
def empty_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CDC_LAKE", str(tmp_path / "lake"))
    return tmp_path / "lake"


@pytest.fixture
def lake_with_a_mirror(empty_lake: Path) -> Path:
    paths = LakePaths(str(empty_lake), "shop")
    Path(paths.home).mkdir(parents=True)
    column = CatalogColumn("id", "bigint", "bigint")
    write_catalog(paths, [CatalogEntry("db", "orders", "elsewhere/orders", (column,))])
    return empty_lake


def graph(definitions: Definitions) -> dict[str, Any]:
    """Keys, parents, kinds, group and checks of every asset, and the jobs with their selections."""
    assets = definitions.resolve_asset_graph()
    shown: dict[str, Any] = {}
    for key in sorted(assets.get_all_asset_keys()):
        node = assets.get(key)
        shown[key.to_user_string()] = {
            "parents": sorted(parent.to_user_string() for parent in node.parent_keys),
            "group": node.group_name,
            "kinds": sorted(node.kinds),
            "checks": {
                check.name: "blocking" if assets.get_check_spec(check).blocking else "not blocking"
                for check in sorted(node.check_keys)
            },
        }
    jobs = {
        job.name: sorted(key.to_user_string() for key in job.asset_layer.executable_asset_keys)
        for job in definitions.resolve_all_job_defs()
        if not job.name.startswith("__")
    }
    return {"assets": shown, "jobs": jobs}


@pytest.mark.usefixtures("lake_with_a_mirror")
def test_asset_graph_equals_the_snapshot() -> None:
    """After an intended change, write the printed graph to snapshots/asset_graph.json."""
    found = graph(defs())
    assert found == json.loads(SNAPSHOT.read_text(encoding="utf-8")), json.dumps(found, indent=2)


@pytest.mark.usefixtures("empty_lake")
def test_definitions_load_without_a_lake_and_without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    dg.Definitions.validate_loadable(defs())
    assert [key for key in graph(defs())["assets"] if "/mirror/" in key] == []


def test_damaged_catalog_loads_as_no_mirrors(lake_with_a_mirror: Path) -> None:
    (lake_with_a_mirror / "shop" / "catalog.json").write_text('[{"database": "db"', encoding="utf-8")
    assert [key for key in graph(defs())["assets"] if "/mirror/" in key] == []


def test_column_lineage_of_a_mirror(lake_with_a_mirror: Path) -> None:
    own = (CatalogColumn("_commit_ts", "bigint", ""), CatalogColumn("_deleted", "boolean", ""))
    columns = (CatalogColumn("id", "bigint", "bigint"), *own)
    entries = [CatalogEntry(database, "orders", "elsewhere", columns) for database in ("db", "d.b")]
    write_catalog(LakePaths(str(lake_with_a_mirror), "shop"), entries)
    found = defs()
    key = dg.AssetKey(["shop", "mirror", "db", "orders"])
    spec = found.resolve_assets_def(key).specs_by_key[key]
    assert "Rows deleted upstream stay, with _deleted true" in (spec.description or "")
    lineage = spec.metadata["dagster/column_lineage"].deps_by_column
    log = dg.AssetKey(["shop", "change_log"])
    assert {name: [(dep.asset_key, dep.column_name) for dep in deps] for name, deps in lineage.items()} == {
        "id": [(log, "after"), (log, "before")],
        "_commit_ts": [(log, "commit_ts")],
        "_deleted": [(log, "op")],
    }
    groups = {node: shown["group"] for node, shown in graph(found)["assets"].items() if "/mirror/" in node}
    assert groups["shop/mirror/db/orders"] == "shop_db"
    # names with characters that groups do not allow stay distinct
    assert groups["shop/mirror/d.b/orders"].startswith("shop_d_b_")


@pytest.mark.usefixtures("lake_with_a_mirror")
def test_columns_of_a_mirror_have_both_types() -> None:
    spec = (
        defs()
        .resolve_assets_def(dg.AssetKey(["shop", "mirror", "db", "orders"]))
        .specs_by_key[dg.AssetKey(["shop", "mirror", "db", "orders"])]
    )
    columns = spec.metadata["dagster/column_schema"].columns
    assert [(column.name, column.type, column.description) for column in columns] == [("id", "bigint", "`bigint`")]
    assert spec.metadata["dagster/table_name"] == "shop.db.orders"
    assert spec.metadata["dagster/storage_kind"] == "delta"


def test_any_table_name_becomes_an_asset(lake_with_a_mirror: Path) -> None:
    """Dagster names outputs after keys and allows letters, digits and underscores only."""
    names = [
        *("orders", "codes of shop", "a-b", "a_b", "a.b", "a__b", "_a", "x/y", "`", "'; DROP", "*", "表", "\n", "😀"),
        *("CON", "../../etc", '"', "%41", "é", "e\u0301"),
    ]
    tables = [("db", name) for name in names] + [(name, "t") for name in names] + [("a", "b__t"), ("a__b", "t2")]
    write_catalog(
        LakePaths(str(lake_with_a_mirror), "shop"),
        [CatalogEntry(database, table, "elsewhere", ()) for database, table in tables],
    )
    found = defs()
    keys = {dg.AssetKey(["shop", "mirror", *table]) for table in tables}
    assets = found.resolve_asset_graph()
    assert {key for key in assets.get_all_asset_keys() if key.path[1] == "mirror"} == keys
    watermarks = dg.AssetKey(["shop", "watermarks"])
    assert assets.get(dg.AssetKey(["shop", "consistent_cuts"])).parent_keys == {*keys, watermarks}
    assert found.resolve_job_def("shop_ingest").asset_layer.executable_asset_keys >= keys
    mirrors = found.resolve_assets_def(dg.AssetKey(["shop", "mirror", "db", "codes of shop"]))
    assert len(set(mirrors.node_keys_by_output_name)) == len(tables) + 1
