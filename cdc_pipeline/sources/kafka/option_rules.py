"""Validates the consumer settings when the pipeline is loaded: both clients must support them.

Each function raises ValueError with the option's name and what is expected. Messages contain no values, because a secret may
be in the wrong option by mistake.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cdc_pipeline.sources.kafka.jaas import jaas_options
from cdc_pipeline.sources.kafka.known_options import CONTROLLED_OPTIONS, JAVA_NAMES, LIBRDKAFKA_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OAUTH = "sasl.oauthbearer."
LOGIN_OPTIONS = {
    "username": "sasl.username",
    "password": "sasl.password",
    "clientId": f"{OAUTH}client.id",
    "clientSecret": f"{OAUTH}client.secret",
    "scope": f"{OAUTH}scope",
}
"""Option of Java's login module → option of librdkafka."""

_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NEEDED = {
    "PLAIN": ("username", "password"),
    "SCRAM-SHA-256": ("username", "password"),
    "SCRAM-SHA-512": ("username", "password"),
    "OAUTHBEARER": ("clientId", "clientSecret"),
    "GSSAPI": (),
}
_ONE_OF = (
    ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates"),
    ("ssl.certificate.location", "ssl.keystore.location", "ssl.keystore.certificate.chain"),
)
_TOGETHER = {
    "ssl.key.location": "ssl.certificate.location",
    "ssl.keystore.key": "ssl.keystore.certificate.chain",
    "ssl.keystore.certificate.chain": "ssl.keystore.key",
}


def require_known(names: Iterable[str]) -> None:
    """Requires that each name is a consumer setting that the pipeline does not control."""
    for name in names:
        if name in CONTROLLED_OPTIONS:
            raise ValueError(f"options: {name!r} cannot be set here: {CONTROLLED_OPTIONS[name]}")
        if name not in JAVA_NAMES and name not in LIBRDKAFKA_NAMES:
            matches = difflib.get_close_matches(name, [*JAVA_NAMES, *LIBRDKAFKA_NAMES], n=1)
            hint = f"; do you mean {matches[0]!r}?" if matches else ""
            raise ValueError(f"options: {name!r} is not a setting of a Kafka consumer{hint}")


def require_isolation_level(given: Mapping[str, str]) -> None:
    """Requires a value of `isolation.level` that Java accepts, which compares the case."""
    if given.get("isolation.level", _ISOLATION_LEVELS[0]) not in _ISOLATION_LEVELS:
        raise ValueError(f"options: isolation.level must be one of {', '.join(_ISOLATION_LEVELS)}")


def require_protocol(given: Mapping[str, str]) -> None:
    """Requires `security.protocol` if an option for TLS or SASL is set: both clients ignore these options without it."""
    protocol = given.get("security.protocol")
    if protocol is not None and protocol not in _PROTOCOLS:
        raise ValueError(f"options: security.protocol must be one of {', '.join(_PROTOCOLS)}")
    for name in given:
        if protocol is None and name.startswith(("sasl.", "ssl.")):
            expected = "SASL_SSL or SASL_PLAINTEXT" if name.startswith("sasl.") else "SSL or SASL_SSL"
            raise ValueError(f"options: {name} is set but security.protocol is not; {expected} is expected")


def require_login(given: Mapping[str, str], login: Mapping[str, str]) -> None:
    """Requires, for a SASL protocol, a mechanism that both clients support and the options that it needs."""
    if not given.get("security.protocol", "").startswith("SASL"):
        return
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism not in _NEEDED:
        raise ValueError(
            f"options: sasl.mechanism must be one of {', '.join(_NEEDED)}, which both Spark and the sensor support"
        )
    if mechanism == "OAUTHBEARER":
        if f"{OAUTH}token.endpoint.url" not in given:
            raise ValueError(f"options: OAUTHBEARER needs {OAUTH}token.endpoint.url, from which it fetches a token")
        if given.get(f"{OAUTH}method", "oidc") != "oidc":
            raise ValueError(f"options: {OAUTH}method must be oidc, which both Spark and the sensor support")
    missing = [name for name in _NEEDED[mechanism] if not login.get(name)]
    if missing:
        raise ValueError(f"options: {mechanism} needs {LOGIN_OPTIONS[missing[0]]}, which is missing or empty")


def require_one_login(given: Mapping[str, str]) -> None:
    """Requires that `sasl.jaas.config` can be parsed and agrees with the other login options."""
    if "sasl.jaas.config" not in given:
        return
    try:
        found = jaas_options(given["sasl.jaas.config"])
    except ValueError as error:
        raise ValueError(f"options: sasl.jaas.config {error}") from None
    for name, option in LOGIN_OPTIONS.items():
        if option in given and given[option] != found.get(name):
            raise ValueError(f"options: sasl.jaas.config and {option} have different values; remove one of them")


def require_readable_stores(given: Mapping[str, str]) -> None:
    """Requires certificates in a format that both clients read, each set once and with its key."""
    for store, readable, pem in (
        ("ssl.truststore", ("PEM",), "ssl.ca.location"),
        ("ssl.keystore", ("PEM", "PKCS12"), "ssl.certificate.location and ssl.key.location"),
    ):
        if f"{store}.location" in given and given.get(f"{store}.type", "JKS").upper() not in readable:
            raise ValueError(
                f"options: {store}.location is a Java key store, which the sensor cannot read; set the certificates as PEM "
                f"with {pem}, which both Spark and the sensor support"
            )
    for names in _ONE_OF:
        found = [name for name in names if name in given]
        if len(found) > 1:
            raise ValueError(f"options: {found[0]} and {found[1]} set the same certificates; remove one of them")
    for name, other in _TOGETHER.items():
        if name in given and other not in given:
            raise ValueError(f"options: {name} needs {other}, which is missing or empty")
