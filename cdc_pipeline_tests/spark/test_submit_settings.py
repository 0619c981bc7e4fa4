"""Settings reach the JVM unchanged, and no other user can read them on the way."""

from __future__ import annotations

import os
import secrets
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.spark.jvm import jvm, properties_text
from cdc_pipeline.spark.start import settings_options

_SETTINGS = {
    "spark.a": "plain",
    "spark.b#x.y": " led by a space, 'é' \\ and \"quotes\"",
    "spark.c": "a=b:c#d!e",
    "spark.d with: space=": "tab\tline\nend",
    "spark.e": "",
    "spark.f": "C:\\path\\u0041",
}


def test_java_reads_what_was_written(spark: SparkSession) -> None:
    java = jvm(spark)
    found = java.java.util.Properties()
    found.load(java.java.io.StringReader(properties_text(_SETTINGS)))
    assert {name: found.getProperty(name) for name in _SETTINGS} == _SETTINGS
    assert found.size() == len(_SETTINGS)


def test_the_file_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    with settings_options(_SETTINGS, tmp_path) as options:
        assert options[0] == "--properties-file"
        file = Path(options[1])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text(encoding="utf-8") == properties_text(_SETTINGS)
    assert list(tmp_path.iterdir()) == []
    # with a properties file of the user
    with settings_options({"spark.a": "b"}, tmp_path, "--properties-file mine pyspark-shell") as options:
        assert options == ["--conf", "spark.a=b"]


_START = """
import os, sys
from pathlib import Path
from cdc_pipeline.spark.session import SparkLakehouse
settings = {"spark.hadoop.fs.s3a.secret.key": sys.argv[1], "spark.app.name": "é x=y:z"}
spark = SparkLakehouse(master="local[1]", driver_memory="512m", settings=settings).start(short_lived=True)
arguments = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
assert "-XX:TieredStopAtLevel=1" in list(arguments), arguments
assert spark._jsc.hadoopConfiguration().get("fs.s3a.secret.key") == sys.argv[1]
assert spark.sparkContext.appName == "é x=y:z"
heap = spark._jvm.java.lang.Runtime.getRuntime().maxMemory()
assert 2**28 < heap <= 2**29, heap
own = str(os.getpid())
jvms = 0
for process in Path("/proc").glob("[0-9]*"):
    if process.name != own:
        try:
            texts = process.joinpath("cmdline").read_bytes() + process.joinpath("environ").read_bytes()
        except OSError:
            continue
        assert sys.argv[1].encode() not in texts, process
        jvms += b"SparkSubmit" in texts
assert jvms > 0
spark.stop()
"""


@pytest.mark.jvm
def test_no_process_shows_a_setting_that_is_a_secret(tmp_path: Path) -> None:
    """No file with the secret remains in the temporary folder."""
    secret = secrets.token_hex(16)
    ended = subprocess.run(
        [sys.executable, "-c", _START, secret],
        env={**_environment(), "TMPDIR": str(tmp_path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    left = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert [str(file) for file in left if secret.encode() in file.read_bytes()] == []
    assert [file.name for file in left if file.suffix == ".log" or file.name.startswith("settings-")] == []


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
