"""The same pipeline on a real cluster, by settings only: a master, two workers with an executor each, equal mirrors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.spark.session import jar_packages
from cdc_pipeline_tests.support.captures import capture_lines
from cdc_pipeline_tests.support.lakes.runs import end_of_watermark
from cdc_pipeline_tests.support.servers.cluster import StandaloneCluster, environment_of_driver
from cdc_pipeline_tests.support.servers.cluster_run import TABLES, hashes_of_slices
from cdc_pipeline_tests.support.servers.object_store import ObjectStore
from cdc_pipeline_tests.support.shop import CAPTURE
from cdc_pipeline_tests.support.spark_settings import INTERPRETED, JVM_OPTIONS

pytestmark = pytest.mark.jvm

_ROOT = Path(__file__).parents[2]
_WATERMARKS = (1, 2)  # the last watermark of each slice; the second slice changes mirrors of the first
_PATIENCE_SECONDS = 600  # timeout; a slow machine shares two cores with the other tests
_SETTINGS = {
    "spark.executor.memory": "640m",
    "spark.executor.cores": "1",
    # start only with both executors: the first one alone could finish such a small job
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # run a task on any executor at once instead of waiting three seconds for the one that has its rows
    "spark.locality.wait": "0s",
    "spark.driver.extraJavaOptions": JVM_OPTIONS,
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    **INTERPRETED,
}


@pytest.fixture
def slices(tmp_path: Path) -> list[Path]:
    """Folders of captures. Each folder also has the files of the previous one."""
    lines = capture_lines(CAPTURE)
    with (CAPTURE / "expected_at_watermarks.jsonl").open(encoding="utf-8") as stream:
        watermarks = [json.loads(line)["watermark"] for line in stream]
    folder = tmp_path / "captures"
    done, found = 0, []
    for number, watermark in enumerate(_WATERMARKS):
        end = end_of_watermark(watermarks[watermark - 1], lines)
        found.append(folder / str(number))
        found[-1].mkdir(parents=True)
        (found[-1] / "part.jsonl").write_text("\n".join(lines[done:end]) + "\n", encoding="utf-8")
        done = end
    return found


def test_two_workers_produce_the_same_mirrors(
    spark: SparkSession, paths: LakePaths, slices: list[Path], tmp_path: Path
) -> None:
    with StandaloneCluster(tmp_path / "cluster", 2) as cluster:
        with _driver(cluster.master, str(tmp_path / "clustered"), slices, tmp_path / "driver.log") as driver:
            expected = hashes_of_slices(spark, paths, slices)  # in parallel, because both mostly wait
            output, _ = driver.communicate(timeout=_PATIENCE_SECONDS)
        jars = cluster.jars_of_executors()
    assert driver.returncode == 0, (tmp_path / "driver.log").read_text(errors="replace")[-5000:]
    found = json.loads(output.splitlines()[-1])
    workers = {executor["address"]: executor for executor in found["executors"] if executor["id"] != "driver"}
    assert len(workers) == 2
    assert all(executor["completed_tasks"] > 0 for executor in workers.values()), workers
    assert found["registered"] == 3  # executors and the driver
    assert len(jars) == 2
    for has in jars:
        for package in jar_packages():
            group, name, version = package.split(":")
            assert f"{group}_{name}-{version}.jar" in has
    assert set(expected) == {"change_log", *TABLES}
    assert found["hashes"] == expected


@pytest.mark.skipif(
    subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode != 0,
    reason="needs mount namespaces, which hide a folder from the workers",
)
def test_workers_without_a_common_folder(
    spark: SparkSession, paths: LakePaths, slices: list[Path], tmp_path: Path, s3: ObjectStore
) -> None:
    """The lake is on S3. The folder with all files of the driver is empty for the workers; they see the source only."""
    own = tmp_path / "driver"
    own.mkdir()
    lake, log = f"s3a://{s3.bucket}/{uuid.uuid4().hex}", tmp_path / "driver.log"
    environment = {**s3.environment, "TMPDIR": str(own), "SPARK_LOCAL_DIRS": str(own / "spark")}
    with (
        StandaloneCluster(tmp_path / "cluster", 2, hidden=own) as cluster,
        _driver(cluster.master, lake, slices, log, environment) as driver,
    ):
        expected = hashes_of_slices(spark, paths, slices)
        output, _ = driver.communicate(timeout=_PATIENCE_SECONDS)
    assert driver.returncode == 0, log.read_text(errors="replace")[-5000:]
    found = json.loads(output.splitlines()[-1])
    assert [one["completed_tasks"] > 0 for one in found["executors"] if one["id"] != "driver"] == [True, True]
    assert found["hashes"] == expected


@contextmanager
def _driver(
    master: str, lake: str, slices: list[Path], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """`cluster_run` in its own process, which is killed with its children when the block ends."""
    given = {
        "master": master,
        "settings": _SETTINGS,
        "lake": lake,
        "slices": [str(folder) for folder in slices],
    }
    with log.open("wb") as errors:
        driver = subprocess.Popen(
            [sys.executable, "-m", "cdc_pipeline_tests.support.servers.cluster_run", json.dumps(given)],
            cwd=_ROOT,
            env={**environment_of_driver(), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        # the process group cannot be reused before its leader is reaped
        if driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()
