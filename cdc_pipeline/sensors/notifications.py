"""The sensor `<pipeline>_notify`: sends alerts to webhooks and by e-mail.

It reads check results, materializations and ends of runs from Dagster's storage, without Spark, and compares them with its
cursor (`notify_state.py`). It runs beside the runs, so that a channel that does not answer delays none of them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster import DefaultSensorStatus, RunsFilter
from dagster._core.storage.event_log import SqlEventLogStorage, SqliteEventLogStorage

from cdc_pipeline.assets.keys import CUTS, table_key
from cdc_pipeline.checks.ddl_applied import DDL_APPLIED, HELD_SUFFIX
from cdc_pipeline.checks.freshness import FRESH
from cdc_pipeline.checks.rotation import EVALUATED
from cdc_pipeline.mysql.ddl.shown_statement import without_literals
from cdc_pipeline.pipeline import PIPELINE_TAG
from cdc_pipeline.sensors.alerts import (
    EVENTS,
    STATE_CHECKS,
    Evaluation,
    Item,
    Observation,
    compare,
    follow,
    to_alerts,
)
from cdc_pipeline.sensors.delivery import deliver
from cdc_pipeline.sensors.notify_state import NotifyState
from cdc_pipeline.sensors.observed_events import (
    LAG,
    asset_place,
    check_observation,
    ddl_items,
    evaluation,
    lag_observation,
    run_observation,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dagster import DagsterInstance, EventLogEntry, EventLogRecord

    from cdc_pipeline.checks.freshness import FreshnessLimits
    from cdc_pipeline.pipeline import Pipeline
    from cdc_pipeline.sensors.delivery import Channel

_INTERVAL_SECONDS = 30
_MOST_RECORDS = 100
"""Most materializations and ends of runs per tick."""
_PAGE, _MOST_PAGES = 500, 20
"""Results of checks per page, and most pages that a tick reads. The next tick reads the others."""


@dataclass(frozen=True)
class NotifyRules:
    """What is sent, and where."""

    channels: tuple[Channel, ...]
    events: tuple[str, ...] = EVENTS
    ui_url: str = ""
    """Address of Dagster's UI without a slash at its end."""


