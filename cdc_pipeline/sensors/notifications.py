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
from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

from cdc_pipeline.assets.keys import CUTS, table_key
from cdc_pipeline.checks.ddl_applied import DDL_APPLIED, NO_GAPS
from cdc_pipeline.checks.freshness import FRESH
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
    from collections.abc import Sequence

    from dagster import DagsterInstance

    from cdc_pipeline.checks.freshness import FreshnessLimits
    from cdc_pipeline.pipeline import Pipeline
    from cdc_pipeline.sensors.delivery import Channel

_INTERVAL_SECONDS = 30
_MOST_RECORDS = 100
"""Most materializations, ends of runs and evaluations of a check per tick. Of the evaluations, the newest are read."""
_FEW = 10
_DONE = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}


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
        items: list[Item] = []
        observations: list[Observation] = []
        checks = {}
        for key in self.checks:
            name = f"{key.asset_key.path[-1]}:{key.name}"
            last = before.checks.get(name)
            records = self._evaluations(key, last)
            if records:
                checks[name] = records[-1][0]
                results = [result for _, result in records]
                if key.name in STATE_CHECKS:
                    items += self._state_changes(key, last, results[-1])
                elif key.name not in (FRESH, DDL_APPLIED):
                    observations += [check_observation(name, result) for result in results]
            elif last is not None:
                checks[name] = last
        cut, statements = self._statements(before.cut)
        failures, failed = self._ended_runs(dg.DagsterEventType.RUN_FAILURE, before.failures)
        successes, succeeded = self._ended_runs(dg.DagsterEventType.RUN_SUCCESS, before.successes)
        observations += sorted([*failed, *succeeded], key=lambda seen: seen.time)
        if self.limits.declared:
            observations += self._lag()
        known = {key: found for key, found in before.failing.items() if key != LAG or self.limits.declared}
        failing, changed = follow(known, observations, self.now)
        state = replace(before, checks=checks, cut=cut, failures=failures, successes=successes, failing=failing)
        return state, [*statements, *items, *changed]

    # ---- checks

    def _evaluations(self, key: dg.AssetCheckKey, last: int | None) -> list[tuple[int, Evaluation]]:
        """Ids and results of the evaluations after `last`, oldest first. The newest one if `last` is None."""
        found: list[tuple[int, Evaluation]] = []
        limit, cursor = 1 if last is None else _FEW, None
        while len(found) < _MOST_RECORDS:
            records = self.instance.event_log_storage.get_asset_check_execution_history(
                key, limit=limit, cursor=cursor, status=_DONE
            )
            new = [record for record in records if last is None or record.id > last]
            for record in new:
                if (result := evaluation(key, record.event)) is not None:
                    found.append((record.id, result))
            if last is None or len(new) < limit:
                break
            cursor = new[-1].id
        return found[::-1]

    def _state_changes(self, key: dg.AssetCheckKey, last: int | None, newest: Evaluation) -> list[Item]:
        """What began and ended since the evaluation `last`. Without one, everything that the newest reports began."""
        before = None
        if last is not None:
            records = self.instance.event_log_storage.get_asset_check_execution_history(
                key, limit=1, cursor=last + 1, status=_DONE
            )
            before = evaluation(key, records[0].event) if records else None
        items = compare(before, newest)
        held = any(item.event == "ddl_held" and item.state == "began" for item in items)
        return [self._with_statement(item) for item in items] if held and key.name == NO_GAPS else items

    def _with_statement(self, item: Item) -> Item:
        """The item with the held statement, which the newest result of the check `ddl_applied` lists by position."""
        key = dg.AssetCheckKey(table_key(self.pipeline.name, CUTS), DDL_APPLIED)
        for _, result in self._evaluations(key, None):
            for position, statement in result.entries.items():
                if item.event == "ddl_held" and item.line.endswith(f" {position}"):
                    return replace(item, line=f"{item.line}: {without_literals(statement)}")
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
