"""The sensor `<pipeline>_notify`: from events in Dagster's storage to messages at a webhook."""

from __future__ import annotations

import json
import logging
import re
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus

from cdc_pipeline.assets.metadata import MOST_STATEMENTS, statements_metadata
from cdc_pipeline.checks.ddl_applied import HELD_SUFFIX
from cdc_pipeline.checks.dead_letters import NO_DEAD_LETTERS
from cdc_pipeline.checks.freshness import NO_LIMITS, FreshnessLimits
from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.gaps import GapKind, statement_gap
from cdc_pipeline.mirrors.cuts.cut_ddl import reported_statements
from cdc_pipeline.mirrors.cuts.cut_report import ReportedStatement
from cdc_pipeline.mirrors.model.ddl_events import DdlEvent
from cdc_pipeline.mirrors.model.ddl_outcome import DdlOutcome
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.positions import Position
from cdc_pipeline.sensors import delivery, notifications
from cdc_pipeline.sensors.alerts import EVENTS, QUIET_SECONDS
from cdc_pipeline.sensors.delivery import JsonWebhook, SlackWebhook
from cdc_pipeline.sensors.notifications import NotifyRules, notify_sensor
from cdc_pipeline.sensors.notify_state import MOST_WAITING
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.kafka.secret_text import SecretText
from cdc_pipeline_tests.support.servers.webhook import HANGS, Webhook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cdc_pipeline.sensors.delivery import Channel

_CUTS, _LOG, _DEAD = (dg.AssetKey(["p", name]) for name in ("consistent_cuts", "change_log", "dead_letters"))
_CHECKS = [
    *(dg.AssetCheckKey(_CUTS, name) for name in ("no_gaps", "ddl_applied", "no_failed_attempts", "balance", "fresh")),
    dg.AssetCheckKey(_LOG, "balance"),
    dg.AssetCheckKey(_DEAD, NO_DEAD_LETTERS),
]


@pytest.fixture(params=["in memory", "files"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DagsterInstance]:
    """Dagster's storage in memory, and the one of `dagster.yaml`, which has a file per run."""
    files = request.param == "files"
    with DagsterInstance.local_temp(str(tmp_path)) if files else DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    monkeypatch.setattr(delivery, "ANSWER_SECONDS", 0.3)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Webhook() as found:
        yield found


class _Sensor:
    """The sensor with its cursor."""

    def __init__(
        self,
        instance: DagsterInstance,
        *webhooks: Webhook,
        limits: FreshnessLimits = NO_LIMITS,
        events: tuple[str, ...] = EVENTS,
        ui_url: str = "",
    ) -> None:
        kinds = (JsonWebhook, SlackWebhook)
        channels: tuple[Channel, ...] = tuple(
            kind(SecretText(found.url)) for kind, found in zip(kinds, webhooks, strict=False)
        )
        pipeline = Pipeline("p", CaptureFiles("captures"), "lake")
        self.sensor = notify_sensor(pipeline, _CHECKS, limits, NotifyRules(channels, events, ui_url))
        self.instance, self.webhook, self.cursor = instance, webhooks[0], ""

    def tick(self) -> str:
        """Evaluates the sensor. Returns what Dagster shows of the tick."""
        context = dg.build_sensor_context(instance=self.instance, cursor=self.cursor, sensor_name="p_notify")
        found = self.sensor(context)
        assert isinstance(found, dg.SensorResult)
        assert found.cursor is not None
        assert isinstance(found.skip_reason, dg.SkipReason)
        self.cursor = found.cursor
        return str(found.skip_reason.skip_message)

    def news(self) -> list[tuple[str, str, list[str]]]:
        """Evaluates the sensor. Returns event, state and lines of each new message."""
        before = len(self.webhook.received)
        self.tick()
        return [(found["event"], found["state"], found["lines"]) for found in self.webhook.received[before:]]


def _check(
    instance: DagsterInstance, asset: dg.AssetKey, name: str, entries: dict[str, Any] | None = None, text: str = "why"
) -> None:
    """Reports a result of a check, which passes without entries."""
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=asset,
            check_name=name,
            passed=not entries,
            metadata=entries or {},
            severity=dg.AssetCheckSeverity.WARN,
            description=text if entries else None,
        )
    )


def _cut(instance: DagsterInstance, *statements: ReportedStatement, **metadata: Any) -> None:
    entries = {**metadata, **statements_metadata(statements)}
    instance.report_runless_asset_event(dg.AssetMaterialization(_CUTS, metadata=entries))


