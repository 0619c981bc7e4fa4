"""The sensor `<pipeline>_notify`: from events in Dagster's storage to messages at a webhook."""

from __future__ import annotations

import io
import logging
import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance, DagsterRunStatus

from cdc_pipeline.checks.streams import NO_LIMITS, FreshnessLimits
from cdc_pipeline.component.run_fields import EVENTS
from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sensors import notifications
from cdc_pipeline.sensors.alerts import QUIET_SECONDS
from cdc_pipeline.sensors.notifications import notify_sensor
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline_tests.support.servers.webhook import HANGS, Webhook

_CUTS, _LOG = (dg.AssetKey(["p", name]) for name in ("consistent_cuts", "change_log"))
_CHECKS = [
    *(dg.AssetCheckKey(_CUTS, name) for name in ("no_gaps", "no_failed_attempts", "keys_hold", "fresh")),
    dg.AssetCheckKey(_LOG, "balance"),
]
_ADVICE = "What to do: `cdc-pipeline docs operations alerts`"


@pytest.fixture(params=["in memory", "files"])
def instance(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DagsterInstance]:
    """Dagster's storage in memory, and the one of `dagster.yaml`, which has a file per run."""
    files = request.param == "files"
    with DagsterInstance.local_temp(str(tmp_path)) if files else DagsterInstance.ephemeral() as found:
        yield found


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Webhook() as found:
        yield found


class _Sensor:
    """The sensor with its cursor, and a clock of its own."""

    def __init__(
        self,
        instance: DagsterInstance,
        *webhooks: Webhook,
        limits: FreshnessLimits = NO_LIMITS,
        events: tuple[str, ...] = EVENTS,
    ) -> None:
        urls = [found.url for found in webhooks]
        pipeline = Pipeline("p", CaptureFiles("captures"), "lake")
        self.sensor = notify_sensor(pipeline, _CHECKS, ["p_ingest", "p_rebuild"], limits, urls, events, "https://ui")
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

    def news(self) -> list[str]:
        """Evaluates the sensor. Returns the lines of the new message without advice and links."""
        before = len(self.webhook.received)
        self.tick()
        texts = [body["message"] for body in self.webhook.received[before:]]
        return [line for text in texts for line in text.splitlines() if line.startswith("•")]


def _check(
    instance: DagsterInstance,
    name: str,
    entries: dict[str, Any] | None = None,
    asset: dg.AssetKey = _CUTS,
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN,
) -> None:
    """Reports a result of a check, which passes without entries."""
    instance.report_runless_asset_event(
        dg.AssetCheckEvaluation(
            asset_key=asset,
            check_name=name,
            passed=not entries,
            metadata=entries or {},
            severity=severity,
            description="why" if entries else None,
        )
    )


