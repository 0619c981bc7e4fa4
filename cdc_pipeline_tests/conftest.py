"""What all tests share: one Spark session for the suite, because a JVM and its first query cost twenty seconds."""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from cdc_pipeline.resources.lake import LakePaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdc_pipeline.component import CdcPipeline


_COUNTED = "counted"
# The files that take longest, longest first: two processes share the files out in this order, and one that began a long
# one last would keep the other waiting.
_LONGEST = (
    "integration/test_captures.py",
    "integration/test_kills.py",
    "integration/test_quarantine.py",
    "integration/test_begun_cuts.py",
    "histories/test_mirrors.py",
    "integration/test_slices.py",
    "integration/test_daemon.py",
    "integration/test_cluster.py",
    "integration/test_kafka.py",
    "integration/test_ui.py",
    "mirrors/test_restoring.py",
    "faults/test_damage.py",
    "faults/test_hostile_names.py",
    "faults/test_kill_9.py",
    "faults/test_cancel.py",
    "faults/test_many_names.py",
    "mirrors/test_reading.py",
    "mirrors/test_merged_tables.py",
    "mirrors/test_release.py",
    "mirrors/test_selected_tables.py",
    "mirrors/test_soft_deletes.py",
    "integration/test_storage_folders.py",
    "mirrors/test_policy.py",
    "mirrors/test_ddl_stories.py",
    "mirrors/test_inferred.py",
    "mirrors/test_stories.py",
    "mirrors/test_redeliveries.py",
    "mirrors/test_hashed_canal.py",
    "histories/test_declared_keys.py",
    "dialects/test_large_messages.py",
    "integration/test_shop.py",
    "schemas/test_expressions.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((number for number, name in enumerate(_LONGEST) if path.endswith(name)), len(_LONGEST))

    items.sort(key=place)


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Tells how many of something a test went through; the sums stand at the end of the suite (docs/reliability.md)."""

    def count(what: str, number: int) -> None:
        request.node.user_properties.append((_COUNTED, (what, number)))

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    sums: Counter[str] = Counter()
    for report in [*terminalreporter.stats.get("passed", []), *terminalreporter.stats.get("failed", [])]:
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _COUNTED:
                what, number = value
                sums[what] += number
    if sums:
        terminalreporter.write_sep("-", "went through")
        for what, number in sorted(sums.items()):
            terminalreporter.write_line(f"{number:>10,} {what}")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from cdc_pipeline.resources.spark import SparkLakehouse

    session = SparkLakehouse(
        driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "3g"),
        shuffle_partitions=1,
        settings=SMALL,
    ).session
    yield session
    session.stop()


# Tests only: many small queries, each run once, so that whatever prepares a query for large data costs more than it gives.
# Without it the suite takes three quarters of the CPU.
SMALL = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    # each of some thousand lakes is of one test; what Delta keeps of their tables would fill the heap for nothing
    "spark.databricks.delta.delta.log.cacheSize": "150",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
_FOR_ANY_DATA = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def as_in_production(spark: SparkSession) -> Iterator[None]:
    """Compiled and adaptive queries in a module, as a pipeline runs them. Statements in sessions of their own (MERGE,
    UPDATE, DELETE) stay as in the other tests; `integration/test_kill_process.py` has those too."""
    from cdc_pipeline.resources import few_rows

    kept = {name: spark.conf.get(name) for name in _FOR_ANY_DATA}
    for name, value in _FOR_ANY_DATA.items():
        spark.conf.set(name, value)
    most, few_rows.FEW_ROWS = few_rows.FEW_ROWS, -1  # a test's rows are always few, a pipeline's are not
    yield
    few_rows.FEW_ROWS = most
    for name, value in kept.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    """An empty lake of a pipeline `shop`."""
    return LakePaths(str(tmp_path / "lake"), "shop")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], CdcPipeline]]:
    """Loads a `defs.yaml` as Dagster does: in the `defs` folder of a project of its own."""
    import dagster as dg

    from cdc_pipeline.component import CdcPipeline

    package = "project_of_a_test"
    folder = tmp_path / package / "defs" / "shop"
    folder.mkdir(parents=True)
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{package}"\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()

    def loaded(text: str) -> CdcPipeline:
        (folder / "defs.yaml").write_text(text)
        return dg.ComponentTree.for_project(tmp_path).load_component("shop", CdcPipeline)

    yield loaded
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        del sys.modules[module]
