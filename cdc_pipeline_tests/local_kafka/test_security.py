"""Every listener accepts clients with valid credentials and rejects others."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc_pipeline_tests.local_kafka.conftest import PASSWORD, SECRET, Kafka
from cdc_pipeline_tests.local_kafka.listeners import Listener, listener_settings
from cdc_pipeline_tests.support.servers.kafka_clients import consumed, filled, values

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALUES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    return filled(kafka.broker.bootstrap, "secured", VALUES)


def tls(kafka: Kafka) -> dict[str, Any]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(kafka.certificates.ca)}


def login(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def bearer(kafka: Kafka, secret: str = SECRET) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.token.endpoint.url": kafka.tokens.token_url,
    }


def refused(kafka: Kafka, listener: str, topic: str, settings: dict[str, Any]) -> tuple[int, str]:
    with pytest.raises(KafkaException) as caught:
        consumed(kafka.broker.addresses[listener], topic, 1, settings)
    error = caught.value.args[0]
    return error.code(), error.str()


def test_two_listeners_show_the_same_records(kafka: Kafka, topic: str) -> None:
    assert values(consumed(kafka.broker.bootstrap, topic, 3)) == VALUES
    assert values(consumed(kafka.broker.addresses["TLS"], topic, 3, tls(kafka))) == VALUES


def test_the_client_shows_its_certificate_in_either_form(kafka: Kafka, topic: str) -> None:
    made = kafka.certificates
    as_store = {"ssl.keystore.location": str(made.client_store), "ssl.keystore.password": made.password}
    as_pem = {"ssl.certificate.location": str(made.client_certificate), "ssl.key.location": str(made.client_key)}
    for own in (as_store, as_pem):
        assert values(consumed(kafka.broker.addresses["TLS_BOTH"], topic, 3, {**tls(kafka), **own})) == VALUES


def test_a_client_without_a_certificate_is_refused_where_one_is_asked_for(kafka: Kafka, topic: str) -> None:
    assert refused(kafka, "TLS_BOTH", topic, tls(kafka))[0] in {KafkaError._SSL, KafkaError._TRANSPORT}


def test_a_client_that_trusts_somebody_else_does_not_trust_the_broker(kafka: Kafka, topic: str) -> None:
    other = {"security.protocol": "SSL", "ssl.ca.location": str(kafka.certificates.client_certificate)}
    code, said = refused(kafka, "TLS", topic, other)
    # librdkafka detects the failed handshake in one of two places, each with its own code
    assert code in {KafkaError._SSL, KafkaError._TRANSPORT}
    assert "certificate verify failed" in said


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_logs_in(kafka: Kafka, topic: str, mechanism: str) -> None:
    assert values(consumed(kafka.broker.addresses["LOGIN"], topic, 3, login(mechanism))) == VALUES
    encrypted = {**login(mechanism), **tls(kafka), "security.protocol": "SASL_SSL"}
    assert values(consumed(kafka.broker.addresses["LOGIN_TLS"], topic, 3, encrypted)) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused(kafka: Kafka, topic: str, mechanism: str) -> None:
    assert refused(kafka, "LOGIN", topic, login(mechanism, "wrong"))[0] == KafkaError._AUTHENTICATION


def test_a_client_logs_in_with_a_token(kafka: Kafka, topic: str) -> None:
    given = len(kafka.tokens.issued)
    assert values(consumed(kafka.broker.addresses["LOGIN"], topic, 3, bearer(kafka))) == VALUES
    encrypted = {**bearer(kafka), **tls(kafka), "security.protocol": "SASL_SSL"}
    assert values(consumed(kafka.broker.addresses["LOGIN_TLS"], topic, 3, encrypted)) == VALUES
    assert kafka.tokens.issued[given:] == ["alice", "alice"]


def test_a_client_without_the_secret_gets_no_token(kafka: Kafka, topic: str) -> None:
    code, said = refused(kafka, "LOGIN", topic, bearer(kafka, "wrong"))
    assert code == KafkaError._AUTHENTICATION
    assert "invalid_client" in said


def test_a_listener_without_what_it_needs_is_refused_before_the_start() -> None:
    with pytest.raises(ValueError, match="TLS needs certificates"):
        listener_settings(Listener("TLS", "SSL"), None, {}, None)
    with pytest.raises(ValueError, match="T needs a token server"):
        listener_settings(Listener("T", "SASL_PLAINTEXT", ("OAUTHBEARER",)), None, {}, None)
    with pytest.raises(ValueError, match="with mechanisms"):
        Listener("T", "SASL_PLAINTEXT")
    with pytest.raises(ValueError, match="does not support client certificates"):
        Listener("T", "PLAINTEXT", client_certificate=True)
