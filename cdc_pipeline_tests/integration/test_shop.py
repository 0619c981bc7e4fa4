"""The shop capture through Dagster: every mirror equals the source's table, and a second run changes nothing."""

from __future__ import annotations

import json
import re
import shutil
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import duckdb_extension_delta
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.runs import (
    delta_versions,
    environment,
    mirror_differences,
    run_ingest,
)
from cdc_pipeline_tests.support.shop import CAPTURE, TABLES

pytestmark = pytest.mark.core(1, 3, 8)

DOCS = Path(__file__).parents[2] / "docs"
# The last of the capture's 55 watermarks, in all four partitions.
LAST_WATERMARK = 470613987560259584
# the first verification follows an hour later
_CHECKS_OF_A_MIRROR = ("no_gaps", "keys_hold", "schema_matches_ddl")


class Shop:
    """The lake after one run on the whole capture."""

    def __init__(self, lake: Path, result: dg.ExecuteInProcessResult) -> None:
        self.lake = lake
        self.result = result
        self.paths = LakePaths(str(lake), "shop")


@pytest.fixture(scope="module")
def shop(as_in_production: None, tmp_path_factory: pytest.TempPathFactory) -> Shop:  # noqa: ARG001 - the run takes it up
    lake = tmp_path_factory.mktemp("shop") / "lake"
    result = run_ingest(CAPTURE, lake)
    assert result.success
    return Shop(lake, result)


@pytest.mark.parametrize("table", sorted(TABLES))
def test_mirror_equals_the_source(shop: Shop, spark: SparkSession, table: str) -> None:
    truth = TABLES[table]
    name = TableName(*table.split(".", 1))
    assert mirror_differences(spark, shop.paths, name, truth["columns"], truth["rows"]) == []


def test_there_are_no_other_mirrors(shop: Shop) -> None:
    home = Path(shop.paths.table("mirror"))
    assert {f"{path.parent.name}.{path.name}" for path in home.glob("*/*")} == set(TABLES)


def test_types_of_the_mirrors(shop: Shop, spark: SparkSession) -> None:
    def types(table: str) -> dict[str, str]:
        frame = spark.read.format("delta").load(shop.paths.mirror(TableName("shop", table)))
        return dict(frame.dtypes)

    metadata = {"_commit_ts": "bigint", "_topic": "string", "_partition": "int", "_offset": "bigint"}
    assert types("customers") == {
        "id": "bigint",
        "name": "string",
        "email": "string",
        "tier": "string",
        "tags": "string",
        "joined_at": "timestamp_ntz",
        "balance": "decimal(16,4)",
        **metadata,
    }
    assert types("orders") == {
        "id": "decimal(20,0)",
        "customer_id": "bigint",
        "status": "string",
        "placed_at": "timestamp",
        "total": "decimal(14,2)",
        "note": "string",
        "channel": "string",
        **metadata,
    }
    assert types("vouchers") == {
        "code": "string",
        "percent_off": "smallint",
        "valid_until": "date",
        "max_uses": "int",
        "used": "int",
        "active": "tinyint",
        **metadata,
    }
    assert types("products")["stock"] == "bigint"
    assert types("products")["weight"] == "double"
    assert types("payments")["raw_response"] == "binary"


def test_every_mirror_row_leads_to_its_message(shop: Shop, spark: SparkSession) -> None:
    raw = spark.read.format("delta").load(shop.paths.table("raw_topic_snapshot"))
    commit = F.get_json_object(F.col("value").cast("string"), "$._tidb.commitTs").cast("bigint")
    messages = raw.select("topic", "partition", "offset", commit.alias("commit_ts"), "batch_id")
    for table in TABLES:
        mirror = spark.read.format("delta").load(shop.paths.mirror(TableName(*table.split(".", 1))))
        led = mirror.join(
            messages,
            [
                mirror["_topic"] == messages["topic"],
                mirror["_partition"] == messages["partition"],
                mirror["_offset"] == messages["offset"],
            ],
        ).where("_commit_ts = commit_ts AND batch_id = 1")
        assert led.count() == mirror.count() == len(TABLES[table]["rows"])


_ONLY_IN = r"(?:^In (Spark|DuckDB)\b[^\n]*:\n\n)?"
_BLOCK = re.compile(rf"{_ONLY_IN}```(python|sql)\n([\s\S]*?)```", re.MULTILINE)


