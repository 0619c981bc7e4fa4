"""The customers of the shop capture with masked columns (the key included) and soft deletes, compared with the source's
table."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.runs import mirror_differences, read_json
from cdc_pipeline_tests.support.masks import SALT, texts

CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "shop"
TRUTH = read_json(CAPTURE / "expected.json")["tables"]["shop.customers"]

RULES = ColumnRules(
    masks=(("shop.*", (("id", "hash"), ("email", "hash"), ("name", "null"), ("balance", "hash"))),),
    salt=SALT,
    soft_delete=("shop.cust*",),
)


def _hashed(text: str | None) -> str | None:
    return None if text is None else hmac.new(SALT.encode(), text.encode(), hashlib.sha256).hexdigest()


def _masked(row: list[str | None]) -> list[str | None]:
    cells = dict(zip((column["name"] for column in TRUTH["columns"]), row, strict=True))
    balance = cells["balance"]
    # a MODIFY has increased the scale
    scaled = None if balance is None else f"{Decimal(balance).normalize():f}"
    masked = {"id": _hashed(cells["id"]), "email": _hashed(cells["email"]), "name": None, "balance": _hashed(scaled)}
    return [masked.get(name, text) for name, text in cells.items()]


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    """The lake after one run on the records of this table and the watermarks."""
    folder = tmp_path_factory.mktemp("masked")
    (folder / "captures").mkdir()
    for part in sorted(CAPTURE.glob("*.jsonl.gz")):
        with gzip.open(part, "rt", encoding="utf-8") as lines:
            kept = [line for line in lines if 'table\\":\\"customers\\"' in line or "TIDB_WATERMARK" in line]
        (folder / "captures" / part.stem).write_text("".join(kept), encoding="utf-8")
    paths = LakePaths(str(folder / "lake"), "shop")
    ingest(spark, paths, folder / "captures", columns=RULES)
    return paths


def test_the_mirror_equals_the_masked_source(lake: LakePaths, spark: SparkSession) -> None:
    kinds = {"id": "varchar(64)", "email": "varchar(64)", "balance": "varchar(64)"}
    columns = [{**column, "type": kinds.get(column["name"], column["type"])} for column in TRUTH["columns"]]
    rows = [_masked(row) for row in TRUTH["rows"]]
    assert len(rows) > 50
    assert mirror_differences(spark, lake, TableName("shop", "customers"), columns, rows) == []
    table = table_state(spark, lake.mirror(TableName("shop", "customers")))
    assert table is not None
    assert MirrorState.from_properties(table.properties).gaps == ()


def test_deleted_rows_are_masked_and_keep_their_last_values(lake: LakePaths, spark: SparkSession) -> None:
    log = spark.read.format("delta").load(lake.table("change_log"))
    # at equal TSO, the DELETE of a key precedes its INSERT
    newest = F.max_by(F.struct("op", "before", "commit_ts"), F.struct("commit_ts", F.col("op") != "DELETE"))
    last = log.groupBy(F.expr("coalesce(after, before)['id']").alias("id")).agg(newest.alias("last"))
    deleted = [(found["id"], *found["last"][1:]) for found in last.where("last.op = 'DELETE'").collect()]
    assert len(deleted) > 10
    mirror = spark.read.format("delta").load(lake.mirror(TableName("shop", "customers"))).where("_deleted")
    found = [(cells["id"], cells["email"], cells["name"], cells["_commit_ts"]) for cells in mirror.collect()]
    assert sorted(found) == sorted((_hashed(key), _hashed(image["email"]), None, time) for key, image, time in deleted)


def test_no_file_of_the_mirror_has_an_unmasked_value(lake: LakePaths, spark: SparkSession) -> None:
    log = spark.read.format("delta").load(lake.table("change_log"))
    images = log.selectExpr("after['email'] AS email", "after['name'] AS name").where("email IS NOT NULL").collect()
    values = {value for image in images for value in image}
    assert len(values) > 100
    files = [path for path in Path(lake.mirror(TableName("shop", "customers"))).rglob("*") if path.is_file()]
    assert len(files) > 5
    shown = {path: texts(path) for path in files}
    assert [(path, value) for path, text in shown.items() for value in values if value in text] == []
    assert sum(json.dumps(_masked(TRUTH["rows"][0])[0]).strip('"') in text for text in shown.values()) > 0
