"""Commits to Delta tables on S3: one conditional PUT each (`java/cdc_pipeline/ConditionalS3LogStore.java`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline.lake.writes import append_once
from cdc_pipeline_tests.support.servers.object_store import ObjectStore, on_each_store

_COMMITS = 8
_OTHER_DRIVER = """
import sys
from cdc_pipeline.spark.session import SparkLakehouse
from cdc_pipeline_tests.lake.test_log_store import append_rows
spark = SparkLakehouse(master="local[1]", driver_memory="512m", stores=["s3"]).start(short_lived=True)
print("started", flush=True)
sys.stdin.readline()
append_rows(spark, sys.argv[1], "other")
spark.stop()
"""


def append_rows(spark: SparkSession, path: str, name: str) -> None:
    for number in range(1, _COMMITS + 1):
        rows = spark.createDataFrame([(name, number)], "writer STRING, number INT")
        append_once(rows, path, Commit(f"test:{name}", number, {}))


@on_each_store(pytest.mark.core(2))
def test_two_drivers_lose_no_commit(s3_spark: SparkSession, s3: ObjectStore) -> None:
    path = f"s3a://{s3.bucket}/{uuid.uuid4().hex}"
    command = [sys.executable, "-c", _OTHER_DRIVER, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        s3_spark.createDataFrame([], "writer STRING, number INT").write.format("delta").save(path)
        assert any("started" in line for line in iter(other.stdout.readline, ""))
        other.stdin.write("go\n")
        other.stdin.flush()
        append_rows(s3_spark, path, "own")
        assert other.wait(300) == 0
    rows = s3_spark.read.format("delta").load(path).collect()
    assert sorted(map(tuple, rows)) == [
        (name, number) for name in ("other", "own") for number in range(1, _COMMITS + 1)
    ]
    history = s3_spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    assert sorted(row["version"] for row in history) == list(range(2 * _COMMITS + 1))


@pytest.mark.skipif(version("pyspark").startswith("4.0."), reason="Spark 4.0 has its class in another package")
def test_a_checksum_is_one_conditional_request(s3_spark: SparkSession, s3: ObjectStore, tmp_path: Path) -> None:
    folder = uuid.uuid4().hex
    for path in (f"s3a://{s3.bucket}/{folder}", str(tmp_path / "local")):
        s3_spark.range(1).write.format("delta").save(path)
        assert s3_spark.read.format("delta").load(path).count() == 1
    written = re.findall(rf"PUT /{s3.bucket}/{folder}/_delta_log/(\S+) HTTP", s3.log.read_text(errors="replace"))
    assert sorted(written) == [f"{0:020}.crc", f"{0:020}.json"]
    assert (tmp_path / "local" / "_delta_log" / f"{0:020}.crc").exists()  # as Spark writes it
    java: Any = s3_spark._jvm
    target = java.org.apache.hadoop.fs.Path(f"s3a://{s3.bucket}/{folder}/_delta_log/{1:020}.crc")
    manager = java.cdc_pipeline.ConditionalFileManager(target, s3_spark._jsc.hadoopConfiguration())

    def create(content: bytes, end: str) -> None:
        stream = manager.createAtomic(target, False)
        stream.write(bytearray(content))
        assert S3Folder(f"s3a://{s3.bucket}/{folder}/_delta_log").read(f"{1:020}.crc") == before
        getattr(stream, end)()
        stream.close()

    before = None
    create(b"cancelled", "cancel")
    create(b"first", "close")
    before = S3Folder(f"s3a://{s3.bucket}/{folder}/_delta_log").read(f"{1:020}.crc")
    assert before is not None
    assert before.content == b"first"
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        create(b"second", "close")
