"""One broker with all kinds of listeners, shared by the tests that do not stop it: a start takes two seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from cdc_pipeline_tests.local_kafka.broker import LocalBroker
from cdc_pipeline_tests.local_kafka.certificates import Certificates, create_certificates
from cdc_pipeline_tests.local_kafka.listeners import Listener
from cdc_pipeline_tests.local_kafka.token_server import TokenServer

# characters with a meaning in JAAS, in a properties file, or in the storage tool's syntax
PASSWORD = r"""a "quoted\ p=ss,word];'#é$"""
SECRET = "client-secret"

ALL_LISTENERS = (
    Listener("TLS", "SSL"),
    Listener("TLS_BOTH", "SSL", client_certificate=True),
    Listener("LOGIN", "SASL_PLAINTEXT", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
    Listener("LOGIN_TLS", "SASL_SSL", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")),
)


@dataclass(frozen=True)
class Kafka:
    """The shared broker with certificates and tokens for its clients."""

    broker: LocalBroker
    certificates: Certificates
    tokens: TokenServer


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    certificates = create_certificates(tmp_path_factory.mktemp("certificates"))
    folder = tmp_path_factory.mktemp("kafka")
    with (
        TokenServer({"alice": SECRET}) as tokens,
        LocalBroker(
            folder, ALL_LISTENERS, users={"alice": PASSWORD}, certificates=certificates, tokens=tokens
        ) as broker,
    ):
        yield Kafka(broker, certificates, tokens)
