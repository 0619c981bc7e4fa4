"""A pipeline in Dagster's UI: a real webserver after two real runs, in headless Chromium.

`make screenshots` also takes the pictures of the docs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.assets.nodes import CODE_VERSION
from cdc_pipeline_tests.support.servers.browser import CHROMIUM, Page, browser
from cdc_pipeline_tests.support.servers.shown import shown_lake
from cdc_pipeline_tests.support.servers.webserver import Webserver, webserver

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on PATH; on Debian: apt-get install chromium (.ci/run does)"
)

_PICTURES = os.environ.get("CDC_PICTURES")
_SIZE = (1400, 900)


@dataclass
class Ui:
    server: Webserver
    page: Page
    lake: Path
    products: int
    """Rows of `shop.products`."""

    def open(self, path: str, *texts: str, size: tuple[int, int] = _SIZE) -> None:
        self.page.open(self.server.page(path), *texts, size=size)

    def picture(self, name: str) -> None:
        if _PICTURES:
            self.page.settle()
            # pictures in docs do not show the folder of a test
            self.page.replace(str(self.lake.parent), "/data")
            self.page.picture(Path(_PICTURES) / f"{name}.png")


@pytest.fixture(scope="module")
def ui(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ui]:
    folder = tmp_path_factory.mktemp("ui")
    lake, home = shown_lake(folder / "shown", batches=50 if _PICTURES else 2)
    products = spark.read.format("delta").load(str(lake / "shop" / "mirror" / "shop" / "products")).count()
    with webserver(home, CDC_LAKE=str(lake)) as server, browser(folder / "profile") as page:
        yield Ui(server, page, lake, products)


@pytest.mark.core
def test_the_asset_graph(ui: Ui) -> None:
    names = ("folder", "raw_topic_snapshot", "change_log", "ddl_history", "watermarks", "consistent_cuts")
    path = "/assets/shop/consistent_cuts?view=lineage&lineageScope=upstream&lineageDepth=6"
    ui.open(path, "products", "customers", "shop_shop", *names, size=(1700, 1050))
    ui.picture("asset-graph")


def test_the_page_of_a_mirror(ui: Ui) -> None:
    """Group, kinds, owner, tags, table name, path, columns with both types, row count, code version."""
    ui.open(
        "/assets/shop/mirror/shop/products",
        *("Row count", "Columns", "Definition", "int unsigned", "shop / change_log"),
        size=(1250, 1450),
    )
    path = str(ui.lake / "shop" / "mirror" / "shop" / "products")
    text = ui.page.text()
    for shown in (
        *(
            "shop_shop",
            "Owners\nshop-data\n",
            "delta",
            "PySpark",
            "domain: shop",
            "cdc/lifecycle: live",
            "shop.products",
            path,
        ),
        *("price", "decimal(10,2)", "stock", "bigint", "int unsigned", "json", "_commit_ts", "_offset"),
        *("resolved_tso", "lag_seconds", "delta_version", "1 row(s) with values that their types cannot hold"),
        *("shop / change_log", "shop / ddl_history", "shop / watermarks", "shop / consistent_cuts"),
    ):
        assert shown in text, f"{shown!r} is not in:\n{text}"
    assert f"Row count\n{ui.products}\n" in text
    ui.picture("mirror")
    ui.page.click("Compute details")
    ui.page.wait_for(f"Code version\n{CODE_VERSION}")


def test_metadata_is_plotted_over_runs(ui: Ui) -> None:
    ui.open("/assets/shop/mirror/shop/products", "Row count", "Plots", size=(1250, 1500))
    ui.page.click("Plots")
    ui.page.wait_for("dagster/row_count", "lag_seconds", "delta_version", "inserted", "seconds")
    assert ui.page.evaluated("document.querySelectorAll('canvas').length") >= 9
    ui.page.show("Metadata")
    ui.picture("plots")


def test_a_failed_check_shows_its_location(ui: Ui) -> None:
    ui.open("/assets/shop/consistent_cuts?view=checks&checkDetail=no_gaps", "Latest execution", "Metadata")
    ui.page.wait_for(
        "1 mirror(s) have gaps", "Failed", "shop.products", "1 row(s) with values that their types cannot hold"
    )


def test_a_mirror_shows_its_own_checks(ui: Ui) -> None:
    names = ("before_images", "keys_hold", "schema_matches_ddl")
    ui.open("/assets/shop/mirror/shop/products?view=checks&checkDetail=no_gaps", "Latest execution", *names)
    ui.page.wait_for("Failed", "1 row(s) with values that their types cannot hold", "shop_release_dead_letters")
    ui.picture("failed-check")
    ui.open("/assets/shop/mirror/shop/customers?view=checks&checkDetail=no_gaps", "Latest execution", "Passed")


def test_a_source_is_an_asset(ui: Ui) -> None:
    ui.open("/assets/shop/source/folder", "raw_topic_snapshot", "External Asset")


def test_the_mirrors_at_a_glance(ui: Ui) -> None:
    """The newest cut: what each mirror lacks, then its numbers."""
    ui.open("/assets/shop/consistent_cuts?view=events", "Materialized in run", "shop.products", size=(1400, 800))
    text = ui.page.text()
    assert "mirror\tgaps\theld\trows\tchanges\tlag_seconds\n" in text, text
    assert text.index("overview") < text.index("published")
    ui.picture("overview")


def test_runs_and_automation(ui: Ui) -> None:
    ui.open("/automation", "shop_new_offsets", "shop_new_tables", "shop_maintain_schedule", size=(1400, 600))
    ui.picture("automation")
    ui.open("/runs", "shop_follow" if _PICTURES else "shop_ingest", size=(1400, 600))
    ui.picture("runs")


def test_checks_and_columns_are_described(ui: Ui) -> None:
    ui.open("/assets/shop/change_log?view=checks&checkDetail=balance", "Nothing is lost and nothing is counted twice.")
    # the UI shows descriptions as Markdown
    ui.open("/assets/shop/dead_letters", "The rule that the record breaks (cdc-pipeline docs dialects)")
    if _PICTURES:  # the batch after it reports a value that its type cannot hold
        ui.open("/assets/shop/dead_letters?view=checks&checkDetail=no_dead_letters", "Failed", "shop.products")
        ui.picture("dead-letters")


def test_a_job_documents_its_configuration(ui: Ui) -> None:
    ui.open("/locations/cdc_pipeline/jobs/shop_maintain/playground", "shop_keep_up", "Scaffold", "Launch Run")
    ui.page.wait_for("keep_hours: 168", "compact: true", "The Spark session and its settings.")
    ui.picture("launchpad")


def test_the_component_is_documented(ui: Ui) -> None:
    ui.open("/locations/cdc_pipeline/components/library/packages/cdc_pipeline", "cdc_pipeline.CdcPipeline")
    ui.page.click("cdc_pipeline.CdcPipeline")
    ui.page.wait_for(
        "Source of the records.", "bootstrap_servers: broker:9092", "Number of mirrors that are merged in parallel"
    )
