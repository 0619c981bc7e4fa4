"""The loop of `<pipeline>_follow`: when a batch is due, when the run ends, and what failed attempts do. Without Spark."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from benchmarks.processes import resident_bytes
from cdc_pipeline.assets import follower as module
from cdc_pipeline.assets.asset_events import AssetEvents, StageResult
from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.assets.follower import MOST_ATTEMPTS, Follower, FollowLimits, return_free_memory
from cdc_pipeline.checks.streams import NO_LIMITS
from cdc_pipeline.errors import TerminalError, TransientError
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.source import NewRecords, NoNewRecords

_MEBIBYTE = 1 << 20
_CUTS = dg.AssetKey(["p", "consistent_cuts"])
_BALANCE = dg.AssetCheckSpec("balance", asset=dg.AssetKey(["p", "change_log"]), blocking=True)


class _Clock:
    """Time that passes only in `sleep`."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@dataclass
class _Source:
    """A source whose positions are numbers: `end` grows by the test, `done` by batches."""

    clock: _Clock
    arrivals: list[tuple[float, int]]
    """(time, number of records): what arrives when."""
    done: int = 0
    errors: list[Exception] = field(default_factory=list)
    notes: list[Mapping[str, Any] | None] = field(default_factory=list)
    secrets: tuple[str, ...] = ()
    location: str = "a broker"
    inputs: tuple[str, ...] = ("t",)
    kinds: frozenset[str] = frozenset()

    @property
    def end(self) -> int:
        return sum(records for at, records in self.arrivals if at <= self.clock.now)

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        self.notes.append(note)
        if self.errors:
            raise self.errors.pop(0)
        if self.end == self.done:
            return NoNewRecords("nothing new")
        return NewRecords("new", f"from {self.done}", f"{self.done} to {self.end}", self.end - self.done)

    def ingest(self, *_: object) -> Any:
        raise AssertionError


@dataclass
class _Stages:
    """Stands in for the three stages and the lake."""

    source: _Source
    errors: list[Exception | None] = field(default_factory=list)
    """Error of each batch in turn."""
    calls: list[str] = field(default_factory=list)
    balanced: bool = True
    seconds: float = 0
    """Duration of each batch."""

    @property
    def batches(self) -> int:
        return self.calls.count("cut")

    def ingest(self, *_: object) -> Any:
        self.calls.append("raw")
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error
        self.source.done = self.source.end
        return SimpleNamespace(positions={"t": self.source.done}, notes={}), []

    def decode(self, *_: object) -> list[Any]:
        self.calls.append("decode")
        return [dg.AssetCheckResult(check_name="balance", asset_key=_BALANCE.asset_key, passed=self.balanced)]

    def cut(self, *_: object) -> list[Any]:
        self.calls.append("cut")
        self.source.clock.now += self.seconds
        version = dg.DataVersion(str(self.batches))
        return [dg.MaterializeResult(asset_key=_CUTS, data_version=version, metadata={"records": self.source.done})]


@dataclass
class _Following:
    """A follower of a source, with all its surroundings replaced."""

    clock: _Clock
    source: _Source
    stages: _Stages
    instance: dg.DagsterInstance
    lake: str
    code: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(has_changed=False))
    events: list[Any] = field(default_factory=list)
    execute: Any = field(default_factory=lambda: lambda _, results: results)

    def follow(self, **limits: float) -> Follower:
        context: Any = SimpleNamespace(
            instance=self.instance, log=logging.getLogger("follow"), run=SimpleNamespace(run_id="own")
        )
        reported = self.events

        class Reporter(AssetEvents):
            def report(self, _: dg.OpExecutionContext, result: StageResult | dg.AssetObservation) -> None:
                reported.append(self.convert(result))

        self.made = Follower(
            context,
            Pipeline("p", self.source, self.lake, execute=self.execute),
            Reporter(self.instance, {}, (), {_BALANCE.key}),
            NO_LIMITS,
            FollowLimits(**limits),  # type: ignore[arg-type]
            lambda: self.code.has_changed,
        )
        self.made.follow()
        return self.made


@pytest.fixture
def following(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[_Following]:
    clock = _Clock()
    source = _Source(clock, [(0, 10)])
    stages = _Stages(source)
    # only of the follower: threads of other tests sleep too
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=clock.sleep, monotonic=lambda: clock.now))
    monkeypatch.setattr(module, "ingest_results", stages.ingest)
    monkeypatch.setattr(module, "decode_results", stages.decode)
    monkeypatch.setattr(module, "cut_results", stages.cut)

    @contextlib.contextmanager
    def open_lake(*_: object, **__: object) -> Iterator[None]:
        with translate_errors():
            yield

    monkeypatch.setattr(module, "open_lake", open_lake)
    with dg.DagsterInstance.ephemeral() as instance:
        yield _Following(clock, source, stages, instance, str(tmp_path))