def _at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Moves the clock of the sensor."""
    now = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: now)


# ---- checks


def test_gap_opens_and_closes(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook, ui_url="https://ui")
    assert sensor.tick() == "nothing to report"
    gap = str(statement_gap(GapKind.LATE_DDL, "DDL arrived late", Position("t", 0, 7)))
    for _ in range(3):  # in each batch
        _check(instance, _CUTS, "no_gaps", {"a.b": gap})
    assert sensor.news() == [("gap", "began", [f"a.b: {gap}"])]
    assert webhook.received[0]["url"] == "https://ui/assets/p/consistent_cuts?view=checks&checkDetail=no_gaps"
    _check(instance, _CUTS, "no_gaps", {"a.b": gap})
    assert sensor.news() == []
    _check(instance, _CUTS, "no_gaps")
    assert sensor.news() == [("gap", "ended", ["a.b"])]
    assert sensor.news() == []


def test_conditions_that_hold_at_the_first_tick_are_reported(instance: DagsterInstance, webhook: Webhook) -> None:
    _check(instance, _CUTS, "no_gaps", {"a.b": "x", "c.d": "y"})
    _check(instance, _DEAD, NO_DEAD_LETTERS, {"json_is_valid": "3, for example t/0@1"})
    _check(instance, _LOG, "balance", {"batch 1": "1 = 2"})
    _cut(instance, ReportedStatement("applied", (), "before the first tick", "", Position("t", 0, 1)))
    sensor = _Sensor(instance, webhook)
    assert sensor.news() == [
        ("gap", "began", ["a.b: x", "c.d: y"]),
        ("dead_letters", "began", ["json_is_valid: 3, for example t/0@1"]),
        ("check_failed", "began", ["balance: why"]),
    ]
    assert webhook.received[2]["place"] == "asset p/change_log, check balance"
    assert sensor.news() == []


def test_held_statement_is_shown_without_its_values(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    held = HeldTable(TableName("a", "b"), Position("t", 0, 7), 1)
    _check(instance, _CUTS, "no_gaps", {"a.b": str(held.gap)})
    _check(
        instance,
        _CUTS,
        "ddl_applied",
        {"t/0@70": "other", "t/0@7": f"ALTER TABLE b DROP c, ADD d TEXT DEFAULT 'x'{HELD_SUFFIX}"},
    )
    (found,) = sensor.news()
    assert found[:2] == ("ddl_held", "began")
    assert found[2][0] == (
        "a.b: ALTER TABLE b DROP c, ADD d TEXT DEFAULT '…' at t/0@7 waits for approval (ddl_policy: hold)"
    )
    assert "p_approve_ddl" in webhook.received[0]["text"]
    _check(instance, _CUTS, "no_gaps")
    assert [found[:2] for found in sensor.news()] == [("ddl_held", "ended")]


def test_quarantine(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    table = HeldTable(TableName("a", "b"), Position("", -1, -1), 1, error="ApplyRows of a.b failed 3 times; see x")
    _check(instance, _CUTS, "no_gaps", {"a.b": f"x; {table.gap}"})
    assert [found[:2] for found in sensor.news()] == [("quarantine", "began"), ("gap", "began")]
    _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
    assert [found[:2] for found in sensor.news()] == [("quarantine", "ended")]


def test_check_of_a_batch_is_not_missed_between_two_ticks(
    instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    _check(instance, _LOG, "balance")
    sensor.tick()
    _check(instance, _LOG, "balance", {"batch 1": "1 = 2"}, "does not add up")
    for _ in range(12):
        _check(instance, _LOG, "balance")
    assert sensor.news() == [("check_failed", "began", ["balance: does not add up"])]
    _at(monkeypatch, QUIET_SECONDS + 1)
    assert sensor.news() == [("check_failed", "ended", ["balance: does not add up"])]
    assert sensor.news() == []


def test_each_batch_of_a_run_is_reported(instance: DagsterInstance, webhook: Webhook) -> None:
    """A run that follows its source reports a check once per batch. Dagster keeps one row of the check for the run."""
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    seen = []
    no_gaps, balance = dg.AssetCheckKey(_CUTS, "no_gaps"), dg.AssetCheckKey(_LOG, "balance")

    @dg.op
    def follow() -> Any:
        for gaps, failed in (({}, False), ({"a.b": "x"}, False), ({"a.b": "x", "c.d": "y"}, True), ({}, False)):
            for key, passed in ((no_gaps, not gaps), (balance, not failed)):
                yield dg.AssetCheckEvaluation(
                    asset_key=key.asset_key, check_name=key.name, passed=passed, metadata=dict(gaps)
                )
            seen.append(sensor.news())
        yield dg.Output(None)

    assert dg.GraphDefinition("p_follow", node_defs=[follow]).to_job().execute_in_process(instance=instance).success
    assert seen == [
        [],
        [("gap", "began", ["a.b: x"])],
        [("gap", "began", ["c.d: y"]), ("check_failed", "began", ["balance"])],
        [("gap", "ended", ["a.b", "c.d"])],
    ]
    assert sensor.news() == []
    # the next run finds the condition again
    _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
    assert sensor.news() == [("gap", "began", ["a.b: x"])]


def test_all_batches_between_two_ticks_are_read(
    instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "_PAGE", 3)
    monkeypatch.setattr(notifications, "_MOST_PAGES", 2)
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    for failed in (True, False, False, False, False, False, False):
        _check(instance, _LOG, "balance", {"batch": 1} if failed else None)
    _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
    assert sensor.news() == [("check_failed", "began", ["balance: why"])]
    assert sensor.news() == [("gap", "began", ["a.b: x"])]
    assert sensor.news() == []


def test_result_of_a_run_that_waited_while_another_reported(instance: DagsterInstance, webhook: Webhook) -> None:
    """Dagster plans the rows of checks when it creates a run. A row of the other run is newer than the planned one."""
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    before = []

    @dg.asset(key=_CUTS, check_specs=[dg.AssetCheckSpec("no_gaps", asset=_CUTS)])
    def cuts() -> dg.MaterializeResult:
        _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
        before.append(sensor.news())
        result = dg.AssetCheckResult(check_name="no_gaps", passed=False, metadata={"c.d": "y"})
        return dg.MaterializeResult(asset_key=_CUTS, check_results=[result])

    assert dg.materialize([cuts], instance=instance).success
    assert before == [[("gap", "began", ["a.b: x"])]]
    assert sensor.news() == [("gap", "ended", ["a.b"]), ("gap", "began", ["c.d: y"])]


def test_failed_attempts_are_reported_from_the_third_on(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    for attempt in (1, 2):
        _check(instance, _CUTS, "no_failed_attempts", {"failed_attempts": attempt}, f"attempt {attempt} failed")
    assert sensor.news() == []
    _check(instance, _CUTS, "no_failed_attempts", {"failed_attempts": 3}, "attempt 3 failed")
    assert sensor.news() == [("check_failed", "began", ["no_failed_attempts: attempt 3 failed"])]


# ---- DDL


def test_statements_of_a_cut(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    event = DdlEvent("t", 0, 5, "a", "b", 1, True, 1, None, "ALTER TABLE b ADD c TEXT DEFAULT 'secret'", ())
    outcomes = {
        Position("t", 0, 4): DdlOutcome("not applied yet", ["not applied yet: it arrived late"]),
        Position("t", 0, 5): DdlOutcome("applied", ["altered a.b"]),
        Position("t", 0, 6): DdlOutcome("held", ["a.b waits"]),
        Position("t", 0, 8): DdlOutcome("no effect", []),
        Position("t", 0, 9): DdlOutcome("duplicate", []),
    }
    found = reported_statements([event], outcomes)
    assert [(statement.status, statement.statement) for statement in found] == [
        ("not applied yet", ""),
        ("applied", "ALTER TABLE b ADD c TEXT DEFAULT '…'"),
        ("held", ""),
    ]
    _cut(instance, *found)
    _cut(instance)
    assert sensor.news() == [
        ("ddl_not_supported", "occurred", ["statement at t/0@4: not applied yet: it arrived late"]),
        ("ddl_applied", "occurred", ["ALTER TABLE b ADD c TEXT DEFAULT '…' at t/0@5"]),
    ]
    assert sensor.news() == []


def test_many_statements_are_one_message(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook, events=("ddl_applied",))
    sensor.tick()
    tables = (TableName("a", "b"), TableName("a", "c"))
    statements = [
        ReportedStatement("applied", tables, "DROP TABLE b, c", "dropped", Position("t", 0, number))
        for number in range(MOST_STATEMENTS + 1)
    ]
    _cut(instance, *statements)
    (found,) = sensor.news()
    assert found[2][0] == "a.b, a.c: DROP TABLE b, c at t/0@0"
    assert len(found[2]) + webhook.received[0]["more"] == MOST_STATEMENTS + 1


# ---- lag


def test_lag_grows_without_runs(instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = FreshnessLimits(timedelta(minutes=10), timedelta(minutes=60))
    sensor = _Sensor(instance, webhook, limits=limits)
    assert sensor.news() == []
    _cut(instance, lag_seconds=10.0, slowest_partition="t/1", watermark_lag_seconds=7.4)
    assert sensor.news() == []
    _at(monkeypatch, 600)
    ((event, state, lines),) = sensor.news()
    assert (event, state) == ("lag", "began")
    assert re.fullmatch(
        r"the mirrors show upstream as of 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, 0:10:\d\d ago "
        r"\(limit: freshness.warn_minutes\); partition t/1 is 7 s behind the newest watermark",
        lines[0],
    )
    assert sensor.news() == []
    _at(monkeypatch, 3600)
    ((event, state, lines),) = sensor.news()
    assert (event, state) == ("lag", "began")
    assert "fail_minutes" in lines[0]
    _cut(instance, lag_seconds=5.0)
    assert sensor.news() == []
    _at(monkeypatch, QUIET_SECONDS - 60)
    assert sensor.news() == []
    _cut(instance, lag_seconds=5.0)
    _at(monkeypatch, 61)
    assert [found[:2] for found in sensor.news()] == [("lag", "ended")]


def test_no_lag_without_limits_or_time(instance: DagsterInstance, webhook: Webhook) -> None:
    _cut(instance, lag_seconds=1e9)
    assert _Sensor(instance, webhook).news() == []
    _cut(instance, resolved_tso="None")
    assert _Sensor(instance, webhook, limits=FreshnessLimits(timedelta(minutes=1))).news() == []


# ---- runs


def _run(instance: DagsterInstance, error: Exception | None = None, *, job: str = "p_ingest", tag: str = "p") -> str:
    """Executes a run that ends with this error. Returns its id."""

    @dg.op(name="step")
    def step() -> None:
        if isinstance(error, dg.RetryRequested):
            raise error from TransientError("the broker does not answer")
        if error is not None:
            raise error

    graph = dg.GraphDefinition(job, node_defs=[step])
    found = graph.to_job(tags={"cdc/pipeline": tag}).execute_in_process(instance=instance, raise_on_error=False)
    assert found.success == (error is None)
    return found.run_id


def test_failing_runs_of_a_job_are_reported_once(
    instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(instance, dg.Failure("before the first tick"))
    sensor = _Sensor(instance, webhook, ui_url="https://ui")
    sensor.tick()
    run_id = _run(instance, dg.Failure("the disk is full"))
    _run(instance, dg.Failure("the disk is full"))
    _run(instance, dg.Failure("of another pipeline"), tag="q")
    assert sensor.news() == [("run_failed", "began", ["p_ingest: step: the disk is full"])]
    assert webhook.received[0]["url"] == f"https://ui/runs/{run_id}"
    _run(instance, dg.Failure("the disk is full"))
    assert sensor.news() == []
    _run(instance, dg.Failure("a table"), job="p_rebuild")
    assert sensor.news() == [("run_failed", "began", ["p_rebuild: step: a table"])]
    _run(instance)
    assert sensor.news() == []
    _at(monkeypatch, QUIET_SECONDS + 1)
    assert [found[:2] for found in sensor.news()] == [("run_failed", "ended")]
    assert sensor.news() == []


def test_another_error_is_reported_before_the_first_has_ended(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    folder, log = "the folder does not exist", "the log is damaged: {}.json is missing"
    reported = []
    for error in (folder, None, log.format("0007"), folder, log.format("0008"), *"abcde"):
        _run(instance, None if error is None else dg.Failure(error))
        reported += [lines for _, _, lines in sensor.news()]
    shown = [folder, log.format("0007"), *"abc"]
    assert reported == [[f"p_ingest: step: {error}"] for error in shown]


def test_lag_without_a_partition_that_is_behind(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook, limits=FreshnessLimits(timedelta(minutes=1)))
    _cut(instance, lag_seconds=100.0, slowest_partition="t/0", watermark_lag_seconds=0.0)
    ((_, _, lines),) = sensor.news()
    assert lines[0].endswith("(limit: freshness.warn_minutes)")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("a value of a row"), "step: ValueError"),
        (LakeError("the lake is damaged"), "step: the lake is damaged"),
        (dg.RetryRequested(0), "step: the broker does not answer"),
    ],
)
def test_only_texts_without_values_are_sent(
    error: Exception, shown: str, instance: DagsterInstance, webhook: Webhook
) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    _run(instance, error)
    assert sensor.news() == [("run_failed", "began", [f"p_ingest: {shown}"])]


def test_run_whose_process_died(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    sensor.tick()

    @dg.job(name="p_ingest", tags={"cdc/pipeline": "p"})
    def job() -> None: ...

    run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED, tags=dict(job.tags))
    instance.report_run_failed(run, "the process of the run has died")
    assert sensor.news() == [("run_failed", "began", ["p_ingest: the process of the run has died"])]


# ---- delivery


def test_a_message_waits_for_the_channel_that_hangs(instance: DagsterInstance, webhook: Webhook) -> None:
    with Webhook(HANGS) as other:
        sensor = _Sensor(instance, webhook, other)
        sensor.tick()
        _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
        shown = (
            "sent alerts: webhook_url 1, slack_url 0; slack_url: no answer within 0.3 s; 1 alerts wait, 0 were dropped"
        )
        assert sensor.tick() == shown
        _check(instance, _CUTS, "no_gaps")
        assert "webhook_url 1, slack_url 0" in sensor.tick()
        other.status = 200
        assert sensor.tick() == "sent alerts: slack_url 2"
        assert ["gap opened" in body["text"] for body in other.received] == [True, False]
        assert len(webhook.received) == 2
        assert sensor.tick() == "nothing to report"


def test_oldest_messages_are_dropped_and_counted(instance: DagsterInstance, webhook: Webhook) -> None:
    webhook.status = 500
    sensor = _Sensor(instance, webhook)
    sensor.tick()
    for number in range(MOST_WAITING + 3):
        _check(instance, _CUTS, "no_gaps", {f"a.t{number // 2}": "x"} if number % 2 else None)
        _check(instance, _DEAD, NO_DEAD_LETTERS, {f"rule_{number}": "1, for example t/0@1"})
        shown = sensor.tick()
    assert f"HTTP status 500; {MOST_WAITING} alerts wait" in shown
    assert len(sensor.cursor) < 64_000
    webhook.status = 200
    assert "webhook_url" in sensor.tick()
    assert len(webhook.received) == MOST_WAITING
    assert webhook.received[0]["dropped"] > 3
    assert {body["dropped"] for body in webhook.received[1:]} == {0}
    assert f"rule_{MOST_WAITING + 2}" in webhook.received[-1]["lines"][0]


def test_no_secret_in_what_dagster_stores_and_logs(
    instance: DagsterInstance, webhook: Webhook, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    webhook.status = 404
    sensor = _Sensor(instance, webhook, webhook)
    _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
    shown = [sensor.tick(), sensor.cursor, repr(sensor.sensor), sensor.sensor.description, caplog.text]
    assert "HTTP status 404" in shown[0]
    assert "slack_url" in shown[1]
    assert "2 alerts wait" not in shown[0]
    logged = capfd.readouterr().err
    assert "webhook_url: HTTP status 404" in logged
    text = " ".join([*map(str, shown), logged])
    assert "hunter2" not in text
    assert webhook.url not in text


def test_damaged_cursor_starts_again(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    _check(instance, _CUTS, "no_gaps", {"a.b": "x"})
    sensor.cursor = '{"conditions": 3}'
    assert [found[:2] for found in sensor.news()] == [("gap", "began")]
    assert json.loads(sensor.cursor)["conditions"].keys() == {"consistent_cuts:no_gaps"}


def test_cursor_stays_small_however_many_tables_have_gaps(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    _check(instance, _CUTS, "no_gaps", {f"shop.table_{number}": "reason " * 50 for number in range(500)})
    ((_, _, lines),) = sensor.news()
    assert lines[0] == "no_gaps: 500 conditions; alerts name only 100 of them"
    assert len(lines) + webhook.received[0]["more"] == 101
    assert len(sensor.cursor) < 5000
    _check(instance, _CUTS, "no_gaps", {f"shop.table_{number}": "reason " * 50 for number in range(500)})
    assert sensor.news() == []
