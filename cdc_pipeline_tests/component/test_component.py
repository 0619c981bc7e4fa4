from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from cdc_pipeline.assets.follower import FollowLimits
from cdc_pipeline.assets.mirrors import mirror_parents
from cdc_pipeline.assets.nodes import CUTS, RAW, mirror_key, table_key
from cdc_pipeline.catalogs.glue import Glue
from cdc_pipeline.catalogs.hive import Hive
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.dialects.decoded_tables import DecodeSettings
from cdc_pipeline.lake.catalog import CatalogColumn, CatalogEntry, write_catalog
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import Route, TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import ExportedFiles, Pipeline, Snapshot
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.positions import Start, TopicSelection
from cdc_pipeline.sources.kafka.source import KafkaTopics
from cdc_pipeline.sources.storage.source import TicdcStorage
from cdc_pipeline.spark.jdbc import JdbcServer

# Dagster 1.13.27 parses YAML with a deprecated call of pydantic.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)

_GOOD: dict[str, Any] = {"name": "shop", "source": {"type": "capture_files", "path": "captures"}, "lake": "lake"}
_SALT = "'12345678901234567890'"
_KAFKA: dict[str, Any] = {"type": "kafka", "bootstrap_servers": "b:9092", "topics": ["a"]}


def _yaml(fields: dict[str, Any]) -> str:
    """The attributes as YAML in flow style."""
    return f"type: cdc_pipeline.CdcPipeline\nattributes: {json.dumps(fields)}\n"


def _asset_keys(component: CdcPipeline) -> set[str]:
    return {key.to_user_string() for key in component.build_defs().resolve_asset_graph().get_all_asset_keys()}


_ASSETS = {
    f"shop/{name}"
    for name in (
        "raw_topic_snapshot",
        "change_log",
        "ddl_history",
        "watermarks",
        "dead_letters",
        "consistent_cuts",
    )
}


def test_valid_file_loads(load: Callable[[str], CdcPipeline]) -> None:
    component = load(_yaml(_GOOD))
    assert component.pipeline == Pipeline("shop", CaptureFiles("captures"), "lake", "UTC", 2)
    assert component.dialect == "auto"


_TIMES = {"started": "2026-11-29T01:00:00Z", "finished": 1_795_914_600_000}
_DRIVER = "org.mariadb.jdbc:mariadb-java-client:3.5.6"


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"type": "dumpling", "path": "/a"}, Snapshot(ExportedFiles("dumpling", "/a"))),
        (
            {"type": "mysqldump", "path": "/a.sql", "definitions_only": True, **_TIMES},
            Snapshot(
                ExportedFiles("mysqldump", "/a.sql", ExportTimes(1_795_914_000_000, 1_795_914_600_000)),
                definitions_only=True,
            ),
        ),
        (
            {"type": "jdbc", "url": "jdbc:mariadb://db:3306/", "driver": _DRIVER, "user": "u", "password": "1e5"},
            Snapshot(JdbcServer("jdbc:mariadb://db:3306/", "org.mariadb.jdbc.Driver", "u", "1e5"), packages=(_DRIVER,)),
        ),
    ],
)
def test_snapshots(load: Callable[[str], CdcPipeline], declared: dict[str, Any], expected: Snapshot) -> None:
    component = load(_yaml({**_GOOD, "snapshot": declared}))
    assert component.pipeline.snapshot == expected
    assert "1e5" not in repr(component.pipeline)
    assert "1e5" not in repr(component)
    (key,) = component.build_defs().resources or {}
    assert key == component.pipeline.spark_key
    assert (key == "cdc_spark") == (declared["type"] != "jdbc")


def test_all_fields(load: Callable[[str], CdcPipeline]) -> None:
    fields = {
        "name": "Orders_2",
        "source": {"type": "capture_files", "path": "/data/c d"},
        "lake": "s3a://bucket/lake",
        "dialect": "ticdc",
        "time_zone": "Asia/Shanghai",
        "merge_threads": 64,
        "keys": {"shop.events": ["user", "at"]},
        "ddl_policy": {"default": "keep", "tables": {"shop.orders*": "hold", "audit.*": "apply"}},
        "owners": ["team:data", "a@b.org"],
        "tags": {"tier": "gold"},
        "include": ["shop.*", "crm.people"],
        "exclude": ["shop.tmp_*"],
        "routes": [
            {"match": "shop.*", "to": "{database}_eu.{table}"},
            {"match": "*", "to": "rest.{database}-{table}", "merge": True},
        ],
    }
    component = load(_yaml(fields))
    policy = DdlPolicy("keep", (("shop.orders*", "hold"), ("audit.*", "apply")))
    keys = {"shop.events": ("user", "at")}
    assert component.pipeline == Pipeline(
        "Orders_2",
        CaptureFiles("/data/c d"),
        "s3a://bucket/lake",
        "Asia/Shanghai",
        64,
        DecodeSettings("ticdc"),
        keys,
        policy,
        owners=("team:data", "a@b.org"),
        tags={"tier": "gold"},
        selection=TableSelection(
            ("shop.*", "crm.people"),
            ("shop.tmp_*",),
            (Route("shop.*", "{database}_eu.{table}"), Route("*", "rest.{database}-{table}", merge=True)),
        ),
    )
    assert component.dialect == "ticdc"


def test_names_are_exact_only_if_they_are_case_sensitive(load: Callable[[str], CdcPipeline]) -> None:
    declared = {**_GOOD, "keys": {"db.Orders": ["id"]}}
    pipelines = [load(_yaml({**declared, "case_sensitive": exact})).pipeline for exact in (False, True)]
    assert [pipeline.selection.case_sensitive for pipeline in pipelines] == [False, True]
    assert [list(pipeline.keys) for pipeline in pipelines] == [["db.orders"], ["db.Orders"]]


