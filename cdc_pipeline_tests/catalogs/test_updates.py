"""Which schemas a catalog has after which cuts, and when a run reconciles it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructType

from cdc_pipeline.catalogs import updates as module
from cdc_pipeline.catalogs.updates import KEPT_CUTS, CatalogUpdates, update_catalog
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.memory_catalog import MemoryCatalog

_LAKE = Lake(None, LakePaths("/lake", "shop"))  # type: ignore[arg-type]


def _mirror(name: str, mirror_id: str = "", version: int = 1) -> MirrorEntry:
    path = f"/lake/shop/mirror/{name}"
    return MirrorEntry(TableName(*name.split(".")), mirror_id or name, path, version, 1, 2, ())


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> MemoryCatalog:
    columns = StructType().add("id", LongType())
    monkeypatch.setattr(module, "_state", lambda lake, is_newest, mirror: TableState(mirror.version, columns, {}))
    return MemoryCatalog()


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> dict[int, list[MirrorEntry]]:
    """The mirrors of each cut, as `consistent_cuts` has them, at their present paths."""
    found: dict[int, list[MirrorEntry]] = {}

    def mirrors_of(_: Lake, cut_id: int, newest: list[MirrorEntry]) -> list[MirrorEntry]:
        paths = {mirror.mirror_id: mirror.path for mirror in newest}
        return [replace(entry, path=paths.get(entry.mirror_id, entry.path)) for entry in found[cut_id]]

    monkeypatch.setattr(module, "_mirrors_of", mirrors_of)
    return found


def _shown(catalog: MemoryCatalog) -> dict[str, list[str]]:
    return {schema: sorted(tables) for schema, tables in catalog.tables.items()}


def test_schemas_of_databases_and_of_the_newest_cuts(
    catalog: MemoryCatalog, cuts: dict[int, list[MirrorEntry]]
) -> None:
    mirrors = [_mirror("shop.orders"), _mirror("shop.items"), _mirror("CRM.People")]
    for cut_id in range(1, KEPT_CUTS + 3):
        cuts[cut_id] = [replace(mirror, version=cut_id) for mirror in mirrors]
        assert update_catalog(catalog, _LAKE, cut_id, cuts[cut_id]) == []
    views = ["items", "orders", "people_7db20897"]
    assert _shown(catalog) == {
        "shop": ["items", "orders"],
        "crm_130f70ae": ["people_7db20897"],
        **{f"shop_cut_{cut_id}": views for cut_id in range(3, KEPT_CUTS + 3)},
    }
    assert catalog.schemas["crm_130f70ae"]["cdc.name"] == "CRM"
    assert catalog.tables["crm_130f70ae"]["people_7db20897"].parameters["cdc.name"] == "CRM.People"
    assert catalog.tables["shop_cut_4"]["orders"].sql == "SELECT * FROM delta.`file:/lake/shop/mirror/shop.orders@v4`"


def test_a_cut_without_new_names_only_adds_its_views(catalog: MemoryCatalog) -> None:
    update_catalog(catalog, _LAKE, 1, [_mirror("shop.orders")])
    catalog.calls.clear()
    update_catalog(catalog, _LAKE, 2, [_mirror("shop.orders", version=2)])
    assert catalog.calls == ["create shop_cut_2", "create shop_cut_2.orders", "alter shop_cut_2"]
    update_catalog(catalog, _LAKE, 2, [_mirror("shop.orders", version=2)])
    assert len(catalog.calls) == 3


def test_a_rename_moves_the_views_of_earlier_cuts(catalog: MemoryCatalog, cuts: dict[int, list[MirrorEntry]]) -> None:
    cuts[1] = [_mirror("shop.a", "1"), _mirror("shop.b", "2")]
    update_catalog(catalog, _LAKE, 1, cuts[1])
    cuts[2] = [_mirror("shop.z", "1", version=2), _mirror("shop.b", "2")]
    assert update_catalog(catalog, _LAKE, 2, cuts[2]) == []
    assert _shown(catalog) == {"shop": ["b", "z"], "shop_cut_1": ["a", "b"], "shop_cut_2": ["b", "z"]}
    assert "alter shop.a to z" in catalog.calls
    assert "alter shop_cut_1.b" not in catalog.calls
    assert catalog.tables["shop_cut_1"]["a"].sql == "SELECT * FROM delta.`file:/lake/shop/mirror/shop.z@v1`"


def test_a_database_without_mirrors_is_dropped_unless_it_has_tables_of_others(
    catalog: MemoryCatalog, cuts: dict[int, list[MirrorEntry]]
) -> None:
    cuts[1] = [_mirror("a.t"), _mirror("b.t"), _mirror("c.t")]
    update_catalog(catalog, _LAKE, 1, cuts[1])
    catalog.tables["b"]["report"] = replace(catalog.tables["b"]["t"], name="report", parameters={})
    assert update_catalog(catalog, _LAKE, 2, [_mirror("c.t")]) == []
    assert {name: tables for name, tables in _shown(catalog).items() if "cut" not in name} == {
        "b": ["report"],
        "c": ["t"],
    }


def test_schemas_of_others_are_named_and_left(catalog: MemoryCatalog) -> None:
    catalog.schemas |= {"shop": {}, "shop_cut_1": {"cdc.pipeline": "shop", "cdc.lake": "/copy/shop", "cdc.cut_id": "1"}}
    catalog.tables |= {"shop": {}, "shop_cut_1": {}}
    assert update_catalog(catalog, _LAKE, 1, [_mirror("shop.orders"), _mirror("crm.t")]) == [
        "the schema shop exists and is not of this pipeline, so 1 entries are missing",
        "the schema shop_cut_1 exists and is not of this pipeline, so 2 entries are missing",
    ]
    assert _shown(catalog) == {"shop": [], "shop_cut_1": [], "crm": ["t"]}


def test_views_of_a_lake_that_was_created_again(catalog: MemoryCatalog) -> None:
    """Its cuts have lower numbers than those in the catalog."""
    update_catalog(catalog, _LAKE, 90, [_mirror("shop.orders", "old")])
    update_catalog(catalog, _LAKE, 1, [_mirror("shop.orders", "new")])
    assert _shown(catalog) == {"shop": ["orders"], "shop_cut_1": ["orders"]}


def test_a_cut_whose_views_failed_is_repaired_by_the_next_one(
    catalog: MemoryCatalog, cuts: dict[int, list[MirrorEntry]]
) -> None:
    cuts[1] = [_mirror("shop.a"), _mirror("shop.b")]
    catalog.refused = "shop_cut_1.b"
    assert update_catalog(catalog, _LAKE, 1, cuts[1]) == ["shop_cut_1.b: shop_cut_1.b is refused"]
    catalog.refused = ""
    assert update_catalog(catalog, _LAKE, 2, cuts[1]) == []
    assert _shown(catalog)["shop_cut_1"] == ["a", "b"]


# ---- when


class _Run:
    """Cuts of one run, with a clock of its own."""

    def __init__(self, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.warnings, self.duration, self.catalog = 1000.0, list[str](), 0.0, catalog
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.updates = CatalogUpdates(catalog, self.warnings.append)
        self.updates._next_time = self.now
        update = module.update_catalog

        def timed(*arguments: Any) -> list[str]:
            self.now += self.duration
            return update(*arguments)

        monkeypatch.setattr(module, "update_catalog", timed)

    def cut(self, cut_id: int, *mirrors: MirrorEntry) -> bool:
        """Whether the catalog has the cut afterwards."""
        self.updates.after_cut(_LAKE, cut_id, mirrors)
        return f"shop_cut_{cut_id}" in self.catalog.schemas


@pytest.fixture
def run(catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch) -> _Run:
    monkeypatch.setattr(module, "_mirrors_of", lambda *_: [])
    return _Run(catalog, monkeypatch)


def test_cuts_in_a_row_are_reconciled_once_a_minute(run: _Run) -> None:
    found = []
    for cut_id in range(1, 16):
        found.append(run.cut(cut_id, _mirror("shop.orders", version=cut_id)))
        run.now += 10
    assert [number for number, is_there in enumerate(found, 1) if is_there] == [1, 7, 13]
    assert not run.updates.is_due
    run.now += 40
    assert run.updates.is_due
    run.updates.catch_up(_LAKE)
    assert "shop_cut_15" in run.catalog.schemas
    assert run.catalog.closed == 4
    assert not run.updates.is_due


def test_new_names_are_reconciled_at_once(run: _Run) -> None:
    assert run.cut(1, _mirror("shop.a"))
    assert not run.cut(2, _mirror("shop.a", version=2))
    assert run.cut(3, _mirror("shop.a"), _mirror("shop.b"))


def test_a_slow_catalog_takes_a_twentieth_of_the_time(run: _Run) -> None:
    run.duration = 10
    assert run.cut(1, _mirror("shop.orders"))
    run.now += 199
    assert not run.cut(2, _mirror("shop.orders"))
    run.now += 1
    assert run.cut(3, _mirror("shop.orders"))


def test_an_error_is_one_warning_and_the_next_time_repairs_all(run: _Run) -> None:
    run.catalog.error = RuntimeError("nobody answers\nwith details")
    assert not run.cut(1, _mirror("shop.orders"))
    assert not run.cut(2, _mirror("shop.orders"))
    assert run.warnings == ["the catalog memory is not up to date with cut 1; a later cut tries again: nobody answers"]
    run.catalog.error, run.now = None, run.now + 60
    assert run.cut(3, _mirror("shop.orders"))
    assert len(run.warnings) == 1


def test_many_problems_are_counted(run: _Run) -> None:
    names = [f"db{number}.t" for number in range(9)]
    run.catalog.schemas |= {f"db{number}": {} for number in range(9)}
    run.cut(1, *map(_mirror, names))
    assert run.warnings[0].endswith("; and 4 more")


def test_nothing_happens_without_a_catalog() -> None:
    updates = CatalogUpdates(None, pytest.fail)
    updates.after_cut(_LAKE, 1, [_mirror("shop.orders")])
    assert not updates.is_due


# ---- with Spark


def test_a_view_is_of_the_newest_version_with_the_rows_of_its_cut(spark: SparkSession, tmp_path: Path) -> None:
    """Delta refuses an old version that is not the newest, and OPTIMIZE commits a newer one with the same rows."""
    path = f"{tmp_path}/m"
    for _ in range(2):
        spark.range(1).write.format("delta").mode("append").save(path)
    mirror = replace(_mirror("db.m", version=1), path=path)
    lake = Lake(spark, LakePaths(str(tmp_path), "shop"))

    def versions() -> list[int]:
        return [module._state(lake, is_newest, mirror).version for is_newest in (True, False)]

    assert versions() == [1, 1]
    spark.sql(f"OPTIMIZE delta.`{path}`")
    assert versions() == [2, 2]
    spark.range(1).write.format("delta").mode("append").save(path)
    assert versions() == [2, 2]
    log = tmp_path / "m" / "_delta_log"
    ten_days_ago = (log / f"{3:020}.json").stat().st_mtime - 10 * 86_400
    os.utime(log / f"{3:020}.json", (ten_days_ago, ten_days_ago))
    with pytest.raises(LakeError, match="m has no version 1"):
        module._state(lake, False, mirror)
    mirror = replace(mirror, path=f"{tmp_path}/nothing")
    with pytest.raises(LakeError, match="nothing has no version 1"):
        versions()