def notify_sensor(
    pipeline: Pipeline, checks: Sequence[dg.AssetCheckKey], limits: FreshnessLimits, rules: NotifyRules
) -> dg.SensorDefinition:
    """The sensor of a pipeline. `checks`: all of its checks; `limits`: of the lag."""

    @dg.sensor(
        name=f"{pipeline.name}_notify",
        minimum_interval_seconds=_INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Sends alerts ({', '.join(rules.events)}) to {', '.join(channel.name for channel in rules.channels)}.",
    )
    def notify(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        tick = _Tick(pipeline, tuple(checks), limits, rules, context.instance, time.time())
        summary, problems, state = tick.evaluate(NotifyState.parse(context.cursor))
        for problem in problems:
            context.log.warning(problem)
        return dg.SensorResult(skip_reason="; ".join([summary, *problems]), cursor=state.to_cursor())

    return notify


@dataclass(frozen=True)
class _Tick:
    """One evaluation of the sensor."""

    pipeline: Pipeline
    checks: tuple[dg.AssetCheckKey, ...]
    limits: FreshnessLimits
    rules: NotifyRules
    instance: DagsterInstance
    now: float
    """Seconds since 1970."""

    def evaluate(self, before: NotifyState) -> tuple[str, list[str], NotifyState]:
        """Sends what is due. Returns what was sent, a line per channel that does not take messages, and the next state."""
        state, items = self._read(before)
        channels = tuple(channel.name for channel in self.rules.channels)
        state = state.with_alerts(to_alerts(self.pipeline.name, items, self.rules.events), channels)
        if not state.waiting:
            return "nothing to report", [], state
        delivered = deliver(self.rules.channels, state, self.rules.ui_url)
        after = state.after_delivery({name: frozenset(found.sent) for name, found in delivered.items()})
        counts = {name: sum(name in kept.channels for kept in after.waiting) for name in channels}
        problems = [
            f"{name}: {found.error}; {counts[name]} alerts wait, {after.dropped.get(name, 0)} were dropped"
            for name, found in delivered.items()
            if found.error
        ]
        summary = ", ".join(f"{name} {len(found.sent)}" for name, found in delivered.items())
        return f"sent alerts: {summary}", problems, after

    def _read(self, before: NotifyState) -> tuple[NotifyState, list[Item]]:
        """The state with everything that is new since `before`, and what it means."""
        evaluated, results, observations = self._results(before.evaluated)
        names = {_name(key) for key in self.checks}
        conditions = {name: known for name, known in before.conditions.items() if name in names}
        items: list[Item] = []
        for name, result in results.items():
            conditions[name], changes = compare(conditions.get(name, {}), result)
            items += map(self._with_statement, changes)
        cut, statements = self._statements(before.cut)
        failures, failed = self._ended_runs(dg.DagsterEventType.RUN_FAILURE, before.failures)
        successes, succeeded = self._ended_runs(dg.DagsterEventType.RUN_SUCCESS, before.successes)
        observations += sorted([*failed, *succeeded], key=lambda seen: seen.time)
        if self.limits.declared:
            observations += self._lag()
        known = {key: found for key, found in before.failing.items() if key != LAG or self.limits.declared}
        failing, changed = follow(known, observations, self.now)
        state = replace(
            before,
            evaluated=evaluated,
            conditions={name: known for name, known in conditions.items() if known},
            cut=cut,
            failures=failures,
            successes=successes,
            failing=failing,
        )
        return state, [*statements, *items, *changed]

    # ---- checks

    def _results(self, last: int | None) -> tuple[int, dict[str, Evaluation], list[Observation]]:
        """What is new after the event `last`: the id of the newest event that was read, the newest result of each check of
        the lake's state, and the results of all other checks."""
        read, state, observations = last or 0, {}, []
        for read, events in self._pages(last):  # noqa: B007  # the newest
            for event in events:
                key, result = evaluation(event)
                if key not in self.checks or key.name in (FRESH, DDL_APPLIED):
                    continue
                if key.name in STATE_CHECKS:
                    state[_name(key)] = result
                else:
                    observations.append(check_observation(_name(key), result))
        return read, state, observations

    def _pages(self, last: int | None) -> Iterator[tuple[int, list[EventLogEntry]]]:
        """Results of checks after the event `last`, oldest first. Without one, the newest result of each check.

        A run has one row per check, which each batch of the run overwrites. So new results are read from the events.
        """
        if last is None:
            newest = self._evaluations(None, 1, ascending=False)
            found = [self._newest(key) for key in self.checks]
            yield newest[0].storage_id if newest else 0, [event for event in found if event is not None]
            return
        for _ in range(_MOST_PAGES):
            records = self._evaluations(last, _PAGE, ascending=True)
            if records:
                last = records[-1].storage_id
                yield last, [record.event_log_entry for record in records]
            if len(records) < _PAGE:
                return

    def _evaluations(self, last: int | None, limit: int, *, ascending: bool) -> Sequence[EventLogRecord]:
        storage = self.instance.event_log_storage
        wanted = dg.EventRecordsFilter(dg.DagsterEventType.ASSET_CHECK_EVALUATION, after_cursor=last)
        if isinstance(storage, SqliteEventLogStorage):
            # its own method reads the file of each run, where ids start again; its index has the events of all runs
            return SqlEventLogStorage.get_event_records(storage, wanted, limit, ascending)
        return storage.get_event_records(wanted, limit, ascending)

    def _newest(self, key: dg.AssetCheckKey) -> EventLogEntry | None:
        storage = self.instance.event_log_storage
        records = storage.get_asset_check_execution_history(key, limit=1, status=EVALUATED)
        return records[0].event if records else None

    def _with_statement(self, item: Item) -> Item:
        """A held table with its statement, which the newest result of the check `ddl_applied` lists by position."""
        if (item.event, item.state) != ("ddl_held", "began"):
            return item
        key = dg.AssetCheckKey(table_key(self.pipeline.name, CUTS), DDL_APPLIED)
        event = self._newest(key)
        for position, statement in ({} if event is None else evaluation(event)[1].entries).items():
            if item.line.endswith(f" {position}"):
                table = item.line.partition(": held")[0]
                shown = without_literals(statement.removesuffix(HELD_SUFFIX))
                return replace(item, line=f"{table}: {shown} at {position} waits for approval (ddl_policy: hold)")
        return item

    # ---- cuts and runs

    def _statements(self, last: int | None) -> tuple[int, list[Item]]:
        """The newest materialization of `consistent_cuts`, and the DDL of those after `last`."""
        key = table_key(self.pipeline.name, CUTS)
        if last is None:
            newest = self.instance.fetch_materializations(key, limit=1).records
            return (newest[0].storage_id if newest else 0), []
        new = dg.AssetRecordsFilter(key, after_storage_id=last)
        records = self.instance.fetch_materializations(new, limit=_MOST_RECORDS, ascending=True).records
        items = [item for record in records for item in ddl_items(asset_place(key), record)]
        return (records[-1].storage_id if records else last), items

    def _lag(self) -> list[Observation]:
        key = table_key(self.pipeline.name, CUTS)
        event = self.instance.get_latest_materialization_event(key)
        seen = None if event is None else lag_observation(key, event, self.limits, self.now)
        return [] if seen is None else [seen]

    def _ended_runs(self, kind: Any, last: int | None) -> tuple[int, list[Observation]]:
        """The storage id of the newest run of the instance that ended like this, and the pipeline's runs after `last`."""
        if last is None:
            newest = self.instance.fetch_run_status_changes(kind, limit=1).records
            return (newest[0].storage_id if newest else 0), []
        new = dg.RunStatusChangeRecordsFilter(kind, after_storage_id=last)
        records = self.instance.fetch_run_status_changes(new, limit=_MOST_RECORDS, ascending=True).records
        if not records:
            return last, []
        ids = [record.run_id for record in records]
        own = self.instance.get_runs(RunsFilter(run_ids=ids, tags={PIPELINE_TAG: self.pipeline.name}))
        jobs = {run.run_id: run.job_name for run in own}
        failed = kind == dg.DagsterEventType.RUN_FAILURE
        observed = [run_observation(jobs[record.run_id], record, failed) for record in records if record.run_id in jobs]
        return records[-1].storage_id, observed


def _name(key: dg.AssetCheckKey) -> str:
    return f"{key.asset_key.path[-1]}:{key.name}"
