"""The shop capture with excluded and renamed tables, through Dagster: the mirrors equal the source's tables under their new
names, and a rebuild finds them equal."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
from pyspark.sql import SparkSession

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.component.table_fields import RouteRule
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.runs import mirror_differences, read_json

CAPTURE = Path(__file__).parents[2] / "data" / "captures" / "shop"
TABLES = read_json(CAPTURE / "expected.json")["tables"]
# `vouchers` was created as `coupons`, which no route names
MIRRORS = {
    "shop.customers": "shop_eu.customers_t",
    "shop.products": "shop_eu.products_t",
    "shop.payments": "shop_eu.payments_t",
    "shop.page_views": "shop_eu.page_views_t",
    "shop.vouchers": "marketing.codes of shop",
}


def test_the_shop_with_excluded_and_renamed_tables(spark: SparkSession, tmp_path: Path) -> None:
    component = CdcPipeline(
        name="p",
        source=CaptureFilesSource(type="capture_files", path=str(CAPTURE)),
        lake=str(tmp_path / "lake"),
        exclude=["shop.order*"],
        routes=[
            RouteRule(match="shop.vouchers", to="marketing.codes of {database}"),
            RouteRule(match="shop.c[!o]*", to="{database}_eu.{table}_t"),
            RouteRule(match="shop.p*", to="{database}_eu.{table}_t"),
        ],
    )
    paths = LakePaths(component.lake, "p")

    def run(job: str) -> dg.ExecuteInProcessResult:
        with dg.DagsterInstance.ephemeral() as instance:
            return (
                component.build_defs()
                .resolve_job_def(job)
                .execute_in_process(
                    instance=instance,
                    raise_on_error=False,
                    run_config={"loggers": {"console": {"config": {"log_level": "ERROR"}}}},
                )
            )

    ingest = run("p_ingest")
    assert ingest.success
    assert [found.check_name for found in ingest.get_asset_check_evaluations() if not found.passed] == []
    log = spark.read.format("delta").load(paths.table("change_log"))
    left_out = log.where("table LIKE 'order%'").count()
    metadata = {
        event.asset_key.to_user_string(): event.materialization.metadata
        for event in ingest.all_events
        if event.is_step_materialization and event.asset_key is not None
    }
    assert metadata["p/consistent_cuts"]["filtered"].value == left_out > 1000
    assert log.count() == 3213

    for table, name in MIRRORS.items():
        truth, mirror = TABLES[table], TableName(*name.split("."))
        assert mirror_differences(spark, paths, mirror, truth["columns"], truth["rows"]) == []
        assert metadata["/".join(["p", "mirror", mirror.database, mirror.table])]["dagster/row_count"].value == len(
            truth["rows"]
        )
    assert {f"{path.parent.name}.{path.name}" for path in Path(paths.table("mirror")).glob("*/*")} == {
        *MIRRORS.values()
    }
    specs = {spec.key.path[-1]: spec for spec in component.build_defs().resolve_all_asset_specs()}
    assert specs["codes of shop"].metadata["upstream_table"] == "shop.vouchers"
    history = spark.read.format("delta").load(paths.table("ddl_history"))
    assert {row["table"]: row["status"] for row in history.where("type <> 'QUERY'").collect()} == {
        **dict.fromkeys(("orders", "order_items"), "not included"),
        **dict.fromkeys(("customers", "products", "payments", "page_views", "coupons", "vouchers"), "applied"),
    }

    rebuild = run("p_rebuild")
    assert rebuild.success
    (output,) = [event for event in rebuild.all_events if event.is_successful_output]
    assert output.step_output_data.metadata["equal"].value is True