def test_the_documented_selection(load: Callable[[str], CdcPipeline]) -> None:
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    selection = load(
        re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[0]
    ).pipeline.selection
    routed = {
        str(name): str(selection.mirror_name(name)) if selection.includes(name) else None
        for name in (TableName(*text.split(".")) for text in _DOCUMENTED)
    }
    assert routed == _DOCUMENTED


_DOCUMENTED = {
    "shop_eu.orders": "eu.orders",
    "shop_us.orders": "shop_us.all_orders",
    "shop_us.items": "shop_us.items",
    "crm.people": "crm.people",
    "crm.notes": None,
    "shop_us.tmp_1": None,
    "shop_eu.secrets": None,
}


def test_a_kafka_source(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_SERVERS", "one:9092,two:9092")
    monkeypatch.setenv("CDC_TEST_PASSWORD", "hunter2")
    fields = {
        "type": "kafka",
        "bootstrap_servers": "{{ env.CDC_TEST_SERVERS }}",
        "topic_pattern": r"shop\..*",
        "start": {"commit_tso": 470613987560259584},
        "max_records_per_batch": 1000,
        "security": {"protocol": "SSL", "ca": "ca.pem"},
        "options": {"client.id": "{{ env.CDC_TEST_PASSWORD }}", "fetch.max.bytes": 5, "check.crcs": True},
        "sensor_options": {"client.id": "{{ env.CDC_TEST_PASSWORD }}2"},
        "publish_group": "shown",
        "made_anew": {"shop.a": "shop.a@2"},
        "resume_at": {"shop.b": {"0": 7}},
        "ended": ["shop.c"],
    }
    source = load(_yaml({**_GOOD, "source": fields})).pipeline.source
    selection = TopicSelection(
        (),
        r"shop\..*",
        Start("time", 470613987560259584 // 2**18 - 600_000),
        {"shop.a": "shop.a@2"},
        {("shop.b", 0): 7},
        frozenset({"shop.c"}),
    )
    options = {"client.id": "hunter2", "fetch.max.bytes": "5", "check.crcs": "true"}
    client = ClientSettings(
        "one:9092,two:9092", options, {"client.id": "hunter22"}, {"protocol": "SSL", "ca": "ca.pem"}
    )
    assert source == KafkaTopics(client, selection, 1000, "shown")


@pytest.mark.parametrize("source", [_GOOD["source"], _KAFKA], ids=["capture files", "Kafka"])
def test_tables_of_topics(load: Callable[[str], CdcPipeline], source: dict[str, Any]) -> None:
    fields = {**_GOOD, "source": {**source, "tables": {"a": "Shop.orders"}}, "keys": {"shop.Orders": ["id"]}}
    assert load(_yaml(fields)).pipeline.decoding.tables == {"a": "Shop.orders"}


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("latest", Start("latest")),
        ({"timestamp": "1970-01-01T01:00:01+01:00"}, Start("time", 1000)),
        ({"timestamp": "1795248823000"}, Start("time", 1795248823000)),
        ({"offsets": {"a": {"0": 5, "1": 6}}}, Start("offsets", offsets={("a", 0): 5, ("a", 1): 6})),
    ],
)
def test_start_of_a_kafka_source(start: object, expected: Start, load: Callable[[str], CdcPipeline]) -> None:
    source = load(_yaml({**_GOOD, "source": {**_KAFKA, "start": start}})).pipeline.source
    assert isinstance(source, KafkaTopics)
    assert source.selection.start == expected


