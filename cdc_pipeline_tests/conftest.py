"""Fixtures of all tests. The suite shares one Spark session, because a JVM and its first query cost twenty seconds."""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support import shards
from cdc_pipeline_tests.support.spark_settings import MARIADB_DRIVER, SMALL
from cdc_pipeline_tests.support.tiers import hide_java, mark_tiers

if TYPE_CHECKING:
    from cdc_pipeline_tests.support.servers.mariadb import MariaDb
    from cdc_pipeline_tests.support.servers.object_store import ObjectStore

# No deadline for examples: on a busy machine it would measure the machine.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

_COUNTED = "counted"
_RECORD = "--record-durations"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", type=_shard, metavar="NUMBER/COUNT", help="run one shard of the selected tests")
    parser.addoption(
        _RECORD, choices=(shards.CORE, shards.ALL), help="write the seconds of each file to durations.new.json"
    )


def _shard(text: str) -> shards.Shard:
    try:
        return shards.Shard.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


@pytest.hookimpl(wrapper=True, tryfirst=True)  # sets markers before pytest evaluates -m, selects shards afterwards
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    mark_tiers(items)
    # other hooks run here: pytest-xdist appends the group of a long test to its node id
    yield
    seconds = shards.recorded()[shards.CORE if config.option.markexpr == shards.CORE else shards.ALL]
    scopes = {item: shards.scope(item.nodeid) for item in items}
    for item, scope in scopes.items():
        item.user_properties.append((shards.SCOPE, scope))
    shard: shards.Shard | None = config.option.shard
    if shard is not None:
        picked = shard.pick(scopes.values(), seconds)
        config.hook.pytest_deselected(items=[item for item in items if scopes[item] not in picked])
        items[:] = [item for item in items if scopes[item] in picked]
    order = {name: index for index, name in enumerate(shards.longest_first(scopes.values(), seconds))}
    items.sort(key=lambda item: order[scopes[item]])


@pytest.hookimpl(optionalhook=True)  # pytest runs without pytest-xdist too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> shards.ScopeScheduling:
    return shards.ScopeScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    if item.get_closest_marker("jvm") is not None:
        return (yield)
    with hide_java():
        return (yield)


_recorder = shards.Recorder()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _recorder.add(report)


def pytest_sessionfinish(session: pytest.Session) -> None:
    tier = session.config.getoption(_RECORD)
    # a worker of pytest-xdist has only its own tests
    if tier and not hasattr(session.config, "workerinput"):
        _recorder.write(tier)


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Adds to a counter. The sums are printed at the end of the suite (docs/reliability.md)."""

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
        terminalreporter.write_sep("-", "counted")
        for what, number in sorted(sums.items()):
            terminalreporter.write_line(f"{number:>10,} {what}")


@pytest.fixture(scope="session")
def _object_stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], ObjectStore]]:
    """Starts the server with this name, or finds it."""
    from cdc_pipeline_tests.support.servers.object_store import STORES

    with contextlib.ExitStack() as stack:
        yield functools.cache(lambda name: stack.enter_context(STORES[name](tmp_path_factory.mktemp(name))))


@pytest.fixture
def s3(
    request: pytest.FixtureRequest, _object_stores: Callable[[str], ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    """A server of S3, found by AWS's environment variables: moto, or the one of `on_each_store`."""
    store = _object_stores(getattr(request, "param", "moto"))
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return store


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A server for all tests of the process, which create their own databases. Skips them if it is not installed."""
    from cdc_pipeline_tests.support.servers.mariadb import NO_PROGRAMS, mariadb_programs, running_mariadb

    programs = mariadb_programs()
    if programs is None:
        pytest.skip(NO_PROGRAMS)
    with running_mariadb(programs) as server:
        yield server


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from cdc_pipeline.spark.session import SparkLakehouse, jar_packages
    from cdc_pipeline.spark.stores import s3_packages

    session = SparkLakehouse(
        driver_memory=os.environ.get("CDC_DRIVER_MEMORY", "3g"),
        shuffle_partitions=1,
        stores=["s3"],
        settings={**SMALL, "spark.jars.packages": ",".join((*jar_packages(), *s3_packages(), MARIADB_DRIVER))},
    ).session
    yield session
    session.stop()


@pytest.fixture
def s3_spark(spark: SparkSession, s3: ObjectStore) -> Iterator[SparkSession]:
    """The session of the suite, whose JVM was started without AWS's variables."""
    hadoop = spark._jsc.hadoopConfiguration()
    values = {
        "endpoint": s3.url,
        "endpoint.region": s3.environment["AWS_REGION"],
        "path.style.access": "true",
        "access.key": s3.environment["AWS_ACCESS_KEY_ID"],
        "secret.key": s3.environment["AWS_SECRET_ACCESS_KEY"],
    }
    for name, value in values.items():
        hadoop.set(f"fs.s3a.bucket.{s3.bucket}.{name}", value)
    yield spark
    for name in values:
        hadoop.unset(f"fs.s3a.bucket.{s3.bucket}.{name}")


_FOR_ANY_DATA = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="module")
def as_in_production(spark: SparkSession) -> Iterator[None]:
    """Runs the queries of a module compiled and adaptive, as a pipeline does.

    Statements in their own sessions (MERGE, UPDATE, DELETE) run as in other tests. `integration/test_kill_process.py` runs
    those as in production too.
    """
    from cdc_pipeline.spark import small_frames

    kept = {name: spark.conf.get(name) for name in _FOR_ANY_DATA}
    most = small_frames.MAX_SMALL_ROWS
    kept[small_frames.SMALL_QUERY_ROWS] = spark.conf.get(small_frames.SMALL_QUERY_ROWS, str(most))
    # the rows of tests are always few, those of pipelines are not
    small_frames.MAX_SMALL_ROWS = -1
    for name, value in {**_FOR_ANY_DATA, small_frames.SMALL_QUERY_ROWS: "-1"}.items():
        spark.conf.set(name, value)
    yield
    small_frames.MAX_SMALL_ROWS = most
    for name, value in kept.items():
        assert value is not None
        spark.conf.set(name, value)


@pytest.fixture
def paths(tmp_path: Path) -> LakePaths:
    """An empty lake of a pipeline `shop`."""
    return LakePaths(str(tmp_path / "lake"), "shop")


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], CdcPipeline]]:
    """Loads a `defs.yaml` as Dagster does, in the `defs` folder of its own project."""
    import dagster as dg

    from cdc_pipeline.component.component import CdcPipeline

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
