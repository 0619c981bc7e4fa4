"""Runs, sensors and Spark leave no secret behind, whatever fails: all their traces are searched.

The secrets come from the environment, as in a pipeline's YAML file. Each has a random core, which is the same in all forms
except Base64.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import secrets
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import dagster as dg
import pyarrow.parquet as pq
import pytest
from dagster._utils.error import serializable_error_info_from_exc_info
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from cdc_pipeline.assets import failures
from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.kafka import broker as broker_module
from cdc_pipeline.sources.kafka import raw_topics
from cdc_pipeline.sources.kafka.client_settings import jaas_escaped
from cdc_pipeline.sources.kafka.raw_topics import RawTopics
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.certificates import create_certificates
from cdc_pipeline_tests.local_kafka.listeners import Listener
from cdc_pipeline_tests.local_kafka.token_server import TokenServer
from cdc_pipeline_tests.support import messages
from cdc_pipeline_tests.support.servers.kafka_clients import filled

# Dagster 1.13.27 parses YAML with a call that pydantic has renamed.
pytestmark = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)

_CORES = {name: secrets.token_hex(12) for name in ("password", "wrong", "passphrase", "client_secret")}
# characters that JAAS, JSON, URLs and Python's repr each escape differently
SECRETS = {name: f"{name[:2]} \"{core}\\é'%;" for name, core in _CORES.items()}
_LISTENERS = (Listener("SECURED", "SASL_SSL", ("PLAIN", "OAUTHBEARER")),)
_OPTIONS = """
  options:
    request.timeout.ms: 5000
    default.api.timeout.ms: 6000
    some.passphrase: "{{{{ env.CDC_TEST_PASSPHRASE }}}}"
"""
_LOGINS = {
    "PLAIN": """
    mechanism: PLAIN
    username: alice
    password: "{{{{ env.CDC_TEST_SECRET }}}}"
"""
    + _OPTIONS,
    "OAUTHBEARER": _OPTIONS
    + """
    sasl.mechanism: OAUTHBEARER
    sasl.login.callback.handler.class: org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler
    sasl.oauthbearer.token.endpoint.url: "{{{{ env.CDC_TEST_TOKENS }}}}"
    sasl.jaas.config: "{{{{ env.CDC_TEST_JAAS }}}}"
  sensor_options:
    sasl.mechanism: OAUTHBEARER
    sasl.oauthbearer.method: oidc
    sasl.oauthbearer.client.id: alice
    sasl.oauthbearer.client.secret: "{{{{ env('CDC_TEST_SECRET') }}}}"
    sasl.oauthbearer.token.endpoint.url: "{{{{ env.CDC_TEST_TOKENS }}}}"
""",
}
_JAAS_LINE = (
    'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="alice" clientSecret="{}";'
)
_FILE = """
name: {name}
lake: "{lake}"
source:
  type: kafka
  bootstrap_servers: "{bootstrap}"
  topics: [orders]
  security:
    protocol: SASL_SSL
    ca: "{{{{ env.CDC_TEST_CA }}}}"
    certificate: "{{{{ env.CDC_TEST_CERTIFICATE }}}}"
    key: "{{{{ env.CDC_TEST_KEY }}}}"
