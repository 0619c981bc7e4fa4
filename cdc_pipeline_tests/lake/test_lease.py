"""The lease of a lake on S3, against a server."""

from __future__ import annotations

import json
import time
import uuid
from datetime import timedelta

import pytest

from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake import lease
from cdc_pipeline.lake.lock import writer_lock
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import S3Folder
from cdc_pipeline_tests.support.servers.object_store import BUCKET, ObjectStore, on_each_store

pytestmark = on_each_store()


@pytest.fixture
def lake(s3: ObjectStore) -> LakePaths:
    return LakePaths(f"s3a://{s3.bucket}/{uuid.uuid4().hex}", "shop")


def _holder(paths: LakePaths) -> str | None:
    found = S3Folder(paths.home).read(".lease")
    assert found is not None
    holder: str | None = json.loads(found.content)["run_id"]
    return holder


def test_one_run_at_a_time(lake: LakePaths) -> None:
    lines: list[str] = []
    with writer_lock(lake, "first", lines.append):
        assert _holder(lake) == "first"
        with (
            pytest.raises(TransientError, match=r"run first is writing this lake and did not end within 0\.1 s"),
            writer_lock(lake, "second", lines.append, wait_seconds=0.1),
        ):
            pass
    assert lines == ["waiting: run first is writing this lake"]
    assert _holder(lake) is None
    with writer_lock(lake, "second", lines.append, wait_seconds=0):
        assert _holder(lake) == "second"


def test_a_run_that_was_killed_loses_the_lease(lake: LakePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_POLL_SECONDS", 0.2)
    monkeypatch.setattr(lease, "VALID", timedelta(seconds=2))
    S3Folder(lake.home).create(".lease", json.dumps({"run_id": "killed", "token": "1"}).encode())
    lines: list[str] = []
    with writer_lock(lake, "next", lines.append):
        assert _holder(lake) == "next"
    assert lines == ["waiting: run killed is writing this lake"]


def test_a_run_that_was_paused_notices_it(lake: LakePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RENEWED_AFTER_SECONDS", 0.2)
    lines: list[str] = []
    folder = S3Folder(lake.home)
    with writer_lock(lake, "paused", lines.append):
        # renewed meanwhile
        for _ in range(100):
            found = folder.read(".lease")
            assert found is not None
            taken = json.dumps({"run_id": "other", "token": "1"}).encode()
            if folder.replace(".lease", taken, found.e_tag) is not None:
                break
        until = time.monotonic() + 30
        while not lines and time.monotonic() < until:
            time.sleep(0.1)
    assert len(lines) == 1
    assert "another run may write" in lines[0]
    assert _holder(lake) == "other"  # not released by the run that has lost it


def test_the_next_step_of_a_run_goes_on_if_no_other_run_came_between(lake: LakePaths) -> None:
    def goes_on(run_id: str) -> bool:
        with writer_lock(lake, run_id, print, wait_seconds=0) as continues:
            return continues

    assert [goes_on(run_id) for run_id in ("a", "a", "a", "b", "a")] == [False, True, True, False, False]
    with pytest.raises(ValueError, match="failed"), writer_lock(lake, "a", print, wait_seconds=0):
        raise ValueError("failed")
    assert not goes_on("a")
    taken = S3Folder(lake.home).read(".lease")
    assert taken is not None
    S3Folder(lake.home).replace(".lease", b'{"run_id": null, "token": "of another process"}', taken.e_tag)
    assert not goes_on("a")


def test_a_store_without_conditional_writes_is_refused(lake: LakePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    put = S3Folder._put
    monkeypatch.setattr(S3Folder, "_put", lambda folder, name, content, mode: put(folder, name, content, "overwrite"))
    with pytest.raises(LakeError, match="conditional writes is expected"), writer_lock(lake, "run", print):
        pass
    with writer_lock(lake, "run", print, single_writer=True):
        assert _holder(lake) == "run"
    with pytest.raises(LakeError, match="conditional writes is expected"), writer_lock(lake, "next", print):
        pass


def test_a_store_is_proved_once(lake: LakePaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a run in one process, and a later run."""
    created: list[str] = []
    create = S3Folder.create
    monkeypatch.setattr(S3Folder, "create", lambda *call: created.append(call[1]) or create(*call))  # type: ignore[func-returns-value]
    for run in ("first", "first", "second"):
        with writer_lock(lake, run, print):
            pass
    assert created == [".lease"] * 2


@pytest.mark.parametrize(
    ("lake_url", "variables", "expected"),
    [
        ("s3a://no-such-bucket/x", {}, (LakeError, "NoSuchBucket")),
        (f"s3a://{BUCKET}/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, (TransientError, "does not respond")),
    ],
)
def test_errors_name_the_lake(
    s3: ObjectStore,
    lake_url: str,
    variables: dict[str, str],
    expected: tuple[type[Exception], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    kind, text = expected
    with pytest.raises(kind, match=text) as error, writer_lock(LakePaths(lake_url, "shop"), "run", print):
        pass
    assert f"{lake_url}/shop" in str(error.value)
    assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in str(error.value)
