"""Listeners of the broker, one per security protocol, and their broker settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_pipeline_tests.local_kafka.certificates import Certificates
from cdc_pipeline_tests.local_kafka.token_server import TokenServer

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

_MODULES: dict[Mechanism, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_TOKEN_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


@dataclass(frozen=True)
class Listener:
    """A listener and how its clients authenticate."""

    name: str
    """Letters, digits and underscores."""
    protocol: Protocol
    mechanisms: tuple[Mechanism, ...] = ()
    """SASL mechanisms; only with the SASL protocols, and required there."""
    client_certificate: bool = False
    """Require a client certificate; only with TLS."""

    def __post_init__(self) -> None:
        if self.protocol.startswith("SASL_") != bool(self.mechanisms):
            raise ValueError(f"listener {self.name}: {self.protocol} with mechanisms {self.mechanisms}")
        if self.client_certificate and not self.has_tls:
            raise ValueError(f"listener {self.name}: {self.protocol} does not support client certificates")

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


PLAINTEXT = Listener("PLAINTEXT", "PLAINTEXT")
"""Always open: for inter-broker communication, and to create topics and users."""


def listener_settings(
    listener: Listener, certificates: Certificates | None, users: Mapping[str, str], tokens: TokenServer | None
) -> dict[str, str]:
    """The broker settings of a listener. Raises ValueError if certificates or token server are missing."""
    prefix = f"listener.name.{listener.name.lower()}."
    settings: dict[str, str] = {}
    if listener.has_tls:
        if certificates is None:
            raise ValueError(f"listener {listener.name} needs certificates")
        settings |= _tls_settings(prefix, certificates, listener.client_certificate)
    if listener.mechanisms:
        settings[f"{prefix}sasl.enabled.mechanisms"] = ",".join(listener.mechanisms)
    for mechanism in listener.mechanisms:
        options = _plain_users(users) if mechanism == "PLAIN" else ""
        settings[f"{prefix}{mechanism.lower()}.sasl.jaas.config"] = f"{_MODULES[mechanism]} required{options};"
        if mechanism == "OAUTHBEARER":
            if tokens is None:
                raise ValueError(f"listener {listener.name} needs a token server")
            settings |= _oauth_settings(f"{prefix}oauthbearer.", tokens)
    return settings


def _tls_settings(prefix: str, certificates: Certificates, client_certificate: bool) -> dict[str, str]:
    settings = {
        f"{prefix}ssl.keystore.type": "PKCS12",
        f"{prefix}ssl.keystore.location": str(certificates.server_store),
        f"{prefix}ssl.keystore.password": certificates.password,
    }
    if client_certificate:
        settings |= {
            f"{prefix}ssl.client.auth": "required",
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": str(certificates.ca),
        }
    return settings


def _plain_users(users: Mapping[str, str]) -> str:
    """The users as options of a JAAS line, with backslashes and quotes escaped."""
    quoted = {name: password.replace("\\", "\\\\").replace('"', '\\"') for name, password in users.items()}
    return "".join(f' user_{name}="{password}"' for name, password in quoted.items())


def _oauth_settings(prefix: str, tokens: TokenServer) -> dict[str, str]:
    return {
        f"{prefix}sasl.server.callback.handler.class": _TOKEN_VALIDATOR,
        f"{prefix}sasl.oauthbearer.jwks.endpoint.url": tokens.keys_url,
        f"{prefix}sasl.oauthbearer.expected.issuer": tokens.issuer,
        f"{prefix}sasl.oauthbearer.expected.audience": tokens.audience,
    }
