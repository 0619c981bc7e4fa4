"""Every security protocol and mechanism on a real broker, in the sensor and in a run; and how soon errors are raised."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.sources.kafka import broker as broker_module
from cdc_pipeline.sources.source import Intake, NewRecords, RunContext, Source
from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.certificates import Certificates, create_certificates
from cdc_pipeline_tests.local_kafka.conftest import ALL_LISTENERS, PASSWORD, SECRET
from cdc_pipeline_tests.local_kafka.feed import Record, produce
from cdc_pipeline_tests.local_kafka.token_server import TokenServer
from cdc_pipeline_tests.support.servers.kafka_clients import filled

_MODULES = "org.apache.kafka.common.security.oauthbearer"
_TOKEN_HANDLER = f"{_MODULES}.secured.OAuthBearerLoginCallbackHandler"
_SOON = 10.0  # seconds on a loaded machine; an idle one needs one


@dataclass(frozen=True)
class Kafka:
    """The broker, and the client settings for its listeners."""

    broker: LocalBroker
    made: Certificates
    tokens: TokenServer

    @property
    def tls(self) -> dict[str, Any]:
        return {"security": {"protocol": "SSL", "ca": str(self.made.ca)}}

    def certificate(self, protocol: str = "SSL") -> dict[str, Any]:
        made = self.made
        files = {"ca": made.ca, "certificate": made.client_certificate, "key": made.client_key}
        return {"security": {"protocol": protocol, **{name: str(file) for name, file in files.items()}}}

    def token(self, secret: str = SECRET, url: str = "") -> dict[str, Any]:
        endpoint = {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url or self.tokens.token_url,
        }
        line = f'{_MODULES}.OAuthBearerLoginModule required clientId="alice" clientSecret="{secret}" scope="kafka";'
        return {
            "security": {"protocol": "SASL_PLAINTEXT"},
            "options": {**endpoint, "sasl.jaas.config": line, "sasl.login.callback.handler.class": _TOKEN_HANDLER},
            "sensor_options": {
                **endpoint,
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "alice",
                "sasl.oauthbearer.client.secret": secret,
                "sasl.oauthbearer.scope": "kafka",
            },
        }

    def source(self, listener: str, fields: dict[str, Any]) -> Source:
        bootstrap = self.broker.addresses[listener]
        return KafkaSource(type="kafka", bootstrap_servers=bootstrap, topics=["secured"], **fields).source


def login(mechanism: str, password: str = PASSWORD, **others: str) -> dict[str, Any]:
    fields = {"protocol": "SASL_PLAINTEXT", "mechanism": mechanism, "username": "alice", "password": password}
    return {"security": {**fields, **others}}


def forms(kafka: Kafka) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name → listener and fields of the source."""
    made = kafka.made
    on_tls = {"protocol": "SASL_SSL", "ca": str(made.ca)}
    texts = {"certificate": made.client_certificate.read_text(), "key": made.client_key.read_text()}
    both = made.client_key.with_name("both.pem")
    both.write_text("".join(texts.values()))
    store = {"ssl.keystore.location": str(made.client_store), "ssl.keystore.password": made.password}
    by_options = {"options": {"ssl.keystore.type": "PKCS12", **store}, "sensor_options": store}
    return {
        "SSL": ("TLS", kafka.tls),
        "SSL, client certificate": ("TLS_BOTH", kafka.certificate()),
        "SSL, client certificate as text": (
            "TLS_BOTH",
            {"security": {"protocol": "SSL", "ca": made.ca.read_text(), **texts}},
        ),
        "SSL, client certificate and key in one file": (
            "TLS_BOTH",
            {"security": {**kafka.tls["security"], "certificate": str(both), "key": str(both)}},
        ),
        "SSL, client certificate in PKCS12": ("TLS_BOTH", {**kafka.tls, **by_options}),
        "PLAIN": ("LOGIN", login("PLAIN")),
        "PLAIN over TLS": ("LOGIN_TLS", login("PLAIN", **on_tls)),
        "SCRAM-SHA-256": ("LOGIN", login("SCRAM-SHA-256")),
        "SCRAM-SHA-512": ("LOGIN_TLS", login("SCRAM-SHA-512", **on_tls)),
        "OAUTHBEARER": ("LOGIN", kafka.token()),
    }


# name → listener, fields of the source, part of the message
def refusals(kafka: Kafka) -> dict[str, tuple[str, dict[str, Any], str]]:
    stranger = {"security": {"protocol": "SSL", "ca": str(kafka.made.client_certificate)}}
    return {
        "PLAIN, wrong password": ("LOGIN", login("PLAIN", "wr0ng"), "Invalid username or password"),
        "SCRAM, wrong password": ("LOGIN", login("SCRAM-SHA-512", "wr0ng"), "invalid credentials"),
        "OAUTHBEARER, wrong secret": ("LOGIN", kafka.token("wr0ng"), "invalid_client"),
        "unknown authority": ("TLS", stranger, "certificate verify failed"),
        "no authority": ("TLS", {"security": {"protocol": "SSL"}}, "certificate verify failed"),
        "no client certificate": ("TLS_BOTH", kafka.tls, "set certificate and key of source.security"),
        "no key": (
            "TLS_BOTH",
            {"security": {**kafka.certificate()["security"], "key": str(kafka.made.ca)}},
            "source.security.key: no block BEGIN PRIVATE KEY",
        ),
        "TLS where there is none": (
            "PLAINTEXT",
            kafka.tls,
            "source.security.protocol does not match the listener of this port",
        ),
    }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka")
    made = create_certificates(folder / "certificates")
    users = {"alice": PASSWORD}
    with (
        TokenServer({"alice": SECRET}) as tokens,
        LocalBroker(folder / "broker", ALL_LISTENERS, users=users, certificates=made, tokens=tokens) as broker,
    ):
        filled(broker.bootstrap, "secured", ["one", "two"])
        yield Kafka(broker, made, tokens)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduces the timeout from 15 s, which fits into a sensor's 60 s, to 2 s."""
    assert broker_module.TIMEOUT_SECONDS <= 15
    monkeypatch.setattr(broker_module, "TIMEOUT_SECONDS", 2.0)


