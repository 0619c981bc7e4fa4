"""The sensor `<pipeline>_new_offsets`: when it requests a run, with which configuration, and why it skips."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import CaptureFilesSource
from cdc_pipeline.errors import SourceError
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sensors.new_offsets import SensorTiming, new_offsets_sensor
from cdc_pipeline.sources.source import NewRecords, NoNewRecords, PartitionLag
from cdc_pipeline_tests.support.folders import folder, line

_NEWS = NewRecords("12 new offsets: t/0 5–16", "from 5", "from 5 to 17", 12, {"t": {"0": 17}})


@dataclass
class _Source:
    """A source with a fixed answer."""

    answer: NewRecords | NoNewRecords | Exception = _NEWS
    secrets: tuple[str, ...] = ("hunter2",)
    location: str = "a broker"
    inputs: tuple[str, ...] = ("t",)
    kinds: frozenset[str] = frozenset()
    notes: list[Mapping[str, Any] | None] = field(default_factory=list)

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        self.notes.append(note)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ingest(self, *_: object) -> Any:
        raise AssertionError("a sensor must not ingest")


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    with DagsterInstance.ephemeral() as found:
        yield found


@dg.job(name="p_ingest", tags={"cdc/pipeline": "p"})
def _ingest() -> None: ...


@dg.job(name="p_follow", tags={"cdc/pipeline": "p"})
def _follow() -> None: ...


@dg.job(name="p_maintain", tags={"cdc/pipeline": "p"})
def _maintain() -> None: ...


def _tick(
    source: Any,
    instance: DagsterInstance,
    lake: str = "lake",
    *,
    cursor: str | None = None,
    follows: bool = False,
    **timing: int,
) -> dg.SensorResult | dg.SkipReason:
    job = _follow if follows else _ingest
    sensor = new_offsets_sensor(Pipeline("p", source, lake), job, SensorTiming(**timing), follows=follows)
    context = dg.build_sensor_context(instance=instance, cursor=cursor, sensor_name=sensor.name)
    found = sensor(context)
    assert isinstance(found, (dg.SensorResult, dg.SkipReason))
    return found


def _request(found: dg.SensorResult | dg.SkipReason) -> dg.RunRequest:
    assert isinstance(found, dg.SensorResult)
    assert found.run_requests is not None
    (request,) = found.run_requests
    return request


def _reason(found: dg.SensorResult | dg.SkipReason) -> str:
    skip = found if isinstance(found, dg.SkipReason) else found.skip_reason
    assert isinstance(skip, dg.SkipReason | str)
    return str(skip.skip_message if isinstance(skip, dg.SkipReason) else skip)


def _run(
    instance: DagsterInstance,
    status: DagsterRunStatus,
    tags: Mapping[str, str] | None = None,
    job: dg.JobDefinition = _ingest,
) -> str:
    """Creates a run of the pipeline with this status and returns its id."""
    run = instance.create_run_for_job(
        job, status=DagsterRunStatus.NOT_STARTED, tags={"cdc/pipeline": "p", **(tags or {})}
    )
    event = {
        DagsterRunStatus.FAILURE: dg.DagsterEventType.RUN_FAILURE,
        DagsterRunStatus.SUCCESS: dg.DagsterEventType.RUN_SUCCESS,
        DagsterRunStatus.STARTED: dg.DagsterEventType.RUN_START,
        DagsterRunStatus.CANCELED: dg.DagsterEventType.RUN_CANCELED,
    }[status]
    instance.report_dagster_event(dg.DagsterEvent(event.value, job.name, message=""), run.run_id)
    return run.run_id


# ---- requests


def test_new_records_request_a_run_of_their_range(instance: DagsterInstance) -> None:
    request = _request(_tick(_Source(), instance))
    assert request.run_config == {"ops": {"p__raw_topic_snapshot": {"config": {"until": {"t": {"0": 17}}}}}}
    assert request.tags == {"cdc/range": _NEWS.summary, "cdc/range_id": _NEWS.range_id}
    assert request.run_key == "from 5 to 17"


def test_a_run_that_follows_finds_new_records_itself(instance: DagsterInstance) -> None:
    request = _request(_tick(_Source(), instance, follows=True))
    assert request.run_config == {}
    assert request.run_key == "from 5 to 17"
    _run(instance, DagsterRunStatus.STARTED, job=_follow)
    assert "of p_follow is not finished yet" in _reason(_tick(_Source(), instance, follows=True))


def test_range_is_requested_again_after_a_failure(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _request(_tick(_Source(), instance))
    run_id = _run(instance, DagsterRunStatus.FAILURE, first.tags)
    reason = _reason(_tick(_Source(), instance))
    assert run_id in reason
    assert "ended with status failure" in reason
    later = time.time() + 31
    monkeypatch.setattr(time, "time", lambda: later)
    second = _request(_tick(_Source(), instance))
    assert second.run_key == f"from 5 to 17-after-{run_id}"
    assert second.run_config == first.run_config


def test_each_retry_has_a_run_key_of_its_own(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster launches one run per key. Someone may delete runs, and the sensor looks at the newest twenty only."""
    keys = []
    for number in range(25):
        start = time.time() + 1000 * number
        monkeypatch.setattr(time, "time", lambda start=start: start)
        request = _request(_tick(_Source(), instance))
        keys.append(request.run_key)
        run_id = _run(instance, DagsterRunStatus.FAILURE, request.tags)
        if number == 3:
            instance.delete_run(run_id)
    # the deleted run's key was free again
    assert len({*keys}) == 24