"""


@dataclass
class Kafka:
    broker: LocalBroker
    tokens: TokenServer
    variables: dict[str, str]
    key_lines: list[str]


@dataclass
class Traces:
    """What runs left behind, by location."""

    instance: Path
    lake: Path
    texts: dict[str, str] = field(default_factory=dict)

    def files(self) -> Iterator[tuple[str, bytes]]:
        for folder in (self.instance, self.lake):
            for file in sorted(found for found in folder.rglob("*") if found.is_file()):
                yield str(file), file.read_bytes()
                if file.suffix == ".parquet":
                    yield f"{file} as rows", repr(pq.ParquetFile(file).read().to_pylist()).encode()
                elif file.suffix == ".db":
                    # a text that crosses a page boundary is in two parts of the file
                    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
                        yield f"{file} as SQL", "\n".join(database.iterdump()).encode()
        # the output of the session's JVM
        for file in Path(tempfile.gettempdir()).glob("cdc_pipeline-spark-*.log"):
            yield str(file), file.read_bytes()
        # includes deleted files that are still open, as the JVM deletes some at its start
        for process in Path("/proc").glob("[0-9]*/fd/2"):
            with contextlib.suppress(OSError):
                if "cdc_pipeline-spark-" in str(process.readlink()):
                    yield str(process), process.read_bytes()
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                yield str(process), process.read_bytes()
            except OSError:
                continue  # the process has ended

    def leaks(self, secrets: list[bytes]) -> list[str]:
        everything = [*self.files(), *((where, text.encode()) for where, text in self.texts.items())]
        return [f"{where}: {form!r}" for where, found in everything for form in secrets if form in found]


def forms(key_lines: list[str]) -> list[bytes]:
    """The texts to search for: the core of each secret, and its whole value in Base64 and URL encoding."""
    found = [core.encode() for core in _CORES.values()] + [line.encode() for line in key_lines]
    for secret in SECRETS.values():
        for text in (secret, f"alice:{secret}", f"\0alice\0{secret}"):
            found += [base64.b64encode(text.encode()), base64.urlsafe_b64encode(text.encode())]
        found += [quote(secret).encode(), quote_plus(secret).encode()]
    return found


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka")
    certificates = create_certificates(folder / "certificates")
    with (
        TokenServer({"alice": SECRETS["client_secret"]}) as tokens,
        LocalBroker(
            folder / "b", _LISTENERS, users={"alice": SECRETS["password"]}, certificates=certificates, tokens=tokens
        ) as broker,
    ):
        filled(broker.bootstrap, "orders", [messages.watermark(1), messages.watermark(2)])
        variables = {
            "CDC_TEST_CA": str(certificates.ca),
            "CDC_TEST_CERTIFICATE": str(certificates.client_certificate),
            "CDC_TEST_KEY": str(certificates.client_key),
            "CDC_TEST_PASSPHRASE": SECRETS["passphrase"],
            "CDC_TEST_TOKENS": tokens.token_url,
        }
        lines = [
            line
            for line in certificates.client_key.read_text().split("\n")[1:-1]
            if len(line) > 20 and "---" not in line
        ]
        yield Kafka(broker, tokens, variables, lines)


@dataclass
class Bench:
    """A pipeline on its own instance, and its traces."""

    kafka: Kafka
    monkeypatch: pytest.MonkeyPatch
    spark: SparkSession
    instance: dg.DagsterInstance
    traces: Traces

    def component(self, secret: str, mechanism: str = "PLAIN", name: str = "shop") -> CdcPipeline:
        jaas = _JAAS_LINE.format(jaas_escaped(SECRETS[secret]))
        variables = {**self.kafka.variables, "CDC_TEST_SECRET": SECRETS[secret], "CDC_TEST_JAAS": jaas}
        for variable, value in variables.items():
            self.monkeypatch.setenv(variable, value)
        bootstrap = self.kafka.broker.addresses["SECURED"]
        text = (_FILE.rstrip() + _LOGINS[mechanism]).format(name=name, lake=self.traces.lake, bootstrap=bootstrap)
        found: CdcPipeline = CdcPipeline.resolve_from_yaml(text)
        return found

    def run(self, component: CdcPipeline, where: str, *, raw_only: bool = False) -> dg.ExecuteInProcessResult:
        job = component.build_defs().resolve_job_def(f"{component.name}_ingest")
        result = job.execute_in_process(
            instance=self.instance,
            raise_on_error=False,
            asset_selection=[dg.AssetKey([component.name, "raw_topic_snapshot"])] if raw_only else None,
        )
        shown = [
            repr(component),
            repr(result.dagster_run),
            repr(result.dagster_run.run_config),
            repr(result.all_events),
        ]
        shown += [str(entry) for entry in self.instance.all_logs(result.run_id)]
        self.traces.texts[f"run {where}"] = "\n".join(shown)
        return result

    def tick(self, component: CdcPipeline, where: str) -> str | None:
        """Evaluates the sensor as the daemon does. Returns the text of its error, if any."""
        sensor, _ = component.build_defs().sensors or ()
        assert isinstance(sensor, dg.SensorDefinition)
        context = dg.build_sensor_context(instance=self.instance, sensor_name=sensor.name)
        try:
            shown, error = repr(sensor(context)), None
        except Exception:
            error = shown = serializable_error_info_from_exc_info(sys.exc_info()).to_string() + traceback.format_exc()
        self.traces.texts[f"tick {where}"] = shown
        return error


@pytest.fixture
def bench(
    kafka: Kafka, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Bench]:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(failures, "_RETRIES", 1)
    monkeypatch.setattr(failures, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(broker_module, "TIMEOUT_SECONDS", 3.0)
    folder = tmp_path / "instance"
    folder.mkdir()
    with dg.DagsterInstance.local_temp(str(folder), {"telemetry": {"enabled": False}}) as instance:
        yield Bench(kafka, monkeypatch, spark, instance, Traces(folder, tmp_path / "lake"))


def _searched(bench: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    bench.traces.texts["output"] = "".join(capfd.readouterr())
    bench.traces.texts["logging"] = caplog.text + repr([vars(record) for record in caplog.records])
    assert bench.traces.leaks(forms(bench.kafka.key_lines)) == []


def _failure_text(result: dg.ExecuteInProcessResult) -> str:
    return "\n".join(
        str(event.step_failure_data.error) + str(event.step_failure_data.user_failure_data)
        for event in result.all_events
        if event.is_step_failure
    )


def test_the_search_finds_leaked_secrets(bench: Bench, capfd: pytest.CaptureFixture[str]) -> None:
    """A careless run: its leaks are found, so a search without a result is meaningful."""

    @dg.op
    def leaking() -> None:
        dg.get_dagster_logger().info(SECRETS["password"])
        print(SECRETS["wrong"])
        raise RuntimeError("above") from ValueError(SECRETS["passphrase"])

    @dg.job
    def leaking_job() -> None:
        leaking()

    leaking_job.execute_in_process(instance=bench.instance, raise_on_error=False)
    bench.traces.texts["output"] = "".join(capfd.readouterr())
    found = bench.traces.leaks(forms([]))
    for name in ("password", "wrong", "passphrase"):
        assert [leak for leak in found if _CORES[name] in leak and str(bench.traces.instance) in leak], name


def test_a_run_and_a_tick_that_succeed(
    bench: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    spark, component = bench.spark, bench.component("password")
    events = tmp_path / "instance" / "events"
    events.mkdir()
    context: Any = spark.sparkContext
    java: Any = jvm(spark)
    conf = (
        context._jsc.sc()
        .getConf()
        .set("spark.eventLog.compress", "false")
        .set("spark.eventLog.rolling.enabled", "false")
    )
    attempt = java.scala.Option.empty()
    listener = java.org.apache.spark.scheduler.EventLoggingListener(
        "app", attempt, java.java.net.URI(events.as_uri()), conf
    )
    frames: list[Any] = []
    records = RawTopics.records
    bench.monkeypatch.setattr(RawTopics, "records", lambda raw, *args: frames.append(records(raw, *args)) or frames[-1])
    listener.start()
    context._jsc.sc().addSparkListener(listener)
    try:
        assert bench.tick(component, "before") is None
        assert "RunRequest" in bench.traces.texts["tick before"]
        result = bench.run(component, "that succeeds", raw_only=True)
        assert result.success
        token = bench.component("client_secret", "OAUTHBEARER", "tokens")
        assert bench.run(token, "with a token", raw_only=True).success
    finally:
        context._jsc.sc().removeSparkListener(listener)
        listener.stop()
    assert any("SparkListenerSQLExecutionStart" in file.read_text() for file in events.iterdir())
    for name in ("shop", "tokens"):
        assert (
            spark.read.format("delta").load(LakePaths(str(bench.traces.lake), name).table("raw_topic_snapshot")).count()
            == 2
        )
    frame: Any = frames[0]
    bench.traces.texts["plan"] = frame._jdf.queryExecution().toString()
    frame.explain("extended")
    bench.traces.texts["Spark's settings"] = repr(context.getConf().getAll()) + conf.toDebugString()
    options = java.java.util.HashMap()
    for option, value in component.source.client.java().items():  # type: ignore[union-attr]
        options.put(f"kafka.{option}", value)
    session: Any = spark._jsparkSession
    shown = session.sessionState().conf().redactOptions(java.PythonUtils.toScalaMap(options)).toString()
    assert "kafka.sasl.jaas.config -> *********(redacted)" in shown
    bench.traces.texts["options as Spark's logs have them"] = shown
    _searched(bench, capfd, caplog)


@pytest.mark.long
def test_a_whole_run(bench: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    """All tables of the lake. The other tests run only the step that uses the broker."""
    assert bench.run(bench.component("password"), "as a whole").success
    _searched(bench, capfd, caplog)


def test_a_run_and_a_tick_that_are_refused(
    bench: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    for mechanism in ("PLAIN", "OAUTHBEARER"):
        component = bench.component("wrong", mechanism)
        error = bench.tick(component, f"refused {mechanism}")
        assert error is not None
        assert "SourceError: the Kafka broker 127.0.0.1" in error
        result = bench.run(component, f"refused {mechanism}")
        assert not result.success
        assert "refuses" in _failure_text(result)
    _searched(bench, capfd, caplog)


def _raised(error: BaseException, cause: BaseException | None) -> Callable[..., None]:
    def raising(*_arguments: Any, **_options: Any) -> None:
        try:
            raise KeyError(SECRETS["passphrase"])
        except KeyError:
            raise error from cause

    return raising


def test_errors_that_contain_secrets(
    bench: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Errors of Spark or of the package with secrets in their message, their cause or their context."""
    component = bench.component("password")
    options = component.source.client.java()  # type: ignore[union-attr]
    text = f"options {options}, {SECRETS['password']}, {options['sasl.jaas.config']}, {quote(SECRETS['password'])}"
    text += f", {base64.b64encode(SECRETS['password'].encode()).decode()}, {options['ssl.keystore.key']}"
    java: Any = jvm(bench.spark)
    errors: dict[str, tuple[BaseException, BaseException | None]] = {
        "unexpected": (RuntimeError(text), ValueError(text)),
        "unexpected, only its cause": (RuntimeError("above"), ValueError(text)),
        "unexpected, only its context": (RuntimeError("above"), None),
        "of Spark": (AnalysisException(text), None),
        "transient": (TransientError(f"down: {text}"), ValueError(text)),
        "interrupt": (dg.DagsterExecutionInterruptedError("stop"), None),
    }
    for name, (error, cause) in errors.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(raw_topics, "append_batch", _raised(error, cause))
            result = None
            try:
                result = bench.run(component, name, raw_only=True)
            except BaseException as stopped:
                assert name == "interrupt", name
                bench.traces.texts["interrupt"] = "".join(traceback.format_exception(stopped))
            assert result is None or not result.success
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(broker_module.Broker, "topics", _raised(error, cause))
            if name != "interrupt":
                assert bench.tick(component, name) is not None
    assert "***" in bench.traces.texts["run unexpected"]
    # Java's own error and its message
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(raw_topics, "append_batch", lambda *_: java.java.lang.Integer.parseInt(text))
        result = bench.run(component, "of Java", raw_only=True)
        assert "NumberFormatException" in _failure_text(result)
    _searched(bench, capfd, caplog)


def test_a_broker_that_stops_during_a_run(
    bench: Bench, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Runs last, because the broker is gone afterwards."""
    component = bench.component("password")
    append = RawTopics.append

    def appended(*arguments: Any) -> None:
        bench.kafka.broker.kill()
        append(*arguments)

    bench.monkeypatch.setattr(RawTopics, "append", appended)
    started = time.monotonic()
    result = bench.run(component, "that loses its broker")
    assert time.monotonic() - started < 60
    assert not result.success
    assert "the Kafka broker 127.0.0.1" in _failure_text(result)
    error = bench.tick(component, "without a broker")
    assert error is not None
    assert "does not answer" in error
    _searched(bench, capfd, caplog)