@pytest.mark.parametrize(
    ("declared", "catalog"),
    [
        ({"type": "glue"}, Glue()),
        ({"type": "hive", "uri": "thrift://a:9083"}, Hive("thrift://a:9083")),
        ({"type": "hive", "uri": "{{ env.CDC_TEST_METASTORE }}"}, Hive("thrift://a:1,thrift://b:2")),
        (None, None),
    ],
)
def test_a_catalog(
    declared: Any, catalog: Any, load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_TEST_METASTORE", "thrift://a:1,thrift://b:2")
    fields = _GOOD if declared is None else {**_GOOD, "catalog": declared}
    assert load(_yaml(fields)).pipeline.catalog == catalog


def test_a_storage_source(load: Callable[[str], CdcPipeline]) -> None:
    fields = {"type": "ticdc_storage", "path": "/sink", "topic": "t", "max_bytes_per_batch": 7}
    assert load(_yaml({**_GOOD, "source": fields})).pipeline.source == TicdcStorage("/sink", "t", 7)


def test_the_sensor(load: Callable[[str], CdcPipeline]) -> None:
    fields = {"running": True, "interval_seconds": 5, "minimum_records": 100, "maximum_wait_seconds": 60}
    sensor, _ = load(_yaml({**_GOOD, "sensor": fields})).build_defs().sensors or ()
    assert (sensor.name, sensor.minimum_interval_seconds) == ("shop_new_offsets", 5)
    assert sensor.default_status == dg.DefaultSensorStatus.RUNNING
    assert sensor.job_name == "shop_ingest"
    follow = {"enabled": True, "maximum_minutes": 60, "idle_minutes": 5, "minimum_pause_seconds": 2}
    component = load(_yaml({**_GOOD, "sensor": fields, "follow": follow}))
    assert component.follow.limits(component.sensor.timing) == FollowLimits(3600, 300, 2, 100, 60)
    sensor, _ = component.build_defs().sensors or ()
    assert sensor.job_name == "shop_follow"
    stopped, new_tables = load(_yaml(_GOOD)).build_defs().sensors or ()
    assert new_tables.name == "shop_new_tables"
    assert stopped.default_status == dg.DefaultSensorStatus.STOPPED


def test_owners_and_tags_of_every_asset(load: Callable[[str], CdcPipeline]) -> None:
    fields = {**_GOOD, "source": _KAFKA, "owners": ["team:data"], "tags": {"tier": "gold"}}
    definitions = load(_yaml(fields)).build_defs()
    specs = [
        spec for found in definitions.assets or () if isinstance(found, dg.AssetsDefinition) for spec in found.specs
    ]
    assert {spec.key.to_user_string() for spec in specs} == _ASSETS
    for spec in specs:
        assert spec.kinds == {"delta", "pyspark", "kafka"}
        assert list(spec.owners) == ["team:data"]
        assert spec.tags["tier"] == "gold"
        assert spec.code_version


_TRANSLATION = {
    "key_prefix": ["lake", "eu"],
    "group_name": "cdc/{{ spec.group_name.lower() }}",
    "description": "{{ spec.key.path[-1] }}",
    "owners": ["team:eu"],
    "tags": {"tier": "gold"},
    "metadata": {"of": "{{ spec.group_name }}"},
}


def _catalog(lake: Path, *names: tuple[str, str]) -> None:
    paths = LakePaths(str(lake), "shop")
    Path(paths.home).mkdir(parents=True)
    write_catalog(paths, [CatalogEntry(*name, "elsewhere", (CatalogColumn("id", "int", "int"),)) for name in names])


def test_translated_assets(load: Callable[[str], CdcPipeline], tmp_path: Path) -> None:
    """Keys of nodes, checks, parents, lineage and of what runs report have the prefix."""
    _catalog(tmp_path, ("db", "orders"), ("d.b", "or-ders"))
    declared = {**_GOOD, "lake": str(tmp_path), "source": _KAFKA, "notify": {"urls": ["json://a"]}}
    plain = load(_yaml(declared)).build_defs().resolve_asset_graph()
    component = load(_yaml({**declared, "translation": _TRANSLATION}))
    definitions = component.build_defs()
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    keys = {key: key.with_prefix(["lake", "eu"]) for key in plain.get_all_asset_keys()}
    assert set(graph.get_all_asset_keys()) == set(keys.values())
    for key, translated in keys.items():
        assert graph.get(translated).parent_keys == {keys[parent] for parent in plain.get(key).parent_keys}
    assert {(check.asset_key, check.name) for check in graph.asset_check_keys} == {
        (keys[check.asset_key], check.name) for check in plain.asset_check_keys
    }
    node = graph.get(dg.AssetKey(["lake", "eu", "shop", "mirror", "db", "orders"]))
    assert (node.group_name, node.description, list(node.owners)) == ("cdc/shop_db", "orders", ["team:eu"])
    assert (node.tags["tier"], node.tags["cdc/lifecycle"]) == ("gold", "live")
    assert (node.metadata["of"], node.metadata["dagster/table_name"]) == ("shop_db", "shop.db.orders")
    lineage = node.metadata["dagster/column_lineage"].deps_by_column["id"]
    assert {dep.asset_key for dep in lineage} == {keys[dg.AssetKey(["shop", "change_log"])]}
    assert graph.get(dg.AssetKey(["lake", "eu", "shop", "source", "a"])).group_name == "cdc/shop"
    # what runs report
    pipeline = component.pipeline
    assert mirror_key(pipeline, TableName("db", "new")).path == ["lake", "eu", "shop", "mirror", "db", "new"]
    assert {table_key(pipeline, name) for name in (RAW, CUTS)} <= set(keys.values())
    assert set(mirror_parents(pipeline)) <= set(keys.values())
    job = definitions.resolve_job_def("shop_ingest")
    assert job.asset_layer.executable_asset_keys == {key for key in keys.values() if graph.get(key).is_executable}
    assert "shop__raw_topic_snapshot" in {node.name for node in job.nodes}  # the sensor configures it by this name


def test_a_key_gets_a_prefix_only(tmp_path: Path) -> None:
    """Two tables would have one key, or a run could not tell that of a new one."""

    class Ours(CdcPipeline):
        def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
            return spec.replace_attributes(key=spec.key.path[-1])

    source = CaptureFilesSource(type="capture_files", path="captures")
    with pytest.raises(ValueError, match=r"is not shop/[\w/]+ with a key_prefix"):
        Ours(name="shop", source=source, lake=str(tmp_path)).build_defs()


def test_a_subclass_translates(tmp_path: Path) -> None:
    class Ours(CdcPipeline):
        def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
            found = super().get_asset_spec(spec)
            return found.replace_attributes(key=found.key.with_prefix("ours"), group_name="ours")

    source = CaptureFilesSource(type="capture_files", path="captures")
    component = Ours(name="shop", source=source, lake=str(tmp_path))
    graph = component.build_defs().resolve_asset_graph()
    assert {(key.path[0], graph.get(key).group_name) for key in graph.get_all_asset_keys()} == {("ours", "ours")}


def test_freshness(load: Callable[[str], CdcPipeline]) -> None:
    cuts = dg.AssetKey(["shop", "consistent_cuts"])

    def found(fields: dict[str, Any]) -> tuple[dg.FreshnessPolicy | None, bool]:
        for assets in load(_yaml({**_GOOD, **fields})).build_defs().assets or ():
            assert isinstance(assets, dg.AssetsDefinition)
            if cuts in assets.specs_by_key:
                checks = {check.name for check in assets.check_specs}
                return assets.specs_by_key[cuts].freshness_policy, "fresh" in checks
        raise AssertionError("no asset has cuts")

    policy = dg.FreshnessPolicy.time_window(timedelta(minutes=30), timedelta(minutes=10))
    assert found({"freshness": {"warn_minutes": 10, "fail_minutes": 30}}) == (policy, True)
    assert found({"freshness": {"warn_minutes": 0.5}}) == (None, True)
    assert found({}) == (None, False)


def test_a_mirror_is_as_fresh_as_the_cuts_unless_it_is_dropped(
    load: Callable[[str], CdcPipeline], tmp_path: Path
) -> None:
    component = load(_yaml({**_GOOD, "lake": str(tmp_path / "lake"), "freshness": {"fail_minutes": 30}}))
    paths = component.pipeline.paths
    Path(paths.home).mkdir(parents=True)
    write_catalog(paths, [CatalogEntry("db", name, f"/lake/{name}", ()) for name in ("a", "b")])
    write_catalog(paths, [CatalogEntry("db", "a", "/lake/a", ())])
    graph = component.build_defs().resolve_asset_graph()
    mirrors = {key.path[-1]: graph.get(key) for key in graph.get_all_asset_keys() if key.path[1] == "mirror"}
    policy = dg.FreshnessPolicy.time_window(timedelta(minutes=30))
    assert {name: node.freshness_policy for name, node in mirrors.items()} == {"a": policy, "b": None}
    assert {name: len(node.check_keys) for name, node in mirrors.items()} == {"a": 4, "b": 0}


def test_maintenance_schedule_is_on_by_default(load: Callable[[str], CdcPipeline]) -> None:
    (schedule,) = load(_yaml({**_GOOD, "maintenance_cron": "30 1 * * 0"})).build_defs().schedules or ()
    assert isinstance(schedule, dg.ScheduleDefinition)
    assert (schedule.name, schedule.job.name) == ("shop_maintain_schedule", "shop_maintain")
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("30 1 * * 0", "UTC")
    assert schedule.default_status == dg.DefaultScheduleStatus.RUNNING


def test_python_declaration_is_equal(load: Callable[[str], CdcPipeline]) -> None:
    component = CdcPipeline(
        name="shop", source=CaptureFilesSource(type="capture_files", path="captures"), lake="lake", merge_threads=4
    )
    assert component == load(_yaml({**_GOOD, "merge_threads": 4}))


def test_environment_variables(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_NAME", "orders")
    monkeypatch.setenv("CDC_TEST_PATH", "/from/there")
    monkeypatch.setenv("CDC_TEST_THREADS", "8")
    fields = {
        "name": "{{ env.CDC_TEST_NAME }}",
        "source": {"type": "capture_files", "path": "{{ env('CDC_TEST_PATH', 'captures') }}"},
        "lake": "{{ env('CDC_TEST_NONE', 'other') }}",
        "merge_threads": "{{ env.CDC_TEST_THREADS }}",
    }
    assert load(_yaml(fields)).pipeline == Pipeline("orders", CaptureFiles("/from/there"), "other", "UTC", 8)


def test_definitions(tmp_path: Path) -> None:
    source = CaptureFilesSource(type="capture_files", path="captures")
    component = CdcPipeline(name="shop", source=source, lake=str(tmp_path / "lake"))
    assert _asset_keys(component) == {*_ASSETS, "shop/source/folder"}
    jobs = [job.name for job in component.build_defs().jobs or ()]
    assert jobs == [
        "shop_ingest",
        "shop_follow",
        "shop_rebuild",
        "shop_release_dead_letters",
        "shop_ddl_dry_run",
        "shop_approve_ddl",
        "shop_verify",
        "shop_maintain",
    ]


def test_one_policy_for_all_tables(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(_yaml(_GOOD)).pipeline.ddl_policy == DdlPolicy("apply")
    assert load(_yaml({**_GOOD, "ddl_policy": "hold"})).pipeline.ddl_policy == DdlPolicy("hold")
    monkeypatch.setenv("CDC_POLICY", "keep")
    assert load(_yaml({**_GOOD, "ddl_policy": "{{ env.CDC_POLICY }}"})).pipeline.ddl_policy == DdlPolicy("keep")
    source = CaptureFilesSource(type="capture_files", path="captures")
    component = CdcPipeline(name="shop", source=source, lake="lake", ddl_policy="hold")  # type: ignore[arg-type]
    assert component.pipeline.ddl_policy == DdlPolicy("hold")


def test_soft_delete(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(_yaml(_GOOD)).pipeline.columns.soft_delete == ()
    monkeypatch.setenv("CDC_DATABASE", "shop")
    fields = {**_GOOD, "soft_delete": ["{{ env.CDC_DATABASE }}.orders", "crm.*"]}
    assert load(_yaml(fields)).pipeline.columns.soft_delete == ("shop.orders", "crm.*")


def test_masks_and_hidden_salt(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {
        **_GOOD,
        "mask": {"db.*": {"a": "hash", "b": None}, "*": {"c": "null"}},
        "mask_salt": "{{ env.CDC_SALT }}",
    }
    # not a number, and with its quotes
    monkeypatch.setenv("CDC_SALT", _SALT)
    component = load(_yaml(fields))
    rules = component.pipeline.columns
    assert rules.masks == (("db.*", (("a", "hash"), ("b", "null"))), ("*", (("c", "null"),)))
    assert rules.salt == _SALT
    shown = f"{component!r} {component.pipeline!r} {component.model_dump_json()} {rules.to_json()}"
    assert "***" in shown
    assert _SALT not in shown
    for wrong in (
        {"mask": {"db.t": {"a": "x"}}},
        {"lake": ""},
        {"other": 1},
        {"merge_threads": "two"},
        {"time_zone": "x"},
    ):
        with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds
            load(_yaml({**fields, **wrong}))
        assert _SALT not in _messages(error.value)
    monkeypatch.setenv("CDC_SALT", "'1234567890'")
    with pytest.raises(Exception) as short:  # noqa: PT011 - Dagster's own kinds
        load(_yaml(fields))
    assert "too short: at least" in _messages(short.value)
    assert "1234567890" not in _messages(short.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("none", ()),
        ([], ()),
        (["_offset", "_commit_ts"], ("_commit_ts", "_offset")),
        ("{{ env.CDC_METADATA }}", ("_topic",)),
    ],
)
def test_metadata_columns(
    value: object, expected: tuple[str, ...], load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_METADATA", "['_topic']")
    assert load(_yaml({**_GOOD, "metadata_columns": value})).pipeline.columns == ColumnRules(expected)


def test_computed_columns(load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_RATE", "price * 2")
    columns = {"total": {"type": "DECIMAL(12, 2)", "sql": "price * quantity"}}
    twice = {"twice": {"type": "array<byte>", "sql": "{{ env.CDC_RATE }}"}}
    fields = {**_GOOD, "computed": {"shop.orders": columns, "shop.*": twice}}
    component = load(_yaml(fields))
    assert component.pipeline.columns.computed == (
        ("shop.orders", (ComputedColumn("total", "decimal(12,2)", "price * quantity"),)),
        ("shop.*", (ComputedColumn("twice", "array<tinyint>", "price * 2"),)),
    )
    assert CdcPipeline(**{**fields, "source": component.source, "computed": component.computed}) == component


@pytest.mark.parametrize(
    ("fields", "field"),
    [({"name": "1"}, "name"), ({"time_zone": "x"}, "time_zone"), ({"lake": ""}, "lake"), ({"x": 1}, "x")],
)
def test_wrong_values_in_python(fields: dict[str, Any], field: str) -> None:
    source = CaptureFilesSource(type="capture_files", path="captures")
    with pytest.raises(ValidationError) as error:
        CdcPipeline(**{**_GOOD, "source": source, **fields})
    assert [found["loc"] for found in error.value.errors()] == [(field,)]


# name → (attributes, parts of the message: path of the field, invalid value, expectation)
_WRONG: dict[str, tuple[dict[str, Any], list[str]]] = {
    "name with a digit first": (
        {**_GOOD, "name": "1shop"},
        ["name", "'1shop' is not a pipeline name", "a letter, then"],
    ),
    "name with a slash": ({**_GOOD, "name": "a/b"}, ["name", "'a/b' is not a pipeline name"]),
    "name empty": ({**_GOOD, "name": ""}, ["name", "'' is not a pipeline name"]),
    "name a number": ({**_GOOD, "name": 5}, ["name", "5", "string"]),
    "no name": ({key: _GOOD[key] for key in ("source", "lake")}, ["name", "Field required"]),
    "owner": ({**_GOOD, "owners": ["Ann Other"]}, ["owners", "Invalid owner 'Ann Other'", "email address"]),
    "tag": ({**_GOOD, "tags": {"a b": "x"}}, ["tags", "invalid tag keys: ['a b']", "Allowed characters"]),
    "freshness nothing": (
        {**_GOOD, "freshness": {"warn_minutes": 0}},
        ["freshness", "warn_minutes", "0.0 is too small", "more than 0"],
    ),
    "freshness that fails before it warns": (
        {**_GOOD, "freshness": {"warn_minutes": 9, "fail_minutes": 5}},
        ["freshness", "warn_minutes 9.0 is not below fail_minutes 5.0"],
    ),
    "freshness below Dagster's least window": (
        {**_GOOD, "freshness": {"warn_minutes": 0.5, "fail_minutes": 5}},
        ["freshness", "0.5 is too small", "with fail_minutes, 1 or more minutes"],
    ),
    "cron": (
        {**_GOOD, "maintenance_cron": "at night"},
        ["maintenance_cron", "'at night' is not a cron schedule", "five fields are expected"],
    ),
    "time zone": (
        {**_GOOD, "time_zone": "Mars/Base"},
        ["time_zone", "'Mars/Base' is not a time zone", "IANA", "such as UTC"],
    ),
    "time zone an offset": ({**_GOOD, "time_zone": "+08:00"}, ["time_zone", "'+08:00' is not a time zone"]),
    "time zone empty": ({**_GOOD, "time_zone": ""}, ["time_zone", "'' is not a time zone"]),
    "time zone a path": ({**_GOOD, "time_zone": "../etc"}, ["time_zone", "'../etc' is not a time zone"]),
    "source type": (
        {**_GOOD, "source": {"type": "pigeon", "path": "c"}},
        ["source", "type", "'pigeon'", "'capture_files'"],
    ),
    "no source type": (
        {**_GOOD, "source": {"path": "c"}},
        ["attributes.source", "type", "'path': 'c'"],
    ),
    "no source path": (
        {**_GOOD, "source": {"type": "capture_files"}},
        ["capture_files.path", "Field required"],
    ),
    "source path empty": (
        {**_GOOD, "source": {"type": "capture_files", "path": ""}},
        ["source", "path", "at least 1 "],
    ),
    "source with a field more": (
        {**_GOOD, "source": {"type": "capture_files", "path": "c", "glob": "*"}},
        ["capture_files.glob", "Extra inputs are not permitted", "'*'"],
    ),
    "kafka without topics": (
        {**_GOOD, "source": {"type": "kafka", "bootstrap_servers": "b:9092"}},
        ["KafkaSource", "either topics or topic_pattern is expected"],
    ),
    "kafka with both": (
        {**_GOOD, "source": {**_KAFKA, "topic_pattern": "a.*"}},
        ["KafkaSource", "either topics or topic_pattern is expected"],
    ),
    "kafka without servers": (
        {**_GOOD, "source": {"type": "kafka", "topics": ["a"]}},
        ["kafka.bootstrap_servers", "Field required"],
    ),
    "topic pattern": (
        {**_GOOD, "source": {"type": "kafka", "bootstrap_servers": "b:9092", "topic_pattern": "a("}},
        ["topic_pattern", "'a(' is not a regular expression"],
    ),
    "start": ({**_GOOD, "source": {**_KAFKA, "start": "soon"}}, ["start", "'earliest' or 'latest'"]),
    "start at two": (
        {**_GOOD, "source": {**_KAFKA, "start": {"timestamp": "0", "commit_tso": 470613987560259584}}},
        ["StartAt", "one of timestamp, offsets and commit_tso is expected"],
    ),
    "start at no time": (
        {**_GOOD, "source": {**_KAFKA, "start": {"timestamp": "2026-11-22 10:00"}}},
        ["timestamp", "'2026-11-22 10:00' is not an instant", "2026-11-22T10:00:00Z"],
    ),
    "start at seconds": (
        {**_GOOD, "source": {**_KAFKA, "start": {"timestamp": 1764000000}}},
        ["timestamp", "'1764000000' is not an instant", "13 digits"],
    ),
    "start at the ms of a TSO": (
        {**_GOOD, "source": {**_KAFKA, "start": {"commit_tso": 1764000000000}}},
        ["commit_tso", "1764000000000 is not a TSO"],
    ),
    "no records in a batch": (
        {**_GOOD, "source": {**_KAFKA, "max_records_per_batch": 0}},
        ["max_records_per_batch", "0 is too small", "1 or more"],
    ),
    "option that names brokers": (
        {**_GOOD, "source": {**_KAFKA, "options": {"bootstrap.servers": "b:9093"}}},
        ["options", "'bootstrap.servers' cannot be set here", "bootstrap_servers"],
    ),
    "option not a value": (
        {**_GOOD, "source": {**_KAFKA, "sensor_options": {"client.rack": ["x"]}}},
        ["kafka.sensor_options", "client.rack"],
    ),
    "security without protocol": (
        {**_GOOD, "source": {**_KAFKA, "security": {"ca": "ca.pem"}}},
        ["source.security", "protocol PLAINTEXT ignores ca: SSL or SASL_SSL is expected"],
    ),
    "security with a field more": (
        {**_GOOD, "source": {**_KAFKA, "security": {"protocol": "SSL", "cert": "c"}}},
        ["kafka.security.SecuritySettingsModel.cert", "Extra inputs are not permitted"],
    ),
    "security that is not used": (
        {**_GOOD, "source": {**_KAFKA, "security": {"protocol": "PLAINTEXT", "ca": "ca.pem"}}},
        ["attributes.source.security", "protocol PLAINTEXT ignores ca"],
    ),
    "two topics of one name": (
        {**_GOOD, "source": {**_KAFKA, "made_anew": {"a": "x", "b": "x"}}},
        ["made_anew", "a different name"],
    ),
    "resume at no offset": (
        {**_GOOD, "source": {**_KAFKA, "resume_at": {"a": {"x": 1}}}},
        ["kafka.resume_at", "a.x", "integer"],
    ),
    "no bytes in a batch": (
        {**_GOOD, "source": {"type": "ticdc_storage", "path": "s", "max_bytes_per_batch": 0}},
        ["max_bytes_per_batch", "0 is too small", "1 or more"],
    ),
    "sensor field": ({**_GOOD, "sensor": {"interval": 5}}, ["sensor", "interval", "Extra inputs"]),
    "follow field": ({**_GOOD, "follow": {"idle": 5}}, ["follow", "idle", "Extra inputs"]),
    "follow duration": ({**_GOOD, "follow": {"maximum_minutes": 0}}, ["follow", "maximum_minutes", "more than 0"]),
    "follow idle time": ({**_GOOD, "follow": {"idle_minutes": -1}}, ["follow", "idle_minutes", "more than 0"]),
    "follow pause": ({**_GOOD, "follow": {"minimum_pause_seconds": 0}}, ["minimum_pause_seconds", "0.2 or more"]),
    "sensor interval": ({**_GOOD, "sensor": {"interval_seconds": 0}}, ["sensor", "interval_seconds", "1 or more"]),
    "source a text": (
        {**_GOOD, "source": "captures"},
        ["attributes.source", "'captures' is not a source", "type and its fields"],
    ),
    "catalog type": (
        {**_GOOD, "catalog": {"type": "unity"}},
        ["catalog", "type", "'unity'", "'hive'"],
    ),
    "catalog a text": (
        {**_GOOD, "catalog": "glue"},
        ["attributes.catalog", "'glue' is not a catalog", "type and its fields"],
    ),
    "metastore": (
        {**_GOOD, "catalog": {"type": "hive", "uri": "metastore:9083"}},
        ["catalog", "uri", "'metastore:9083' is not the address of a metastore: thrift://host:port is expected"],
    ),
    "export without a time zone": (
        {**_GOOD, "snapshot": {"type": "mysqldump", "path": "a.sql", "started": "2026-11-29 01:00:00"}},
        ["snapshot", "started", "'2026-11-29 01:00:00' is not an instant"],
    ),
    "export that ended before it began": (
        {
            **_GOOD,
            "snapshot": {
                "type": "mydumper",
                "path": "a",
                "started": "2026-11-29T01:00:00Z",
                "finished": "2026-11-29T00:59:00Z",
            },
        },
        ["snapshot", "finished is before started"],
    ),
    "snapshot of an unknown type": ({**_GOOD, "snapshot": {"type": "xml", "path": "a"}}, ["snapshot", "type", "'xml'"]),
    "server of another kind": (
        {**_GOOD, "snapshot": {"type": "jdbc", "url": "jdbc:postgresql://db/", "driver": "a:b:1"}},
        ["snapshot", "url", "jdbc:mysql://… or jdbc:mariadb://… is expected"],
    ),
    "driver without a version": (
        {**_GOOD, "snapshot": {"type": "jdbc", "url": "jdbc:mysql://db/", "driver": "mysql"}},
        ["snapshot", "driver", "group:artifact:version"],
    ),
    "password in the address": (
        {**_GOOD, "snapshot": {"type": "jdbc", "url": "jdbc:mysql://db/?password=x", "driver": "a:b:1"}},
        ["snapshot", "url", "user and password are fields of their own"],
    ),
    "no metastore": ({**_GOOD, "catalog": {"type": "hive"}}, ["attributes.catalog", "uri"]),
    "glue with an address": (
        {**_GOOD, "catalog": {"type": "glue", "uri": "thrift://a:9083"}},
        ["attributes.catalog", "uri"],
    ),
    "no source": ({key: _GOOD[key] for key in ("name", "lake")}, ["source", "Field required"]),
    "no lake": ({key: _GOOD[key] for key in ("name", "source")}, ["lake", "Field required"]),
    "lake empty": ({**_GOOD, "lake": ""}, ["lake", "at least 1 "]),
    "a field more": ({**_GOOD, "tme_zone": "UTC"}, ["tme_zone", "Extra inputs are not permitted", "'UTC'"]),
    "dialect": ({**_GOOD, "dialect": "debezium"}, ["dialect", "'debezium'", "'auto', 'ticdc', 'canal' or 'dataworks'"]),
    "merge threads none": ({**_GOOD, "merge_threads": 0}, ["merge_threads", "0 is too small", "1 to 64"]),
    "max runtime": ({**_GOOD, "max_runtime_seconds": 59}, ["max_runtime_seconds", "59 is too small", "60 or more"]),
    "key check rows": ({**_GOOD, "key_check_rows": -1}, ["key_check_rows", "-1 is too small", "0 or more"]),
    "merge threads many": (
        {**_GOOD, "merge_threads": 65},
        ["merge_threads", "65 is too large", "1 to 64"],
    ),
    "keys of no table": ({**_GOOD, "keys": {"events": ["a"]}}, ["keys", "'events' is not a table", "database.table"]),
    "keys without columns": ({**_GOOD, "keys": {"db.t": []}}, ["keys", "db.t: [] is not a key", "different columns"]),
    "keys twice": (
        {**_GOOD, "keys": {"db.t": ["a", "a"]}},
        ["keys", "db.t: ['a', 'a'] is not a key", "different columns"],
    ),
    "a topic's table without keys": (
        {**_GOOD, "source": {**_KAFKA, "tables": {"a": "shop.orders"}}, "keys": {"shop.items": ["id"]}},
        ["source.tables: shop.orders has no key", "keys: {shop.orders: [column]}"],
    ),
    "keys a text": ({**_GOOD, "keys": {"db.t": "id"}}, ["keys", "db.t", "list"]),
    "policy unknown": ({**_GOOD, "ddl_policy": "ask"}, ["ddl_policy", "'ask' is not a policy", "apply, keep or hold"]),
    "policy of a table": (
        {**_GOOD, "ddl_policy": {"tables": {"db.*": "ask"}}},
        ["ddl_policy", "tables", "db.*", "'apply', 'keep' or 'hold'"],
    ),
    "policy of no pattern": (
        {**_GOOD, "ddl_policy": {"tables": {"orders": "hold"}}},
        ["ddl_policy", "'orders' is not a pattern", "database.table"],
    ),
    "nothing included": ({**_GOOD, "include": []}, ["include", "[] includes no table", "such as shop.*"]),
    "include a text": ({**_GOOD, "include": "shop.*"}, ["include", "'shop.*'", "list"]),
    "include no pattern": ({**_GOOD, "include": ["shop"]}, ["include", "'shop' is not a pattern", "database.table"]),
    "exclude no pattern": ({**_GOOD, "exclude": ["a.b", ""]}, ["exclude", "'' is not a pattern", "database.table"]),
    "route of no pattern": (
        {**_GOOD, "routes": [{"match": "orders", "to": "a.b"}]},
        ["routes", "match", "'orders' is not a pattern", "database.table"],
    ),
    "route to no name": (
        {**_GOOD, "routes": [{"match": "shop.*", "to": "{schema}.{table}"}]},
        ["routes", "to", "'{schema}.{table}' is not a mirror name", "such as {database}_eu.{table}"],
    ),
    "route to nothing": ({**_GOOD, "routes": [{"match": "shop.*"}]}, ["routes", "to", "Field required"]),
    "route with a field more": (
        {**_GOOD, "routes": [{"match": "shop.*", "to": "a.{table}", "table_prefix": "x"}]},
        ["routes", "table_prefix", "Extra inputs"],
    ),
    "soft delete of no pattern": (
        {**_GOOD, "soft_delete": ["shop.*", "orders"]},
        ["soft_delete", "'orders' is not a pattern", "database.table"],
    ),
    "soft delete a text": ({**_GOOD, "soft_delete": "shop.*"}, ["soft_delete", "'shop.*'", "list"]),
    "mask of no pattern": (
        {**_GOOD, "mask": {"orders": {"a": "hash"}}, "mask_salt": _SALT},
        ["mask", "'orders' is not a pattern", "database.table"],
    ),
    "mask unknown": (
        {**_GOOD, "mask": {"db.t": {"a": "sha1"}}, "mask_salt": _SALT},
        ["mask", "db.t.a: 'sha1' is not a mask", "hash or null is expected"],
    ),
    "mask of no column": ({**_GOOD, "mask": {"db.t": {}}, "mask_salt": _SALT}, ["mask", "db.t: no columns"]),
    "mask of a key": (
        {**_GOOD, "keys": {"db.t": ["a", "b"]}, "mask": {"db.*": {"B": "null"}}, "mask_salt": _SALT},
        ["mask", "db.t.b is part of a key (keys)", "mask it as hash, not as null"],
    ),
    "mask without salt": ({**_GOOD, "mask": {"db.t": {"a": "null"}}}, ["mask_salt", "required because mask is set"]),
    "mask salt short": ({**_GOOD, "mask_salt": "kept back"}, ["mask_salt", "too short: at least 16 random characters"]),
    "mask salt of no variable": (
        {**_GOOD, "mask_salt": "{{ env.CDC_NO_SUCH_SALT }}"},
        ["mask_salt: the environment variable CDC_NO_SUCH_SALT is not set"],
    ),
    "variable not set": (
        {**_GOOD, "source": {**_KAFKA, "bootstrap_servers": "{{ env.CDC_NO_SUCH_BROKER }}"}},
        ["source", "bootstrap_servers: the environment variable CDC_NO_SUCH_BROKER is not set"],
    ),
    "variable not set, within a text": (
        {**_GOOD, "lake": "/data/{{env.CDC_NO_SUCH_STAGE}}/lake"},
        ["lake: the environment variable CDC_NO_SUCH_STAGE is not set"],
    ),
    "variable not set, in a list": (
        {**_GOOD, "owners": ["team:data", "team:{{ env.CDC_NO_SUCH_TEAM }}"]},
        ["owners.1: the environment variable CDC_NO_SUCH_TEAM is not set"],
    ),
    "metadata column unknown": (
        {**_GOOD, "metadata_columns": ["_topic", "_time"]},
        ["metadata_columns", "'_time' is not a metadata column", "_commit_ts, _topic, _partition, _offset"],
    ),
    "metadata column twice": (
        {**_GOOD, "metadata_columns": ["_topic", "_topic"]},
        ["metadata_columns", "each", "once"],
    ),
    "metadata columns a text": (
        {**_GOOD, "metadata_columns": "_topic"},
        ["metadata_columns", "'_topic' is not a list", "or none is expected"],
    ),
    "computed of no pattern": (
        {**_GOOD, "computed": {"orders": {"a": {"type": "int", "sql": "b"}}}},
        ["computed", "'orders' is not a pattern", "database.table"],
    ),
    "computed without columns": ({**_GOOD, "computed": {"db.t": {}}}, ["computed", "db.t: no columns"]),
    "computed twice": (
        {**_GOOD, "computed": {"db.t": {"a": {"type": "int", "sql": "b"}, "A": {"type": "int", "sql": "b"}}}},
        ["computed", "db.t: a, A: duplicate columns"],
    ),
    "computed of no type": (
        {**_GOOD, "computed": {"db.t": {"a": {"type": "decimal(39,2)", "sql": "b"}}}},
        ["computed", "db.t.a: 'decimal(39,2)' is not a Spark SQL type", "decimal(p,s)"],
    ),
    "computed of no expression": (
        {**_GOOD, "computed": {"db.t": {"a": {"type": "int", "sql": "sum(b"}}}},
        ["computed", "db.t.a: 'sum(b' cannot be parsed as a Spark SQL expression"],
    ),
    "computed of another": (
        {**_GOOD, "computed": {"db.t": {"a": {"type": "int", "sql": "b"}, "c": {"type": "int", "sql": "A + 1"}}}},
        ["computed", "db.t.c: 'A + 1' refers to A", "only upstream columns are allowed"],
    ),
    "computed under a name of ours": (
        {**_GOOD, "computed": {"db.t": {"_Offset": {"type": "int", "sql": "b"}}}},
        ["computed", "db.t._Offset: the name is used by metadata_columns"],
    ),
    "computed without sql": ({**_GOOD, "computed": {"db.t": {"a": {"type": "int"}}}}, ["computed", "sql", "required"]),
    "computed a text": ({**_GOOD, "computed": {"db.t": {"a": "b + 1"}}}, ["computed", "db.t", "a", "'b + 1'"]),
    "computed with a field more": (
        {**_GOOD, "computed": {"db.t": {"a": {"type": "int", "sql": "b", "as": "c"}}}},
        ["computed", "as", "Extra inputs"],
    ),
    "translation of a key": ({**_GOOD, "translation": {"key": "a"}}, ["translation", "key", "Extra inputs"]),
    "policy with a field too many": ({**_GOOD, "ddl_policy": {"other": "keep"}}, ["ddl_policy", "other"]),
    "merge threads a text": ({**_GOOD, "merge_threads": "two"}, ["merge_threads", "'two'", "integer"]),
}


@pytest.mark.parametrize("case", _WRONG)
def test_invalid_file_fails_at_load(case: str, load: Callable[[str], CdcPipeline]) -> None:
    fields, parts = _WRONG[case]
    with pytest.raises(Exception) as error:  # noqa: PT011 - Dagster's own kinds, which differ by where it finds the error
        load(_yaml(fields))
    text = _messages(error.value)
    assert [part for part in parts if part not in text] == []


def _messages(error: BaseException | None) -> str:
    """The texts of an error and its causes."""
    return "" if error is None else f"{error}\n{_messages(error.__cause__)}"


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.mkdir [made]", "!!python/name:os.mkdir ''", "!made x", "!!set {a}"]
)
def test_tags_of_yaml_make_nothing(
    tag: str, load: Callable[[str], CdcPipeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=r"could not determine a constructor|Error while loading component shop"):
        load(_yaml(_GOOD).replace('"name": "shop"', f'"name": {tag} '))
    assert not (tmp_path / "made").exists()
