"""A new table in the stream becomes an asset like the others, without a redeployment: the sensor and a real webserver."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry, read_catalog, write_catalog
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sensors.new_tables import WEBSERVER, catalog_digest, new_tables_sensor, webserver_url
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline_tests.support.servers import webserver as servers
from cdc_pipeline_tests.support.servers.webserver import LOCATION, webserver

_NODES = """{ assetNodes { assetKey { path } dependencyKeys { path } groupName kinds tags { key value } description
    metadataEntries { label ... on TableSchemaMetadataEntry { schema { columns { name type } } } } } }"""
_DRY_RUN = """mutation ($cursor: String) { sensorDryRun(
    selectorData: {repositoryLocationName: "cdc_pipeline", repositoryName: "__repository__", sensorName: "shop_new_tables"}
    cursor: $cursor) { ... on DryRunInstigationTick { evaluationResult { skipReason cursor error { message } } }
    ... on PythonError { message } } }"""


def _entry(table: str, *columns: str, mirror_id: str = "") -> CatalogEntry:
    found = tuple(CatalogColumn(name, "bigint", "bigint") for name in columns or ("id",))
    return CatalogEntry("db", table, f"/lake/db/{table}", found, mirror_id=mirror_id or table)


def _mirrors(server: servers.Webserver) -> dict[str, dict[str, Any]]:
    nodes = {tuple(node["assetKey"]["path"]): node for node in server.graphql(_NODES)["assetNodes"]}
    return {"/".join(key[3:]): node for key, node in nodes.items() if key[:3] == ("shop", "mirror", "db")}


def _ticked(server: servers.Webserver, cursor: str | None) -> tuple[str, str | None]:
    """The skip reason of the sensor and its cursor."""
    found = server.graphql(_DRY_RUN, cursor=cursor)["sensorDryRun"]
    assert "message" not in found, found
    result = found["evaluationResult"]
    assert result["error"] is None, result["error"]
    return result["skipReason"], result["cursor"]


def test_a_new_table_becomes_an_asset(tmp_path: Path) -> None:
    paths = LakePaths(str(tmp_path / "lake"), "shop")
    Path(paths.home).mkdir(parents=True)
    write_catalog(paths, [_entry("orders"), _entry("old", mirror_id="moves"), _entry("gone")])
    with webserver(tmp_path / "dagster", CDC_LAKE=paths.root) as server:
        assert set(_mirrors(server)) == {"orders", "old", "gone"}
        write_catalog(
            paths, [_entry("orders", "id", "n"), _entry("new", mirror_id="moves"), _entry("added", "id", "v")]
        )
        assert set(_mirrors(server)) == {"orders", "old", "gone"}, "the webserver reloaded without the sensor"

        reason, cursor = _ticked(server, None)
        assert (reason, cursor) == (f"reloaded {LOCATION} with 5 mirrors", catalog_digest(read_catalog(paths)))

        nodes = _mirrors(server)
        assert set(nodes) == {"orders", "old", "gone", "new", "added"}
        added = nodes["added"]
        sources = {"/".join(key["path"]) for key in added["dependencyKeys"]}
        assert sources == {"shop/change_log", "shop/ddl_history", "shop/watermarks"}
        assert (added["groupName"], "delta" in added["kinds"]) == ("shop_db", True)
        schemas = {
            name: [
                column["name"]
                for entry in node["metadataEntries"]
                if entry["label"] == "dagster/column_schema"
                for column in entry["schema"]["columns"]
            ]
            for name, node in nodes.items()
        }
        assert schemas == {"orders": ["id", "n"], "old": ["id"], "gone": ["id"], "new": ["id"], "added": ["id", "v"]}
        lifecycles = {
            name: tag["value"] for name, node in nodes.items() for tag in node["tags"] if tag["key"] == "cdc/lifecycle"
        }
        assert lifecycles == {"orders": "live", "added": "live", "new": "live", "old": "renamed", "gone": "dropped"}
        assert "Renamed to `db.new`" in nodes["old"]["description"]
        assert "Dropped upstream" in nodes["gone"]["description"]

        assert _ticked(server, cursor) == ("no mirror has changed", cursor)


def _sensor(lake: Path) -> dg.SensorDefinition:
    return new_tables_sensor(Pipeline("shop", CaptureFiles("captures"), str(lake)))


def _reason(sensor: dg.SensorDefinition, cursor: str | None = None) -> str | None:
    found = sensor(dg.build_sensor_context(cursor=cursor))
    assert isinstance(found, dg.SkipReason)
    return found.skip_message


def test_a_tick_without_work_shows_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WEBSERVER, raising=False)
    sensor = _sensor(tmp_path)
    assert (sensor.name, sensor.default_status) == ("shop_new_tables", dg.DefaultSensorStatus.STOPPED)
    assert _reason(sensor) == "there are no mirrors yet"
    paths = LakePaths(str(tmp_path), "shop")
    Path(paths.home).mkdir()
    write_catalog(paths, [_entry("a")])
    assert _reason(sensor, catalog_digest(read_catalog(paths))) == "no mirror has changed"
    assert "CDC_WEBSERVER is not set" in (_reason(sensor) or "")
    monkeypatch.setenv(WEBSERVER, "127.0.0.1:3000")
    assert _sensor(tmp_path).default_status == dg.DefaultSensorStatus.RUNNING


def test_the_digest_has_all_that_nodes_show() -> None:
    entry = _entry("a")
    others = [replace(entry, dropped=True), replace(entry, moved_to="db.b"), _entry("a", "id", "n"), _entry("b")]
    assert len({catalog_digest(entries) for entries in ([entry], [], *([other] for other in others))}) == 6


def test_urls_of_a_webserver() -> None:
    good = {
        "127.0.0.1:3000": "http://127.0.0.1:3000",
        "dagster": "http://dagster",
        "[::1]:80": "http://[::1]:80",
        "https://d.example/dagster/": "https://d.example/dagster/",
    }
    assert {text: webserver_url(text).geturl() for text in good} == good
    for text in (":3000", "h:port", "ftp://h", "a b:1", "http://"):
        with pytest.raises(ValueError, match="host:port or a URL is expected"):
            webserver_url(text)


def test_a_webserver_that_does_not_answer_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the first seconds of `make ui`: the tick is skipped and shows the reason."""
    paths = LakePaths(str(tmp_path), "shop")
    Path(paths.home).mkdir()
    write_catalog(paths, [_entry("a")])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # without a listener
        port = probe.getsockname()[1]
        monkeypatch.setenv(WEBSERVER, f"127.0.0.1:{port}")
        origin = SimpleNamespace(location_name="cdc_pipeline")
        with patch.object(dg.SensorEvaluationContext, "code_location_origin", origin):
            reason = _reason(_sensor(tmp_path))
    assert f"mirrors have changed, but the webserver at 127.0.0.1:{port} (CDC_WEBSERVER) does not answer" in (
        reason or ""
    )
