from __future__ import annotations

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from cdc_pipeline.catalogs.entries import (
    catalog_name,
    definition,
    location,
    owner_parameters,
    table_entry,
    view_entries,
)
from cdc_pipeline.lake.delta import TableState
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_report import MirrorEntry
from cdc_pipeline.mysql.model.table import TableName

_OWNER = owner_parameters(LakePaths("/lake", "shop"))


def _mirror(name: str, path: str = "/lake/m", **more: Any) -> MirrorEntry:
    return MirrorEntry(TableName(*name.split(".")), f"id of {name}", path, 7, 1, 2, (), **more)


def test_the_owner_is_the_pipeline_in_its_lake() -> None:
    assert _OWNER == {"cdc.pipeline": "shop", "cdc.lake": "/lake/shop"}


def test_paths_have_a_scheme() -> None:
    assert [location(path) for path in ("/a b/ü", "s3a://b/c", "hdfs://h/c")] == [
        "file:/a b/ü",
        "s3a://b/c",
        "hdfs://h/c",
    ]


def test_a_comment_mentions_deleted_rows() -> None:
    comments = [
        table_entry(_mirror("db.T", **more), _OWNER).parameters["comment"] for more in ({}, {"keeps_deleted": True})
    ]
    assert comments == [
        "db.T, mirrored by the pipeline shop",
        "db.T, mirrored by the pipeline shop. Rows deleted upstream stay, with _deleted true",
    ]


def test_views_have_the_name_of_their_table_or_also_of_its_database() -> None:
    names = ("shop.orders", "shop.items", "crm.orders", "crm.Orders")
    found = view_entries([_mirror(name) for name in names], _OWNER, lambda mirror: TableState(7, StructType(), {}))
    assert [entry.name for entry in found] == [
        "shop_orders_7458f44c",
        "items",
        "crm_orders_aed234bf",
        "orders_b7e8acdd",
    ]
    assert found[1].parameters["cdc.path"] == "file:/lake/m"


def test_a_view_leaves_out_deleted_rows() -> None:
    columns = StructType().add("a`b", LongType()).add("_deleted", BooleanType(), False)
    views = view_entries(
        [_mirror("db.t", "/l`/t"), _mirror("db.kept", keeps_deleted=True)],
        _OWNER,
        lambda mirror: TableState(8, columns, {}),
    )
    plain, kept = map(definition, views)
    assert plain.sql == "SELECT * FROM delta.`file:/l``/t@v8`"
    assert plain.parameters["view.query.out.numCols"] == "2"
    assert kept.sql == "SELECT `a``b` FROM delta.`file:/lake/m@v8` WHERE NOT _deleted"
    assert kept.parameters["view.query.out.numCols"] == "1"
    assert json.loads(kept.parameters["spark.sql.sources.schema"])["fields"][0]["name"] == "a`b"


def test_a_long_schema_is_split() -> None:
    columns = StructType()
    for number in range(100):
        columns.add(f"column_{number}", StringType())
    (view,) = view_entries([_mirror("db.t")], _OWNER, lambda mirror: TableState(8, columns, {}))
    found = definition(view).parameters
    parts = [found[f"spark.sql.sources.schema.part.{number}"] for number in range(2)]
    assert found["spark.sql.sources.schema.numParts"] == "2"
    assert StructType.fromJson(json.loads("".join(parts))) == columns
    assert max(map(len, found.values())) <= 4000


@given(st.text(min_size=1, max_size=64))
def test_every_name_is_one_of_hive(name: str) -> None:
    found = catalog_name(name)
    assert re.fullmatch(r"[a-z0-9_]{1,80}", found)
    assert catalog_name(found) == found


def test_plain_names_stay_and_others_differ() -> None:
    assert [catalog_name(name) for name in ("orders", "order_items_2", "7")] == ["orders", "order_items_2", "7"]
    others = ("Orders", "ORDERS", "or ders", "or-ders", "订单", "订", "İ", "`")
    found = [catalog_name(name) for name in others]
    assert len({*found}) == len(others)
    assert catalog_name("Order-Items") == "order_items_21f5372a"
    assert catalog_name("订单") == "name_3d5436ea"