def test_backoff_grows_with_consecutive_failures(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(4):
        _run(instance, DagsterRunStatus.FAILURE)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 200)
    assert "retry in" in _reason(_tick(_Source(), instance))
    monkeypatch.setattr(time, "time", lambda: now + 241)
    _request(_tick(_Source(), instance))
    _run(instance, DagsterRunStatus.SUCCESS)
    monkeypatch.setattr(time, "time", lambda: now)
    _request(_tick(_Source(), instance))


def test_first_run_has_no_end_offsets(instance: DagsterInstance) -> None:
    request = _request(_tick(_Source(NewRecords("new", "a", "b", 3)), instance))
    assert request.run_config == {"ops": {"p__raw_topic_snapshot": {"config": {"until": {}}}}}


_NOTHING = NoNewRecords("all is read")


def _lake(folder: Path) -> str:
    """A lake whose newest batch is 7."""
    log = folder / "lake" / "p" / "raw_topic_snapshot" / "_delta_log"
    log.mkdir(parents=True)
    note = json.dumps({"batch": 7, "run_id": "r", "listing": "of two files"})
    (log / f"{0:020}.json").write_text(json.dumps({"commitInfo": {"userMetadata": note}}))
    return str(folder / "lake")


@pytest.mark.parametrize("status", [DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED])
@pytest.mark.parametrize("job", [_ingest, _follow], ids=["ingest", "follow"])
def test_unsuccessful_run_is_retried_without_new_records(
    status: DagsterRunStatus,
    job: dg.JobDefinition,
    instance: DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Ingested records are not new, but may be missing in the mirrors."""
    lake = _lake(tmp_path)
    _run(instance, DagsterRunStatus.SUCCESS, job=job)
    assert _reason(_tick(_Source(_NOTHING), instance, lake, follows=job is _follow)) == "all is read"
    run_id = _run(instance, status, job=job)
    assert "retry in" in _reason(_tick(_Source(_NOTHING), instance, lake, follows=job is _follow))
    later = time.time() + 31
    monkeypatch.setattr(time, "time", lambda: later)
    request = _request(_tick(_Source(_NOTHING), instance, lake, follows=job is _follow))
    assert (request.run_key, request.run_config) == (f"after-{run_id}", {})
    assert request.tags == {"cdc/range": f"retry of run {run_id} ({status.value.lower()})"}
    _run(instance, DagsterRunStatus.SUCCESS, request.tags, job)
    assert _reason(_tick(_Source(_NOTHING), instance, lake, follows=job is _follow)) == "all is read"


def test_lake_without_known_runs_is_processed_once(instance: DagsterInstance, tmp_path: Path) -> None:
    """Dagster's storage may be lost after a failed run."""
    lake = _lake(tmp_path)
    assert _request(_tick(_Source(_NOTHING), instance, lake)).run_key == "after-batch-7"
    _run(instance, DagsterRunStatus.SUCCESS)
    assert _reason(_tick(_Source(_NOTHING), instance, lake)) == "all is read"


# ---- skips


def test_failure_of_an_empty_lake_is_not_retried(instance: DagsterInstance) -> None:
    _run(instance, DagsterRunStatus.FAILURE)
    assert _reason(_tick(_Source(_NOTHING), instance)) == "all is read"


def test_failed_run_of_another_job_is_not_retried(instance: DagsterInstance, tmp_path: Path) -> None:
    _run(instance, DagsterRunStatus.FAILURE, job=_maintain)
    assert _reason(_tick(_Source(_NOTHING), instance, _lake(tmp_path))) == "all is read"


def test_one_run_at_a_time(instance: DagsterInstance) -> None:
    source, run_id = _Source(), _run(instance, DagsterRunStatus.STARTED)
    reason = _reason(_tick(source, instance))
    assert run_id in reason
    assert "p_ingest is not finished yet (started)" in reason
    assert source.notes == []  # the source is not asked


def test_runs_of_other_pipelines_do_not_block(instance: DagsterInstance) -> None:
    _run(instance, DagsterRunStatus.STARTED, {"cdc/pipeline": "q"})
    _request(_tick(_Source(), instance))


def test_no_new_records(instance: DagsterInstance) -> None:
    assert _reason(_tick(_Source(NoNewRecords("all is read")), instance)) == "all is read"


def test_few_records_wait_up_to_the_maximum(instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = _tick(_Source(), instance, minimum_records=100, maximum_wait_seconds=60)
    assert "fewer than 100" in _reason(waiting)
    assert isinstance(waiting, dg.SensorResult)
    cursor, now = waiting.cursor, time.time()
    monkeypatch.setattr(time, "time", lambda: now + 59)
    # more records with the same start
    more = NewRecords("20 new", _NEWS.start_id, "from 5 to 25", 20, {"t": {"0": 25}})
    second = _tick(_Source(more), instance, cursor=cursor, minimum_records=100, maximum_wait_seconds=60)
    assert isinstance(second, dg.SensorResult)
    assert second.cursor == cursor
    monkeypatch.setattr(time, "time", lambda: now + 61)
    _request(_tick(_Source(more), instance, cursor=cursor, minimum_records=100, maximum_wait_seconds=60))
    # records with another start have not waited yet
    other = NewRecords("20 new", "from 30", "from 30 to 50", 20, {"t": {"0": 50}})
    assert "0 s of 60" in _reason(
        _tick(_Source(other), instance, cursor=cursor, minimum_records=100, maximum_wait_seconds=60)
    )
    _request(_tick(_Source(), instance, minimum_records=12))


@pytest.mark.parametrize("cursor", ["", "x", "[]", '{"start_id": 3}', '{"start_id": "from 5", "since": null}'])
def test_damaged_cursor_is_replaced(cursor: str, instance: DagsterInstance) -> None:
    found = _tick(_Source(), instance, cursor=cursor, minimum_records=100)
    assert isinstance(found, dg.SensorResult)
    assert json.loads(found.cursor or "")["start_id"] == "from 5"


# ---- observations of the source


@pytest.mark.parametrize("answer", [_NEWS, _NOTHING])
def test_a_look_is_observed_once(answer: NewRecords | NoNewRecords, instance: DagsterInstance) -> None:
    source = _Source(replace(answer, lags=(PartitionLag("t", 0, 17, answer is _NEWS),)))
    for expected in (1, 0):
        found = _tick(source, instance, cursor="kept")
        events = found.asset_events if isinstance(found, dg.SensorResult) else []
        assert [event.asset_key.path for event in events] == [["p", "source", "t"]] * expected
        for event in events:
            instance.report_runless_asset_event(event)
    assert len(source.notes) == 2  # no look for the observation alone


# ---- errors


def test_error_fails_the_tick_without_secrets(instance: DagsterInstance) -> None:
    with pytest.raises(Exception, match="topic made again") as error:
        _tick(_Source(SourceError("topic made again")), instance)
    assert type(error.value) is SourceError
    with pytest.raises(RuntimeError, match=r"SourceError: login of \*\*\* refused") as error:
        _tick(_Source(SourceError("login of hunter2 refused")), instance)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


# ---- a folder of files


def _component(tmp_path: Path) -> CdcPipeline:
    source = CaptureFilesSource(type="capture_files", path=str(tmp_path / "captures"))
    return CdcPipeline(name="p", source=source, lake=str(tmp_path / "lake"))


@pytest.mark.usefixtures("spark")
def test_new_files_request_a_run(instance: DagsterInstance, tmp_path: Path) -> None:
    """With real runs: ingested files are not requested again, added files are."""
    place = tmp_path / "captures"
    place.mkdir()
    component = _component(tmp_path)
    source, lake = component.pipeline.source, component.lake
    assert "there are no capture files" in _reason(_tick(source, instance, lake))
    folder(place, {"a.jsonl": line("{}", offset=1)})
    request = _request(_tick(source, instance, lake))
    definitions = component.build_defs()
    raw = dg.AssetSelection.assets(dg.AssetKey(["p", "raw_topic_snapshot"]))
    job = dg.define_asset_job("p_raw", selection=raw, executor_def=dg.in_process_executor, tags={"cdc/pipeline": "p"})

    def run(request: dg.RunRequest) -> None:
        with_job = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("p_raw")
        found = with_job.execute_in_process(
            instance=instance, run_config=request.run_config, tags={**request.tags, "cdc/pipeline": "p"}
        )
        assert found.success

    run(request)
    assert "nothing new: all 1 files" in _reason(_tick(source, instance, lake))
    folder(place, {"b.jsonl": line("{}", offset=2)})
    second = _request(_tick(source, instance, lake))
    assert second.run_key != request.run_key
    run(second)
    assert "nothing new: all 2 files" in _reason(_tick(source, instance, lake))


def test_deleted_files_are_not_new_records(instance: DagsterInstance, tmp_path: Path) -> None:
    """The listing differs from the lake permanently, so a successful run of it is not repeated."""
    source, lake = _Source(NewRecords("new files", "one", "one", 1)), _lake(tmp_path)
    request = _request(_tick(source, instance, lake))
    assert [found and found["listing"] for found in source.notes] == ["of two files"]
    run_id = _run(instance, DagsterRunStatus.SUCCESS, request.tags)
    assert _reason(_tick(source, instance, lake)) == f"no new records: run {run_id} ingested this range"


def test_missing_folder_fails_the_tick(instance: DagsterInstance, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="does not exist"):
        _tick(_component(tmp_path).pipeline.source, instance)
