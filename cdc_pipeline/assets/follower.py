"""The job `<pipeline>_follow`, its loop, and when the run ends."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it decorates.
import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import dagster as dg
from dagster import RunsFilter

from cdc_pipeline.assets.asset_events import AssetEvents, StageResult
from cdc_pipeline.assets.decoded import decode_results
from cdc_pipeline.assets.failures import translate_errors
from cdc_pipeline.assets.jobs import one_step_job
from cdc_pipeline.assets.mirrors import cut_results, events_of
from cdc_pipeline.assets.nodes import CUTS, table_key
from cdc_pipeline.assets.opened_lake import open_lake
from cdc_pipeline.assets.raw import OBSERVED_SECONDS, due_observations, ingest_results
from cdc_pipeline.catalogs.updates import CatalogUpdates
from cdc_pipeline.checks.cuts import attempt_result
from cdc_pipeline.checks.streams import NO_LIMITS, FreshnessLimits
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.pipeline import PIPELINE_TAG, Pipeline
from cdc_pipeline.sources.raw_batches import newest_note
from cdc_pipeline.sources.source import NewRecords, RunContext

_PACKAGE = Path(__file__).parents[1]
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Dagster cancels a run with SIGINT, systemd and Kubernetes with SIGTERM."""
MOST_ATTEMPTS = 8
"""Failed attempts in a row after which the run fails, so that alerts on failed runs fire. Their pauses take six minutes."""
NEW_CODE = "its code or its declaration has changed"
"""The end of a run that its process must not follow by another one: it has the old code and declaration."""
_FIRST_RETRY_SECONDS, _LONGEST_RETRY_SECONDS = 5.0, 120.0
_DESCRIPTION = """Ingests new records, decodes them and advances the mirrors, batch after batch in one Spark session. Each
batch reports what a run of the ingest job reports. Ends after `follow.maximum_minutes`, without new records for
`follow.idle_minutes`, for new code, and for a run of the pipeline that waits."""


@dataclass(frozen=True)
class FollowLimits:
    """How long a run follows its source, and how often it looks for new records."""

    maximum_seconds: float = 18_000.0
    """The run ends after the batch that passes this time. The sensor requests the next one."""
    idle_seconds: float = 600.0
    """The run ends when the source had no new records for this time."""
    minimum_pause_seconds: float = 0.5
    """Least time between two batches, and between two looks at the source. Other runs take the writer lock in it."""
    minimum_records: int = 1
    maximum_wait_seconds: float = 300.0
    """Records that wait for this time start a batch even if they are fewer than `minimum_records`."""


def code_states(declaration: Path | None = None) -> dict[Path, tuple[int, int]]:
    """Size and modification time of the files of the package and of `declaration`. A new image of a container is not
    detected: it has files of its own."""
    states = {}
    for path in (*_PACKAGE.rglob("*.py"), *([declaration] if declaration else [])):
        with contextlib.suppress(OSError):  # the file is replaced meanwhile
            state = path.stat()
            states[path] = state.st_size, state.st_mtime_ns
    return states