def _at(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Moves the clock of the sensor."""
    now = time.time() + seconds
    monkeypatch.setattr(time, "time", lambda: now)


def test_checks(instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = _Sensor(instance, webhook)
    assert sensor.tick() == "nothing to report"
    gap = "4 changes came late"
    for _ in range(3):  # in each batch
        _check(instance, "no_gaps", {"a.b": gap, "c.d": "x"})
        _check(instance, "balance", {"batch 1": "1 = 1", "batch 2": "1 = 2"}, _LOG, dg.AssetCheckSeverity.ERROR)
        _check(instance, "keys_hold", {"a.b": "2 keys", "wrong_tables": dg.MetadataValue.json(["a.b"]), "checked": "1"})
        _check(instance, "no_failed_attempts", {"failed_attempts": 2})
    # one message with all
    assert sensor.tick() == "notify.urls, number 1: sent 4 new and 0 ended"
    (body,) = webhook.received
    assert (body["title"], body["type"]) == ("p: 4 new", "failure")
    assert body["message"].splitlines() == [
        f"• consistent_cuts no_gaps: a.b: {gap}",
        "• consistent_cuts no_gaps: c.d: x",
        "• consistent_cuts keys_hold: a.b: 2 keys",
        "• change_log balance: why",
        _ADVICE,
        "https://ui/assets/p/consistent_cuts?view=checks&checkDetail=no_gaps",
        "https://ui/assets/p/consistent_cuts?view=checks&checkDetail=keys_hold",
        "https://ui/assets/p/change_log?view=checks&checkDetail=balance",
    ]
    assert sensor.news() == []
    _check(instance, "no_gaps", {"a.b": gap})
    _check(instance, "no_failed_attempts", {"failed_attempts": 3})
    assert sensor.news() == ["• consistent_cuts no_failed_attempts: why"]
    assert webhook.received[-1]["type"] == "warning"
    _check(instance, "no_gaps")
    _at(monkeypatch, QUIET_SECONDS + 1)
    ended = ["• no longer: consistent_cuts no_gaps: c.d", "• no longer: consistent_cuts no_gaps: a.b"]
    assert sorted(sensor.news()) == sorted(ended)
    assert webhook.received[-1]["type"] == "success"
    assert sensor.news() == []


def test_other_events_are_not_sent(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook, events=("keys_hold",))
    _check(instance, "no_gaps", {"a.b": "x"})
    _run(instance, LakeError("the lake is damaged"))
    assert sensor.tick() == "nothing to report"


def test_each_batch_of_a_run_is_compared(instance: DagsterInstance, webhook: Webhook) -> None:
    """A run that follows its source reports a check once per batch. Dagster keeps one row of the check for the run."""
    sensor = _Sensor(instance, webhook)
    seen = []

    @dg.op
    def follow() -> Any:
        for gaps in ({}, {"a.b": "x"}, {"a.b": "x", "c.d": "y"}):
            yield dg.AssetCheckEvaluation(asset_key=_CUTS, check_name="no_gaps", passed=not gaps, metadata=dict(gaps))
            seen.append(sensor.news())
        yield dg.Output(None)

    assert dg.GraphDefinition("p_follow", node_defs=[follow]).to_job().execute_in_process(instance=instance).success
    assert seen == [[], ["• consistent_cuts no_gaps: a.b: x"], ["• consistent_cuts no_gaps: c.d: y"]]


def test_result_of_a_run_that_waited_while_another_reported(instance: DagsterInstance, webhook: Webhook) -> None:
    """Dagster plans the rows of checks when it creates a run. A row of the other run is newer than the planned one."""
    sensor, before = _Sensor(instance, webhook), []

    @dg.asset(key=_CUTS, check_specs=[dg.AssetCheckSpec("no_gaps", asset=_CUTS)])
    def cuts() -> dg.MaterializeResult:
        _check(instance, "no_gaps", {"a.b": "x"})
        before.append(sensor.news())
        result = dg.AssetCheckResult(check_name="no_gaps", passed=False, metadata={"c.d": "y"})
        return dg.MaterializeResult(asset_key=_CUTS, check_results=[result])

    assert dg.materialize([cuts], instance=instance).success
    assert before == [["• consistent_cuts no_gaps: a.b: x"]]
    assert sensor.news() == ["• consistent_cuts no_gaps: c.d: y"]


def test_lag_grows_without_runs(instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(**metadata: Any) -> None:
        instance.report_runless_asset_event(dg.AssetMaterialization(_CUTS, metadata=metadata))

    sensor = _Sensor(instance, webhook, limits=FreshnessLimits(timedelta(minutes=10), timedelta(minutes=60)))
    cut(lag_seconds=10.0, slowest_partition="t/1")
    assert sensor.news() == []
    reached = []
    for seconds in (600, 0, 3600, 0):
        _at(monkeypatch, seconds)
        reached += [
            re.sub(r":\d\d ", ":?? ", line.removeprefix("• consistent_cuts fresh: the mirrors are "))
            for line in sensor.news()
        ]
    assert reached == [
        "0:10:?? behind upstream (limit: freshness.warn_minutes); the slowest partition was t/1",
        "1:10:?? behind upstream (limit: freshness.fail_minutes); the slowest partition was t/1",
    ]
    for metadata in ({"lag_seconds": 5.0}, {"resolved_tso": "None"}):
        cut(**metadata)
        _at(monkeypatch, QUIET_SECONDS / 2 + 1)
        ended = sensor.news()
    assert ended == ["• no longer: consistent_cuts fresh"]


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
    sensor = _Sensor(instance, webhook)
    _run(instance, dg.Failure("of another pipeline"), tag="q")
    run_id = _run(instance, dg.Failure("the disk is full"))
    assert sensor.news() == ["• run of p_ingest: step: the disk is full"]
    assert webhook.received[0]["message"].endswith(f"\nhttps://ui/runs/{run_id}")
    _run(instance, dg.Failure("another error"))
    assert sensor.news() == []
    _run(instance, dg.Failure("a table"), job="p_rebuild")
    assert sensor.news() == ["• run of p_rebuild: step: a table"]
    _run(instance)
    assert sensor.news() == []
    _at(monkeypatch, QUIET_SECONDS + 1)
    assert sensor.news() == ["• no longer: run of p_ingest"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ValueError("a value of a row"), "step: ValueError"),
        (LakeError("the lake is damaged"), "step: the lake is damaged"),
        (dg.RetryRequested(0), "step: the broker does not answer"),
        (None, "the process of the run has died"),
    ],
)
def test_only_texts_without_values_are_sent(
    error: Exception | None, shown: str, instance: DagsterInstance, webhook: Webhook
) -> None:
    sensor = _Sensor(instance, webhook)
    if error is not None:
        _run(instance, error)
    else:

        @dg.job(name="p_ingest", tags={"cdc/pipeline": "p"})
        def job() -> None: ...

        run = instance.create_run_for_job(job, status=DagsterRunStatus.STARTED, tags=dict(job.tags))
        instance.report_run_failed(run, shown)
    assert sensor.news() == [f"• run of p_ingest: {shown}"]


# ---- delivery


@pytest.mark.parametrize(("status", "shown"), [(500, "HTTP status 500"), (302, "HTTP status 302"), (HANGS, "timeout")])
def test_a_channel_that_takes_no_messages(
    status: int, shown: str, instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It delays no other channel, gets everything later, and is asked less and less often."""
    monkeypatch.setattr(notifications, "_SEND_SECONDS", 1.0)
    with Webhook(status) as other:
        sensor = _Sensor(instance, webhook, other)
        _check(instance, "no_gaps", {"a.b": "x"})
        sent = "notify.urls, number 1: sent 1 new and 0 ended"
        failed = f"notify.urls, number 2: message not taken: JSON, {shown}"
        assert sensor.tick() == f"{sent}; {failed}"
        _run(instance, dg.Failure("the disk is full"))
        assert sensor.tick() == f"{sent}; {failed}"
        assert sensor.tick() == "nothing to report"
        _at(monkeypatch, 31)
        assert sensor.tick() == failed
        other.status = 200
        _at(monkeypatch, 91)
        assert sensor.tick() == "notify.urls, number 2: sent 2 new and 0 ended"
        assert sensor.tick() == "nothing to report"
        assert len(webhook.received) == 2
        assert other.requests == 4


def test_text_is_plain(instance: DagsterInstance, webhook: Webhook, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = "![](https://evil/x.png) <b>&amp;</b> `x` {{ 1 }} \\n ${HOME}"
    _check(instance, "no_gaps", {hostile: "x"})
    url = webhook.url
    for kind, shown in (
        ("text", hostile),
        ("html", "&lt;b&gt;&amp;amp;&lt;/b&gt;"),
        ("markdown", r"\!\[\]\(https://evil/x\.png\)"),
    ):
        monkeypatch.setattr(Webhook, "url", f"{url}&format={kind}")
        _Sensor(instance, webhook).tick()
        assert shown in webhook.received[-1]["message"]


def test_no_secret_in_what_dagster_stores_and_logs(
    instance: DagsterInstance, webhook: Webhook, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root logger gets everything, as by `python_logs` in dagster.yaml. (caplog also listens to loggers below it.)"""
    log = io.StringIO()
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [*root.handlers, logging.StreamHandler(log)])
    monkeypatch.setattr(root, "level", logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("urllib3"), "level", logging.NOTSET)
    _check(instance, "no_gaps", {"a.b": "x"})
    with Webhook(404) as other, Webhook() as gone:
        sensor = _Sensor(instance, webhook, other, gone)
        monkeypatch.setattr(gone, "status", 500)
        shown = [sensor.tick(), sensor.cursor, repr(sensor.sensor), str(sensor.sensor.description)]
    _check(instance, "no_gaps", {"a.b": "y"})
    shown.append(sensor.tick())
    assert "number 2: message not taken: JSON, HTTP status 404" in shown[0]
    assert "number 3: message not taken: JSON, failure" in shown[-1]
    text = " ".join([*shown, log.getvalue(), *capfd.readouterr()])
    for secret in ("hunter2", "T0", "X-Token", "127.0.0.1"):
        assert secret not in text


def test_damaged_cursor_starts_again(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    _check(instance, "no_gaps", {"a.b": "x"})
    for cursor in ("[3]", "x", '[{"known": {"a": 1}}]'):
        sensor.cursor = cursor
        assert sensor.news() == ["• consistent_cuts no_gaps: a.b: x"]


def test_many_tables(instance: DagsterInstance, webhook: Webhook) -> None:
    sensor = _Sensor(instance, webhook)
    _check(instance, "no_gaps", {f"shop.table_{number}": "reason " * 50 for number in range(1000)})
    sensor.tick()
    assert webhook.received[0]["title"] == "p: 1000 new"
    assert len(webhook.received[0]["message"]) < 2000
    assert len(sensor.cursor) < 100_000
    assert sensor.news() == []
