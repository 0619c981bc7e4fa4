"""Settings of the session's JVM that must not depend on the machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta_log import delta_log
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline.spark.session import SparkLakehouse

_COLLECTOR = "-XX:+UseParallelGC"
_LATE_SECOND_COMPILER = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=2400 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=160000"
)


def test_the_jvm_is_in_utc_by_name(spark: SparkSession) -> None:
    """Delta compares the name: for any other it recomputes the whole table state at each commit."""
    assert jvm(spark).java.util.TimeZone.getDefault().getID() == "UTC"


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Spark's configuration folder, empty, without Java options in the environment."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def _java_options(**settings: str) -> str:
    found = SparkLakehouse(settings={name.replace("_", "."): value for name, value in settings.items()})
    return found.session_settings()["spark.driver.defaultJavaOptions"]


def test_the_driver_has_a_garbage_collector_for_throughput(conf: Path) -> None:
    assert _java_options() == f"-Duser.timezone=UTC {_COLLECTOR} {_LATE_SECOND_COMPILER}"
    (conf / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:MaxGCPauseMillis=100\n")
    assert _java_options(spark_driver_extraJavaOptions="-Xss4m").endswith(f"{_COLLECTOR} {_LATE_SECOND_COMPILER}")


@pytest.mark.usefixtures("conf")
def test_a_short_lived_driver_has_one_compiler_unless_the_user_decides() -> None:
    short = SparkLakehouse().session_settings(short_lived=True)["spark.driver.defaultJavaOptions"]
    assert short == f"-Duser.timezone=UTC {_COLLECTOR} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=400m"
    # Spark appends the user's options, and of two the last one counts
    own = SparkLakehouse(settings={"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4"})
    assert own.session_settings(short_lived=True)["spark.driver.extraJavaOptions"] == "-XX:TieredStopAtLevel=4"


def test_a_collector_that_is_chosen_elsewhere_is_the_only_one(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM with two options for a garbage collector does not start."""
    without = f"-Duser.timezone=UTC {_LATE_SECOND_COMPILER}"
    assert _java_options(spark_driver_extraJavaOptions="-Xss4m -XX:+UseG1GC") == without
    (conf / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -XX:+UseZGC\n")
    assert _java_options() == without
    (conf / "spark-defaults.conf").unlink()
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseSerialGC")
    assert _java_options() == without


@pytest.mark.parametrize(
    ("heap", "tables"),
    [("4g", 512), ("3G", 384), ("2048m", 256), ("4096", 512), ("1tb", 131072), ("512m", 100), ("2097152k", 100)],
)
def test_what_delta_knows_of_tables_takes_a_quarter_of_the_heap_at_most(heap: str, tables: int) -> None:
    name = "spark.databricks.delta.delta.log.cacheSize"
    assert SparkLakehouse(driver_memory=heap).session_settings()[name] == str(tables)
    assert SparkLakehouse(driver_memory=heap, settings={name: "7"}).session_settings()[name] == "7"


def test_delta_knows_no_more_tables_at_once_than_it_may(spark: SparkSession, tmp_path: Path) -> None:
    # Delta reads the setting once, so the context's value counts: another test may have changed that of the shared session
    most = int(spark.sparkContext.getConf().get("spark.databricks.delta.delta.log.cacheSize") or 0)
    assert 0 < most < 1000
    for number in range(most + 10):
        delta_log(spark, str(tmp_path / str(number)))
    companion = getattr(jvm(spark).org.apache.spark.sql.delta, "DeltaLog$").__getattr__("MODULE$")
    assert companion.cacheSize() <= most


@pytest.mark.parametrize(
    ("name", "value"), [("spark.sql.session.timeZone", "Asia/Shanghai"), ("spark.sql.ansi.enabled", "false")]
)
def test_settings_that_decide_values_cannot_be_overridden(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: '{value}' would change the values in mirrors"):
        SparkLakehouse(settings={name: value})
    fixed = SparkLakehouse().session_settings()
    assert SparkLakehouse(settings={name: fixed[name].upper()}).session_settings()[name] == fixed[name].upper()