@dataclass
class Follower:
    """Runs batch after batch in one Spark session, until a limit, a waiting run or new code ends it."""

    context: dg.OpExecutionContext
    pipeline: Pipeline
    events: AssetEvents
    freshness: FreshnessLimits
    limits: FollowLimits
    has_new_code: Callable[[], bool]
    batches: int = 0
    """Number of batches so far."""
    end: str = ""
    """Why the run ended; empty before."""
    _started: float = 0.0
    _newest_news: float = 0.0
    _observe_at: float = 0.0
    _recent: RecentAnswers = field(default_factory=RecentAnswers)
    _names: CatalogUpdates = field(init=False)
    _positions: Mapping[str, Any] | None = None
    """Next offsets of the source after the newest batch, for a lake whose commit notes cannot be read without Spark."""
    _ingested_range: str = ""
    """The newest range for which a batch was due."""
    _waiting: tuple[str, float] | None = None
    """The start of the records that wait for `minimum_records`, and since when."""

    def __post_init__(self) -> None:
        self._names = CatalogUpdates(self.pipeline.catalog, self.context.log.warning)

    def follow(self) -> None:
        """Runs and reports batches until a reason to end. Raises `dg.Failure` for an error that needs someone to act."""
        # The first batch needs no new records, and no reason to end comes before it: an earlier run may have ended between
        # its stages, and the sensor takes the success of this one for the end of that work.
        is_due, attempts = True, 0
        self._started = self._newest_news = time.monotonic()
        while is_due or not (end := self._reason_to_end()):
            pause = self.limits.minimum_pause_seconds
            try:
                is_due = is_due or self._has_new_records()
                if is_due:
                    self._batch()
                    is_due, attempts, self._newest_news = False, 0, time.monotonic()
                elif self._names.is_due:
                    self._catch_up()
            except dg.RetryRequested as error:
                is_due, attempts = True, attempts + 1
                failure = str(error.__cause__ or error)
                if attempts >= MOST_ATTEMPTS or self._reason_to_give_way():
                    raise dg.Failure(f"{attempts} attempts failed in a row: {failure}", allow_retries=False) from error
                pause = min(_FIRST_RETRY_SECONDS * 2 ** (attempts - 1), _LONGEST_RETRY_SECONDS)
                failure = f"attempt {attempts} failed, the next one follows in {pause:.0f} s: {failure}"
                self.context.log.warning(failure)
                self.events.report(self.context, attempt_result(table_key(self.pipeline, CUTS), failure, attempts))
            time.sleep(pause)
        self.end = end
        self.context.log.info(f"ends after {self.batches} batches: {end}")

    def _batch(self) -> None:
        """One pass through all stages. A failed blocking check ends the run before the next stage."""
        run = RunContext(self.context.run.run_id, self.context.log.info)
        with open_lake(self.context, self.pipeline) as lake:
            with deferred_interrupts():
                intake, ingested = ingest_results(self.pipeline, lake, run)
            self._positions = dict(intake.positions) or None
            self._report(ingested)
            with deferred_interrupts():
                decoded = decode_results(self.pipeline, lake, run.report, self._recent, intake.notes)
            self._report(decoded)
            with deferred_interrupts():
                cut = cut_results(
                    self.pipeline, lake, run, self.context.instance, self.freshness, self._recent, self._names
                )
            self._report(cut)
        self.batches += 1
        return_free_memory()

    def _catch_up(self) -> None:
        """Reconciles the catalog with the last cut of a batch, after which no new records came."""
        with open_lake(self.context, self.pipeline) as lake, deferred_interrupts():
            self._names.catch_up(lake)

    def _report(self, stage: Sequence[StageResult]) -> None:
        results: list[StageResult] = [*self.pipeline.execute(self.context, stage)]
        for result in results:
            self.events.report(self.context, result)
        if failed := self.events.failed_blocking_checks(results):
            raise dg.Failure(
                f"blocking checks failed: {', '.join(failed)}. The stages after them were not run", allow_retries=False
            )

    def _has_new_records(self) -> bool:
        """Whether the source has enough new records for a batch. Starts no Spark job."""
        note = newest_note(self.pipeline.paths) if self.pipeline.paths.has_files else self._positions
        with translate_errors(self.pipeline.source.secrets):
            found = self.pipeline.source.find_new_records(note)
        if time.monotonic() >= self._observe_at:
            self._observe_at = time.monotonic() + OBSERVED_SECONDS
            for observation in due_observations(self.pipeline, self.context.instance, found):
                self.events.report(self.context, observation)
        if not isinstance(found, NewRecords) or found.range_id == self._ingested_range:
            return False
        now = self._newest_news = time.monotonic()
        if self._waiting is None or self._waiting[0] != found.start_id:
            self._waiting = found.start_id, now
        if found.records < self.limits.minimum_records and now - self._waiting[1] < self.limits.maximum_wait_seconds:
            return False
        self._ingested_range = found.range_id
        return True

    def _reason_to_end(self) -> str:
        """Why no further batch follows; empty if one does."""
        idle = time.monotonic() - self._newest_news
        if idle >= self.limits.idle_seconds:
            return f"no new records for {idle:.0f} s (follow.idle_minutes)"
        return self._reason_to_give_way()

    def _reason_to_give_way(self) -> str:
        """Why another run should follow in place of this one; empty if none should."""
        seconds = time.monotonic() - self._started
        if seconds >= self.limits.maximum_seconds:
            return f"it has run for {seconds:.0f} s (follow.maximum_minutes)"
        if self.has_new_code():
            return NEW_CODE
        waiting = self.context.instance.get_runs(
            RunsFilter(tags={PIPELINE_TAG: self.pipeline.name}, statuses=[dg.DagsterRunStatus.QUEUED]), limit=1
        )
        return f"run {waiting[0].run_id} of {waiting[0].job_name} waits for it" if waiting else ""


def return_free_memory() -> None:
    """Returns the free pages of the C heap to the system. Does nothing without glibc.

    The threads of a batch allocate in heaps of their own, and glibc keeps what they free: 0.3 MB more after each batch, for
    hours. It takes a few ms.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextlib.contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Lets a stage finish before the cancellation of a run takes effect: handles the first interrupt within the block at its
    end, and any further one at once.

    Python handles signals in the main thread only, so the block is not protected in other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}
    received: list[int] = []

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def defer(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        restore()

    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        restore()
        for number in received:
            signal.raise_signal(number)


def follow_job(
    pipeline: Pipeline,
    assets: Sequence[dg.AssetsDefinition],
    limits: FollowLimits,
    freshness: FreshnessLimits = NO_LIMITS,
    declaration: Path | None = None,
) -> dg.JobDefinition:
    """The job of a pipeline. `assets`: what its batches materialize; `declaration`: its YAML file, if it has one."""
    # what this process has loaded: a file that changes before the first batch counts too
    loaded = code_states(declaration)

    def follow_source(context: dg.OpExecutionContext) -> dg.Output[None]:
        events = events_of(context.instance, pipeline, *assets)
        follower = Follower(context, pipeline, events, freshness, limits, lambda: code_states(declaration) != loaded)
        follower.follow()
        return dg.Output(None, metadata={"batches": follower.batches, "end": follower.end})

    return one_step_job(pipeline, "follow", _DESCRIPTION, follow_source, pipeline.tags_of_run(limits.maximum_seconds))
