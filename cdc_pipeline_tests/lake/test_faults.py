"""Errors of failing disks and damaged tables: their class, their message, and whether they affect all tables."""

from __future__ import annotations

import errno
import subprocess
from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from delta.exceptions import ConcurrentAppendException, MetadataChangedException
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.errors import LakeError, StoreRefusesError, TerminalError, TransientError
from cdc_pipeline.lake.faults import affects_all_tables, to_lake_error

_JOB = "Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, most recent failure: Lost task 0.0"
# error → class of the converted error, and a part of its message
_SAID: dict[str, tuple[Exception, type[Exception] | None, str]] = {
    "a full disk": (OSError(errno.ENOSPC, "No space left on device", "/lake/x"), TransientError, "the disk is full: "),
    "a quota": (OSError(errno.EDQUOT, "Disk quota exceeded", "/lake/x"), TransientError, "the disk is full: "),
    "a read-only disk": (OSError(errno.EROFS, "Read-only file system", "/lake/x"), LakeError, "cannot be written: "),
    "no permission": (PermissionError(errno.EACCES, "Permission denied", "/lake/x"), LakeError, "cannot be written: "),
    "a task that found the disk full": (
        RuntimeError(
            "Job aborted due to stage failure\n\tat x\nCaused by: java.io.IOException: No space left on device"
        ),
        TransientError,
        "the disk is full: Caused by: java.io.IOException: No space left on device",
    ),
    "a log with a hole": (
        RuntimeError("[DELTA_VERSIONS_NOT_CONTIGUOUS] Versions (0, 2) are not contiguous. file:/lake/shop/t"),
        LakeError,
        "file:/lake/shop/t is damaged or missing: [DELTA_VERSIONS_NOT_CONTIGUOUS]",
    ),
    "a file that a task could not read": (
        RuntimeError(
            "Job aborted\n\tat java.base/java.lang.Thread.run(Thread.java)\nFAILED_READ_FILE while reading /lake/x.parquet"
        ),
        LakeError,
        "/lake/x.parquet is damaged or missing: FAILED_READ_FILE",
    ),
    "a heap that is full, in a task": (
        RuntimeError(f"{_JOB} (host executor driver): java.lang.OutOfMemoryError: Java heap space\n\tat x"),
        TerminalError,
        "(host executor driver): java.lang.OutOfMemoryError: Java heap space. Published cuts are intact",
    ),
    "a heap that is full, in the driver": (
        RuntimeError("An error occurred\njava.lang.OutOfMemoryError: GC overhead limit exceeded"),
        TerminalError,
        "CDC_DRIVER_MEMORY",
    ),
    "a JVM that is ending": (
        RuntimeError("Job 7 cancelled because SparkContext was shut down"),
        TerminalError,
        "Spark ended or ran out of memory: Job 7 cancelled",
    ),
    "a value that talks of memory": (RuntimeError("the value 'OutOfMemoryError: x' is no date"), None, ""),
    "a broker that does not let us in": (RuntimeError("Permission denied: topic orders"), None, ""),
    "a store that refuses Spark": (
        RuntimeError(
            "org.apache.hadoop.fs.s3a.AWSBadRequestException: open on s3a://b/x: S3Exception: The provided token has "
            "expired. (Service: S3, Status Code: 400, Request ID: 7):ExpiredToken: The provided token has expired. "
            "(Service: S3, Status Code: 400, Request ID: 7)"
        ),
        StoreRefusesError,
        "the object store refuses access: ExpiredToken: The provided token has expired.. Published",
    ),
    "a store that refuses delta-rs": (
        OSError(
            "Generic S3 error: Server returned non-2xx status code: 403 Forbidden: <Code>AccessDenied</Code>"
            "<Message>Access Denied</Message>"
        ),
        StoreRefusesError,
        "the object store refuses access: AccessDenied: Access Denied. Published",
    ),
    "a file that a store does not have": (RuntimeError("S3Exception: (Service: S3, Status Code: 404)"), None, ""),
    "a fault of ours": (KeyError("x"), None, ""),
}


@pytest.mark.parametrize("case", _SAID)
def test_messages(case: str) -> None:
    error, kind, said = _SAID[case]
    fault = to_lake_error(error)
    assert type(fault) is (type(None) if kind is None else kind)
    assert said in str(fault)