def test_batches_follow_new_records_until_none_arrive(following: _Following) -> None:
    following.source.arrivals += [(1030, 5), (1031, 5), (1090, 1)]
    found = following.follow(idle_seconds=60)
    assert following.stages.calls == ["raw", "decode", "cut"] * 4
    assert [event.metadata["records"].value for event in following.events if event.asset_key == _CUTS] == [
        10,
        15,
        20,
        21,
    ]
    assert found.batches == 4
    assert "no new records for 60 s" in found.end
    assert set(following.clock.pauses) == {0.5}


def test_the_source_is_observed_rarely(following: _Following, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the first look, and when the time is over."""
    looks: list[float] = []

    def due_observations(*_: object) -> list[dg.AssetObservation]:
        looks.append(following.clock.now)
        return [dg.AssetObservation(["p", "source", "t"])]

    monkeypatch.setattr(module, "due_observations", due_observations)
    following.follow(idle_seconds=1500)
    first, second, third = looks
    assert 600 <= second - first < 610
    assert 600 <= third - second < 610
    assert sum(isinstance(event, dg.AssetObservation) for event in following.events) == 3


def test_a_subclass_sees_the_results_of_each_batch(following: _Following) -> None:
    following.source.arrivals += [(1030, 5)]
    following.execute = lambda _, results: [
        result._replace(metadata={"seen": 1}) if isinstance(result, dg.MaterializeResult) else result
        for result in results
    ]
    following.follow(idle_seconds=60)
    assert [list(event.metadata) for event in following.events if event.asset_key == _CUTS] == [["seen"], ["seen"]]


def test_the_duration_of_a_batch_is_no_idle_time(following: _Following) -> None:
    following.stages.seconds = 100
    following.source.arrivals += [(1050, 1), (1210, 1)]
    assert following.follow(idle_seconds=60).batches == 3


def test_first_batch_needs_no_new_records(following: _Following) -> None:
    """The run before may have ended after it ingested, before it advanced the mirrors."""
    following.source.done = 10
    following.follow(idle_seconds=5)
    assert following.stages.calls == ["raw", "decode", "cut"]


def test_the_catalog_gets_the_last_cut_when_no_more_records_come(
    following: _Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, caught_up = 1020.0, list[float]()

    class Updates:
        def __init__(self, *_: object) -> None: ...

        @property
        def is_due(self) -> bool:
            return following.clock.now >= due and not caught_up

        def catch_up(self, _: object) -> None:
            caught_up.append(following.clock.now)

    monkeypatch.setattr(module, "CatalogUpdates", Updates)
    found = following.follow(idle_seconds=60)
    assert (caught_up, found.batches) == ([due], 1)


@pytest.mark.parametrize("end", ["maximum", "code", "waiting run"])
def test_what_ends_a_run_between_batches(following: _Following, end: str) -> None:
    following.source.arrivals += [(1000 + second, 1) for second in range(100)]
    cut, waiting = following.stages.cut, list[Any]()

    def get_runs(filters: dg.RunsFilter, limit: int) -> list[Any]:
        assert (filters.tags, filters.statuses) == ({"cdc/pipeline": "p"}, [dg.DagsterRunStatus.QUEUED])
        return waiting[:limit]

    def cut_with_end(*arguments: object) -> list[Any]:
        if following.stages.batches == 9:
            following.code.has_changed = end == "code"
            if end == "waiting run":
                waiting.append(SimpleNamespace(run_id="r", job_name="p_rebuild"))
        return cut(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "cut_results", cut_with_end)
        patch.setattr(following.instance, "get_runs", get_runs)
        found = following.follow(maximum_seconds=10 if end == "maximum" else 1000)
    assert found.batches == 10
    assert {"maximum": "it has run for 10 s", "code": "has changed", "waiting run": "of p_rebuild waits"}[
        end
    ] in found.end


def test_no_reason_to_end_comes_before_the_first_batch(following: _Following) -> None:
    """The sensor takes the success of a run for the success of the work that it was requested for."""
    following.code.has_changed = True
    assert following.follow().batches == 1


def test_few_records_wait_for_more_or_for_the_longest_wait(following: _Following) -> None:
    following.source.arrivals += [(1005, 1), (1020, 8), (1050, 1)]
    following.follow(minimum_records=9, maximum_wait_seconds=30, idle_seconds=50, minimum_pause_seconds=5)
    ended = [event.metadata["records"].value for event in following.events if event.asset_key == _CUTS]
    assert ended == [10, 19, 20]
    # the ninth record arrives at 1020; the single one of 1050 is taken at 1080; the run ends 50 s later
    assert following.clock.now == 1130


def test_attempts_after_transient_errors_have_growing_pauses_and_a_warning(following: _Following) -> None:
    following.stages.errors = [None, *[TransientError("the broker is away")] * 3]
    following.source.arrivals += [(1002, 1)]
    found = following.follow(idle_seconds=10)
    warnings = [event for event in following.events if isinstance(event, dg.AssetCheckEvaluation)]
    warnings = [event for event in warnings if event.check_name == "no_failed_attempts"]
    assert [event.metadata["failed_attempts"].value for event in warnings] == [1, 2, 3]
    assert {(event.passed, event.severity) for event in warnings} == {(False, dg.AssetCheckSeverity.WARN)}
    assert warnings[1].description == "`attempt 2 failed, the next one follows in 10 s: the broker is away`"
    assert [pause for pause in following.clock.pauses if pause > 1] == [5, 10, 20]
    assert found.batches == 2


def test_a_broker_that_does_not_answer_a_poll_counts_as_a_failed_attempt(following: _Following) -> None:
    following.source.errors = [TransientError("no broker answers")] * 2
    found = following.follow(idle_seconds=30)
    # the attempts are batches: they need no poll
    assert found.batches == 3
    assert following.clock.pauses.count(5.0) == 2


def test_run_fails_after_the_last_attempt(following: _Following) -> None:
    following.stages.errors = [TransientError("the disk is full")] * 100
    with pytest.raises(dg.Failure, match=f"{MOST_ATTEMPTS} attempts failed in a row: the disk is full"):
        following.follow()
    assert following.stages.calls == ["raw"] * MOST_ATTEMPTS
    assert following.clock.pauses == [5, 10, 20, 40, 80, 120, 120]


def test_failing_attempts_hold_up_nobody(following: _Following) -> None:
    """The run fails, so that the sensor requests the next one."""
    following.stages.errors = [TransientError("the disk is full")] * 100
    with pytest.raises(dg.Failure, match="3 attempts failed in a row: the disk is full"):
        following.follow(maximum_seconds=15)


def test_run_fails_at_once_for_an_error_that_needs_someone_to_act(following: _Following) -> None:
    following.stages.errors = [TerminalError("no such topic")]
    with pytest.raises(dg.Failure, match="no such topic"):
        following.follow()
    assert following.stages.calls == ["raw"]


def test_a_failed_blocking_check_stops_before_the_next_stage(following: _Following) -> None:
    following.stages.balanced = False
    with pytest.raises(dg.Failure, match="blocking checks failed: p/change_log:balance"):
        following.follow()
    assert following.stages.calls == ["raw", "decode"]
    (evaluation,) = following.events
    assert (evaluation.check_name, evaluation.passed, evaluation.blocking) == ("balance", False, True)


def test_positions_of_a_lake_that_is_not_local_come_from_the_batch_before(following: _Following) -> None:
    following.lake = "hdfs://host/lake"
    following.source.arrivals += [(1003, 7)]
    following.follow(idle_seconds=10)
    assert following.source.notes[0] == {"t": 10}
    assert following.source.notes[-1] == {"t": 17}


def test_a_source_that_always_reports_the_same_range_is_read_once(following: _Following) -> None:
    """A folder of files in a lake that is not local: its progress cannot be seen without Spark."""
    following.source.done = -1  # differs from the end before and after each batch
    following.stages.ingest = lambda *_: (SimpleNamespace(positions={}, notes={}), [])  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "ingest_results", following.stages.ingest)
        found = following.follow(idle_seconds=10)
    assert found.batches == 2


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no malloc_trim")
def test_free_memory_is_returned_though_a_block_after_it_is_in_use() -> None:
    blocks = [bytes(64 * 1024) for _ in range(2000)]
    in_use = blocks[-1]
    del blocks
    held = resident_bytes([os.getpid()])
    return_free_memory()
    assert held - resident_bytes([os.getpid()]) > 80 * _MEBIBYTE
    assert len(in_use) == 64 * 1024


def test_nothing_happens_without_malloc_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ctypes", SimpleNamespace(CDLL=lambda _: SimpleNamespace()))
    return_free_memory()
