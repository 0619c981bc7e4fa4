"""A store that refuses or fails: the run ends with the store's words, the lake is as it was, and the next run continues."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.faults import affects_all_tables, to_lake_error
from cdc_pipeline.lake.lock import writer_lock
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.quarantine import FAILURES
from cdc_pipeline_tests.support.lakes.stories import change, create, put
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.servers.faulty_store import Fault, FaultyStore, faulty_store
from cdc_pipeline_tests.support.servers.object_store import ObjectStore

# what AWS answers
_REFUSALS = {
    "an expired token": Fault(400, "ExpiredToken"),
    "no rights": Fault(403, "AccessDenied"),
    "a clock that is wrong by an hour": Fault(403, "RequestTimeTooSkewed"),
    "another region": Fault(400, "AuthorizationHeaderMalformed"),
}


@pytest.fixture
def faulty(
    s3: ObjectStore, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultyStore]:
    """A store of its own for one bucket. A new one each time, because Hadoop keeps a client per bucket."""
    hadoop, bucket = spark._jsc.hadoopConfiguration(), f"faulty-{uuid.uuid4().hex}"
    s3.create_bucket(bucket)
    with faulty_store(s3.url, bucket, tmp_path) as found:
        values = {
            "endpoint": found.url,
            "endpoint.region": s3.environment["AWS_REGION"],
            "path.style.access": "true",
            "access.key": s3.environment["AWS_ACCESS_KEY_ID"],
            "secret.key": s3.environment["AWS_SECRET_ACCESS_KEY"],
            "retry.interval": "50ms",
            "retry.throttle.interval": "50ms",
        }
        for name, value in values.items():
            hadoop.set(f"fs.s3a.bucket.{bucket}.{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        yield found
        for name in values:
            hadoop.unset(f"fs.s3a.bucket.{bucket}.{name}")


@pytest.fixture
def stream(faulty: FaultyStore, spark: SparkSession, tmp_path: Path) -> Stream:
    """A first cut is published; the second one has a new table, a rename and rows."""
    found = Stream(spark, tmp_path / "one", scheme=f"s3a://{faulty.bucket}")
    found.write_slice(2, create("a", 1), put("a", 2, "1", "a"))
    found.run()
    found.write_slice(
        10, change("RENAME TABLE a TO b", 5), put("b", 6, "2", "b"), create("a", 7), put("a", 8, "3", "c")
    )
    return found


def _is_complete(stream: Stream) -> bool:
    return (stream.rows("a"), stream.rows("b")) == ([(3, "c")], [(1, "a"), (2, "b")])


def test_a_run_is_refused_at_its_start(faulty: FaultyStore, stream: Stream) -> None:
    for case, fault in _REFUSALS.items():
        faulty.answer_with(fault)
        with (
            pytest.raises(LakeError, match=f"the store refuses access: {fault.code}: said by the test"),
            writer_lock(stream.paths, "run", print),
        ):
            raise AssertionError(case)
    faulty.answer_with(None)
    stream.run()
    assert _is_complete(stream)


def _error_after(requests: int, store: FaultyStore, stream: Stream) -> Exception | None:
    """The error of a run whose token expires after this number of requests; None if the run has completed before."""
    store.answer_with(replace(_REFUSALS["an expired token"], after=requests))
    try:
        stream.run()
    except Exception as error:
        return error
    finally:
        store.answer_with(None)
    return None


def test_a_token_that_expires_midway(faulty: FaultyStore, stream: Stream) -> None:
    """At many places of a run, until one has enough requests to complete."""
    failed, requests = 0, 10
    while (error := _error_after(requests, faulty, stream)) is not None:
        assert affects_all_tables(error), (requests, repr(error))
        fault = error if isinstance(error, (LakeError, TransientError)) else to_lake_error(error)
        assert "store refuses access" in str(fault), (requests, repr(error))
        assert published_cut(stream.lake).cut_id == 1
        failed, requests = failed + 1, requests + 25
    assert failed > 3
    assert _is_complete(stream)
    assert read_rows(stream.lake, FAILURES) == []  # no table is to blame


def test_a_store_that_is_busy(faulty: FaultyStore, stream: Stream) -> None:
    """Each tenth request is answered with 503: the run takes longer."""
    faulty.answer_with(Fault(503, "SlowDown", every=10))
    stream.run()
    assert _is_complete(stream)