def _audit(engine: str, lake: Path, names: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of each query of docs/audit.md. Its text is as in the page, apart from the folder of the lake."""
    page = (DOCS / "audit.md").read_text(encoding="utf-8")
    found = []
    for only_in, language, text in _BLOCK.findall(page):
        if only_in not in ("", engine):
            continue
        if language == "python":
            assert 'lake = "data/lake/shop"' in text
            exec(text.replace("data/lake/shop", str(lake)), names)
        elif engine == "Spark":
            found.append([row.asDict() for row in names["spark"].sql(text).collect()])
        else:
            rows = names["duckdb"].sql(text)
            found.append([dict(zip(rows.columns, row, strict=True)) for row in rows.fetchall()])
    return found


@pytest.mark.parametrize("engine", ["Spark", "DuckDB"])
def test_the_audit_page_as_written(shop: Shop, spark: SparkSession, tmp_path: Path, engine: str) -> None:
    """From a row to its change, message, batch and Dagster run, and the other queries of docs/audit.md."""
    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    duckdb.load_extension(str(extension))
    home = Path(shop.paths.home)
    (row,), history, (cut,), definitions, (balance,) = _audit(engine, home, {"spark": spark})
    assert row["run_id"] == shop.result.run_id
    message = json.loads(row["message"])
    assert (message["table"], message["data"][0]["id"]) == ("orders", "100001")
    assert message["_tidb"]["commitTs"] == row["_commit_ts"]
    assert row["after"] == message["data"][0]
    assert (row["rejected_message"], row["released_at"]) == (None, None)
    assert [Path(file["path"]).name for file in row["files"]] == sorted(path.name for path in CAPTURE.glob("part-*"))

    assert history[0]["op"] == "INSERT"
    assert [change["old_status"] for change in history[1:]] == [change["new_status"] for change in history[:-1]]
    assert (history[-1]["commit_ts"], history[-1]["offset"]) == (row["_commit_ts"], row["_offset"])
    assert history[-1]["committed"].timestamp() == (row["_commit_ts"] >> 18) / 1000
    assert (cut["cut_id"], cut["resolved_tso"], cut["run_id"]) == (1, LAST_WATERMARK, shop.result.run_id)
    assert (definitions[-1]["type"], definitions[-1]["status"]) == ("CREATE", "applied")
    assert all(statement["commit_ts"] < row["_commit_ts"] for statement in definitions)
    assert (balance["batch_id"], balance["unclassified_records"], balance["missing_changes"]) == (1, 0, 0)

    # as after a release of two dead letters of the record, the second time without a replacement
    copied = tmp_path / "shop"
    shutil.copytree(home, copied)
    at = {"topic": row["_topic"], "partition": row["_partition"], "offset": row["_offset"]}
    moments = (datetime(2026, 11, day, tzinfo=timezone.utc) for day in (1, 1, 2))
    replacements = zip(moments, (b"repaired", b"repaired", None), ("first", "first", "again"), strict=True)
    releases = [{**at, "released_at": moment, "replacement": by, "note": note} for moment, by, note in replacements]
    write_deltalake(copied / "dead_letter_releases", pa.Table.from_pylist(releases))
    (released,), *_ = _audit(engine, copied, {"spark": spark})
    assert (released["message"], released["note"]) == ("repaired", "again")
    assert json.loads(released["rejected_message"]) == message
    assert released["released_at"].day == 2


def test_every_ddl_statement_is_applied_or_has_a_reason(shop: Shop, spark: SparkSession) -> None:
    history = spark.read.format("delta").load(shop.paths.table("ddl_history")).orderBy("commit_ts")
    assert [(row["type"], row["table"], row["status"]) for row in history.collect()] == [
        ("QUERY", "", "no effect"),
        ("CREATE", "customers", "applied"),
        ("CREATE", "products", "applied"),
        ("CREATE", "orders", "applied"),
        ("CREATE", "order_items", "applied"),
        ("CREATE", "payments", "applied"),
        ("CREATE", "page_views", "applied"),
        ("ALTER", "orders", "applied"),
        ("ALTER", "products", "applied"),
        ("TRUNCATE", "page_views", "applied"),
        ("ALTER", "customers", "applied"),
        ("CREATE", "coupons", "applied"),
        ("CINDEX", "orders", "applied"),
        ("RENAME", "vouchers", "applied"),
        ("ALTER", "customers", "applied"),
    ]
    last = history.where("type = 'RENAME'").select(F.explode("tables").alias("t")).select("t.*").first()
    assert last is not None
    assert (last["database"], last["table"], last["primary_key"]) == ("shop", "vouchers", ["code"])
    assert [column["mysql_type"] for column in last["columns"]][:3] == ["varchar(20)", "tinyint unsigned", "date"]


def test_the_batch_balances(shop: Shop, spark: SparkSession) -> None:
    row = spark.read.format("delta").load(shop.paths.table("batches")).first()
    assert row is not None
    kinds = {kind: count for kind, count in row["kinds"].items() if count}
    assert (row["records"], row["row_changes"]) == (3448, 3213)
    assert kinds == {"row_change": 3213, "ddl": 15, "watermark": 220}
    assert spark.read.format("delta").load(shop.paths.table("raw_topic_snapshot")).count() == 3448
    assert spark.read.format("delta").load(shop.paths.table("change_log")).count() == 3213


def test_the_cut_has_the_version_of_every_mirror(shop: Shop, spark: SparkSession) -> None:
    cuts = spark.read.format("delta").load(shop.paths.table("consistent_cuts")).collect()
    assert [(cut["cut_id"], cut["resolved_tso"], cut["late"]) for cut in cuts] == [(1, LAST_WATERMARK, 0)]
    versions = {f"{mirror['database']}.{mirror['table']}": mirror["version"] for mirror in cuts[0]["mirrors"]}
    now = delta_versions(spark, Path(shop.paths.home))
    assert versions == {table: now[f"mirror/{table.replace('.', '/')}"] for table in TABLES}


def test_the_run_reports_its_results(shop: Shop) -> None:
    checks = {
        f"{check.asset_key.path[-1]} {check.check_name}": check.passed
        for check in shop.result.get_asset_check_evaluations()
    }
    assert checks == dict.fromkeys(
        [
            *("change_log balance", "change_log contract", "ddl_history contract", "watermarks contract"),
            *("dead_letters contract", "dead_letters no_dead_letters", "change_log no_lost_offsets"),
            "watermarks watermarks_advance",
            "change_log field_rules",
            *(
                "consistent_cuts balance",
                "consistent_cuts no_gaps",
                "consistent_cuts no_failed_attempts",
                "consistent_cuts ddl_applied",
            ),
            *("consistent_cuts no_breach", "consistent_cuts keys_hold", "consistent_cuts schema_matches_ddl"),
            *("consistent_cuts only_own_commits", "consistent_cuts before_images"),
            *(f"{table.split('.')[1]} {check}" for table in TABLES for check in _CHECKS_OF_A_MIRROR),
        ],
        True,
    )
    materialized = {
        event.asset_key: event.materialization.metadata
        for event in shop.result.all_events
        if event.is_step_materialization and event.asset_key is not None
    }
    for table, truth in TABLES.items():
        metadata = materialized[dg.AssetKey(["shop", "mirror", *table.split(".", 1)])]
        assert metadata["dagster/row_count"].value == len(truth["rows"])
        assert metadata["resolved_tso"].value == str(LAST_WATERMARK)


def test_known_mirrors_are_assets(shop: Shop) -> None:
    from cdc_pipeline.definitions import defs

    with environment(CAPTURE, shop.lake):
        graph = defs().resolve_asset_graph()
    parents = {
        parent.to_user_string() for parent in graph.get(dg.AssetKey(["shop", "mirror", "shop", "orders"])).parent_keys
    }
    assert parents == {"shop/change_log", "shop/ddl_history", "shop/watermarks"}
    assert dg.AssetKey(["shop", "mirror", "shop", "coupons"]) not in graph.get_all_asset_keys()


def test_a_second_run_changes_nothing(shop: Shop, spark: SparkSession) -> None:
    before = delta_versions(spark, Path(shop.paths.home))
    assert run_ingest(CAPTURE, shop.lake).success
    assert delta_versions(spark, Path(shop.paths.home)) == before