# what py4j raises while the JVM ends, and afterwards
_NO_ANSWER: dict[str, Exception] = {
    "refused": ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"),
    "no answer": Py4JNetworkError("Answer from Java side is empty"),
    "a call": Py4JError("An error occurred while calling o188.collectToPython"),
    "Spark": RuntimeError("Cannot call methods on a stopped SparkContext"),
}


@pytest.mark.parametrize("case", _NO_ANSWER)
@pytest.mark.parametrize("killed", [True, False])
def test_a_jvm_that_has_ended(case: str, killed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        try:
            if not killed:
                fault = to_lake_error(_NO_ANSWER[case])
                assert (fault is None) == (case != "Spark")
                return
        finally:
            process.kill()
        with pytest.raises(dg.Failure) as failure, translate_errors():
            # an error that only follows from it does not hide it
            raise TransientError("the folder cannot be listed") from _NO_ANSWER[case]
        for said in (str(to_lake_error(_NO_ANSWER[case])), failure.value.description or ""):
            assert said.startswith("Spark ended or ran out of memory: exit code -9 ")
            assert "the next run continues" in said
            assert "CDC_DRIVER_MEMORY" in said
        assert failure.value.allow_retries is False


def test_a_cause_counts() -> None:
    error = RuntimeError("something")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device", "/lake/x")
    assert isinstance(to_lake_error(error), TransientError)


# error → whether its cause is not specific to one mirror
_EVERYWHERE: dict[str, tuple[BaseException, bool]] = {
    "what may pass": (TransientError("x"), True),
    "a store that refuses": (StoreRefusesError("x"), True),
    "a disk": (OSError(errno.EIO, "Input/output error", "/lake/x"), True),
    "no memory": (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), True),
    "a JVM that is gone": (ConnectionRefusedError("Connection refused"), True),
    "a store that does not answer": (
        RuntimeError(
            f"{_JOB} in stage 7.0 (TID 9) (host executor driver): java.net.SocketTimeoutException: Read timed out"
        ),
        True,
    ),
    "a store's own error": (RuntimeError("org.apache.hadoop.fs.s3a.AWSServiceThrottledException: Slow Down"), True),
    "a full disk in a task": (RuntimeError("x\nCaused by: java.io.IOException: No space left on device"), True),
    "Spark that was stopped": (RuntimeError("Cannot call methods on a stopped SparkContext."), True),
    "a table of ours that is damaged": (
        RuntimeError("FAILED_READ_FILE while reading /lake/shop/change_log/x.parquet"),
        True,
    ),
    "a mirror that is damaged": (
        RuntimeError("FAILED_READ_FILE while reading /lake/shop/mirror/db/t/x.parquet"),
        False,
    ),
    "a commit of another writer": (ConcurrentAppendException("files were added"), True),
    "metadata of another writer": (MetadataChangedException("the schema"), True),
    "a fault of ours": (KeyError("x"), False),
    "a value that talks of it": (
        RuntimeError("[CAST_INVALID_INPUT] The value 'java.io.IOException: No space left on device' cannot be cast"),
        False,
    ),
    "another that does": (
        RuntimeError("the value 'OutOfMemoryError: Connection refused, AccessDenied' is no date"),
        False,
    ),
    "two rows for one": (
        RuntimeError("[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] Cannot perform Merge"),
        False,
    ),
}


@pytest.mark.parametrize("case", _EVERYWHERE)
def test_whose_reason_it_is(case: str) -> None:
    """Only an error that is specific to one mirror may quarantine it."""
    error, everywhere = _EVERYWHERE[case]
    assert affects_all_tables(error) is everywhere


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__context__, second.__context__ = second, first
    assert to_lake_error(first) is None


def test_the_file_that_spark_cannot_read_is_named(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).coalesce(1).write.format("delta").save(str(tmp_path / "t"))
    (file,) = (tmp_path / "t").glob("*.parquet")
    file.write_bytes(b"no parquet at all")
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        spark.read.format("delta").load(str(tmp_path / "t")).collect()
    fault = to_lake_error(caught.value)
    assert isinstance(fault, LakeError)
    assert file.name in str(fault)
