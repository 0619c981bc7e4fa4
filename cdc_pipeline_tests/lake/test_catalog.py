from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry, read_catalog, write_catalog
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.servers.object_store import ObjectStore

_COLUMNS = (
    CatalogColumn("id", "decimal(20,0)", "bigint unsigned"),
    CatalogColumn("é`\n😀", "string", "enum('a','it''s')"),
)


def _entry(table: str, *, database: str = "db", dropped: bool = False) -> CatalogEntry:
    return CatalogEntry(database, table, f"/lake/shop/mirror/{database}/{table}", _COLUMNS, dropped)


@pytest.fixture
def home(paths: LakePaths) -> Path:
    """The pipeline's folder, created: a catalog is written only after mirrors exist."""
    home = Path(paths.home)
    home.mkdir(parents=True)
    return home


def test_no_catalog(paths: LakePaths) -> None:
    assert read_catalog(paths) == ()
    assert not Path(paths.root).exists()


@pytest.mark.usefixtures("home")
def test_round_trip(paths: LakePaths) -> None:
    entries = [_entry("b"), _entry("a"), _entry("z", database="a 中"), CatalogEntry("db", "empty", "/p", ())]
    write_catalog(paths, entries)
    assert read_catalog(paths) == tuple(sorted(entries, key=lambda entry: entry.name))
    assert read_catalog(paths)[1].name == TableName("db", "a")


@pytest.mark.usefixtures("home")
def test_a_mirror_that_is_gone_stays_as_dropped(paths: LakePaths) -> None:
    write_catalog(paths, [_entry("a"), _entry("b")])
    write_catalog(paths, [_entry("b")])
    assert read_catalog(paths) == (_entry("a", dropped=True), _entry("b"))
    write_catalog(paths, [_entry("b"), _entry("c")])
    assert read_catalog(paths) == (_entry("a", dropped=True), _entry("b"), _entry("c"))


@pytest.mark.usefixtures("home")
def test_a_mirror_that_was_renamed_says_where_it_went(paths: LakePaths) -> None:
    old, new, newest = (CatalogEntry("db", name, f"/{name}", _COLUMNS, mirror_id="m") for name in ("a", "b", "c"))
    write_catalog(paths, [old])
    write_catalog(paths, [new])
    assert read_catalog(paths) == (replace(old, dropped=True, moved_to="db.b"), new)
    write_catalog(paths, [newest])
    assert [entry.moved_to for entry in read_catalog(paths)] == ["db.c", "db.c", ""]
    write_catalog(paths, [])
    assert [entry.moved_to for entry in read_catalog(paths)] == ["", "", ""]


@pytest.mark.usefixtures("home")
def test_a_mirror_made_again_is_there_again(paths: LakePaths) -> None:
    for entries in ([_entry("a")], [], [_entry("a")]):
        write_catalog(paths, entries)
    assert read_catalog(paths) == (_entry("a"),)


@pytest.mark.usefixtures("home")
def test_newer_columns_replace_older(paths: LakePaths) -> None:
    write_catalog(paths, [_entry("a")])
    newer = CatalogEntry("db", "a", "/elsewhere", (CatalogColumn("x", "int", "int"),))
    write_catalog(paths, [newer])
    assert read_catalog(paths) == (newer,)


@pytest.mark.usefixtures("home")
def test_pipelines_have_their_own(paths: LakePaths) -> None:
    write_catalog(paths, [_entry("a")])
    assert read_catalog(LakePaths(paths.root, "other")) == ()


def test_nothing_is_left_beside_the_catalog(paths: LakePaths, home: Path) -> None:
    write_catalog(paths, [_entry("a")])
    write_catalog(paths, [_entry("b")])
    assert [path.name for path in home.iterdir()] == ["catalog.json"]


_DAMAGED: dict[str, str | bytes] = {
    "empty": "",
    "cut short": '[{"database": "db", "table": "a", "pa',
    "no UTF-8": b"\xff\xfe",
    "null": "null",
    "a number": "5",
    "an object": '{"a": 1}',
    "a list of texts": '["a"]',
    "a list of null": "[null]",
    "a field less": '[{"database": "db", "table": "a", "columns": []}]',
    "no columns": '[{"database": "db", "table": "a", "path": "p"}]',
    "columns null": '[{"database": "db", "table": "a", "path": "p", "columns": null}]',
    "columns of texts": '[{"database": "db", "table": "a", "path": "p", "columns": ["a"]}]',
    "a field more": json.dumps([{"database": "db", "table": "a", "path": "p", "columns": [], "later": 1}]),
    "names that do not compare": json.dumps(
        [{"database": name, "table": "a", "path": "p", "columns": []} for name in ("db", 5)]
    ),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("name", _DAMAGED)
def test_a_damaged_catalog_loads_as_none(name: str, paths: LakePaths, home: Path) -> None:
    content = _DAMAGED[name]
    (home / "catalog.json").write_bytes(content.encode() if isinstance(content, str) else content)
    assert read_catalog(paths) == ()


def test_a_damaged_catalog_is_written_anew(paths: LakePaths, home: Path) -> None:
    (home / "catalog.json").write_text("[")
    write_catalog(paths, [_entry("a")])
    assert read_catalog(paths) == (_entry("a"),)


def test_a_folder_in_its_place_loads_as_none(paths: LakePaths, home: Path) -> None:
    (home / "catalog.json").mkdir()
    assert read_catalog(paths) == ()


@pytest.mark.parametrize("call", [read_catalog, lambda paths: write_catalog(paths, [_entry("a")]) or ()])
def test_a_remote_lake_has_no_copy(call: Callable[[LakePaths], tuple[CatalogEntry, ...]], tmp_path: Path) -> None:
    assert call(LakePaths(f"file:{tmp_path}", "shop")) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_cannot_be_read(s3: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
    """The catalog is unknown, not empty: the webserver would drop the nodes. Definitions load without nodes of mirrors."""
    lake = "s3a://no-such-bucket/lake"
    with pytest.raises(LakeError, match="NoSuchBucket"):
        read_catalog(LakePaths(lake, "shop"))
    component = CdcPipeline(name="shop", source=CaptureFilesSource(type="capture_files", path="x"), lake=lake)
    component.build_defs()
    assert "shop has no nodes of mirrors until the next load: s3a://no-such-bucket/lake/shop: " in caplog.text
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in caplog.text