def ingest_records(source: Source, spark: SparkSession, paths: LakePaths) -> Intake:
    return source.ingest(Lake(spark, paths), RunContext("test", lambda line: None))


def test_the_sensor_and_the_run_get_in_by_one_declaration(kafka: Kafka, spark: SparkSession, paths: LakePaths) -> None:
    """All connections share a lake: each finds one record more than the one before."""
    for number, (name, (listener, fields)) in enumerate(forms(kafka).items()):
        source = kafka.source(listener, fields)
        news = source.find_new_records(None)
        assert isinstance(news, NewRecords), name
        assert news.records == 2 + number, name
        assert ingest_records(source, spark, paths).records == (2 if number == 0 else 1), name
        list(produce(kafka.broker.bootstrap, [Record("secured", 0, 0, 1_000, None, name.encode())]))
    rows = spark.read.format("delta").load(paths.table("raw_topic_snapshot")).orderBy("offset").collect()
    assert [bytes(row["value"]).decode() for row in rows] == ["one", "two", *list(forms(kafka))[:-1]]


def test_a_refusal_is_reported_at_once_and_is_terminal(kafka: Kafka, spark: SparkSession, paths: LakePaths) -> None:
    paths.require_writable(spark)
    for name, (listener, fields, said) in refusals(kafka).items():
        source = kafka.source(listener, fields)
        for asked in (lambda: source.find_new_records(None), lambda: ingest_records(source, spark, paths)):  # noqa: B023
            started = time.monotonic()
            with pytest.raises(SourceError) as caught:
                asked()
            assert time.monotonic() - started < _SOON, name
            text = str(caught.value)
            assert said in text, (name, text)
            assert re.search(f"the Kafka broker {kafka.broker.addresses[listener]} (refuses|are invalid)", text), name
            assert "wr0ng" not in text


@pytest.mark.usefixtures("impatient")
def test_who_does_not_answer_is_asked_again_later(kafka: Kafka, spark: SparkSession, paths: LakePaths) -> None:
    nobody = KafkaSource(type="kafka", bootstrap_servers="127.0.0.1:9", topics=["secured"], **kafka.tls).source
    cases = [
        (nobody, "127.0.0.1:9 does not answer: .*Connection refused"),
        # a broker closes the connection of a client with the wrong protocol
        (
            kafka.source("TLS", {}),
            "closes them without an error. Check that source.security.protocol PLAINTEXT matches the listener",
        ),
        (kafka.source("LOGIN", {}), "Check that source.security.protocol PLAINTEXT matches the listener"),
        (
            kafka.source("LOGIN", kafka.token(url="http://127.0.0.1:9/token")),
            "does not answer: Failed to acquire SASL OAUTHBEARER token: .*127.0.0.1",
        ),
    ]
    for source, said in cases:
        started = time.monotonic()
        with pytest.raises(TransientError, match=said):
            source.find_new_records(None)
        assert time.monotonic() - started < 2 + _SOON
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:9 does not answer"):
        ingest_records(nobody, spark, paths)


# Dagster 1.13.27 parses YAML with a deprecated function of pydantic.
@pytest.mark.filterwarnings("ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20")
def test_a_file_takes_its_secrets_from_the_environment(
    kafka: Kafka, load: Callable[[str], CdcPipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CDC_TEST_BROKER", kafka.broker.addresses["LOGIN_TLS"])
    monkeypatch.setenv("CDC_TEST_PASSWORD", PASSWORD)
    security = {
        "protocol": "SASL_SSL",
        "mechanism": "{{ env('CDC_TEST_NONE', 'SCRAM-SHA-512') }}",
        "username": "alice",
        "password": "{{ env('CDC_TEST_PASSWORD') }}",
        "ca": str(kafka.made.ca),
    }
    source = {
        "type": "kafka",
        "bootstrap_servers": "{{ env.CDC_TEST_BROKER }}",
        "topics": ["secured"],
        "security": security,
    }
    fields = {"name": "shop", "lake": "lake", "source": source}
    component = load(f"type: cdc_pipeline.CdcPipeline\nattributes: {json.dumps(fields)}\n")
    assert isinstance(component.pipeline.source.find_new_records(None), NewRecords)
    assert PASSWORD not in repr(component)
    filled_in = {"security": {**security, "mechanism": "SCRAM-SHA-512", "password": PASSWORD}}
    assert component.pipeline.source == kafka.source("LOGIN_TLS", filled_in)
