"""What the settings of a broker must be for both clients to follow them, told when the pipeline is loaded.

Each function raises ValueError, which names the option and what is expected. No value stands in a text: one that is no
secret where it belongs may be one where it was put by mistake.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from cdc_pipeline.sources.kafka.jaas import jaas_options
from cdc_pipeline.sources.kafka.known_options import JAVA_NAMES, LIBRDKAFKA_NAMES, OWNED

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
"""What a login module of Java's is told, and librdkafka's option for it."""

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
    """Each is a setting of a consumer, and not one that the pipeline makes itself."""
    for name in names:
        if name in OWNED:
            raise ValueError(f"options: {name!r} is not to be set here: {OWNED[name]}")
        if name not in JAVA_NAMES and name not in LIBRDKAFKA_NAMES:
            near = difflib.get_close_matches(name, [*JAVA_NAMES, *LIBRDKAFKA_NAMES], n=1)
            hint = f"; do you mean {near[0]!r}?" if near else ""
            raise ValueError(f"options: {name!r} is no setting of a Kafka consumer{hint}")


def require_protocol(given: Mapping[str, str]) -> None:
    """What is there for TLS or a login is not passed over: without a protocol neither takes place."""
    protocol = given.get("security.protocol")
    if protocol is not None and protocol not in _PROTOCOLS:
        raise ValueError(f"options: security.protocol is none of {', '.join(_PROTOCOLS)}")
    for name in given:
        if protocol is None and name.startswith(("sasl.", "ssl.")):
            expected = "SASL_SSL or SASL_PLAINTEXT" if name.startswith("sasl.") else "SSL or SASL_SSL"
            raise ValueError(f"options: {name} is set, and security.protocol is not: {expected} is expected")


def require_login(given: Mapping[str, str], login: Mapping[str, str]) -> None:
    """Where the protocol has a login: everything that its mechanism needs, in a form that both clients know."""
    if not given.get("security.protocol", "").startswith("SASL"):
        return
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms"))
    if mechanism not in _NEEDED:
        raise ValueError(
            f"options: sasl.mechanism is none of {', '.join(_NEEDED)}, which both Spark and the sensor know"
        )
    if mechanism == "OAUTHBEARER":
        if f"{OAUTH}token.endpoint.url" not in given:
            raise ValueError(f"options: OAUTHBEARER needs {OAUTH}token.endpoint.url, where a token is fetched")
        if given.get(f"{OAUTH}method", "oidc") != "oidc":
            raise ValueError(f"options: {OAUTH}method is not oidc, the only one that both Spark and the sensor know")
    missing = [name for name in _NEEDED[mechanism] if not login.get(name)]
    if missing:
        raise ValueError(f"options: {mechanism} needs {LOGIN_OPTIONS[missing[0]]}, which is missing or empty")


def require_one_login(given: Mapping[str, str]) -> None:
    """`sasl.jaas.config` can be read, and says nothing else than the options beside it."""
    if "sasl.jaas.config" not in given:
        return
    try:
        found = jaas_options(given["sasl.jaas.config"])
    except ValueError as error:
        raise ValueError(f"options: sasl.jaas.config {error}") from None
    for name, option in LOGIN_OPTIONS.items():
        if option in given and given[option] != found.get(name):
            raise ValueError(f"options: sasl.jaas.config and {option} say different things; leave one of them out")


def require_readable_stores(given: Mapping[str, str]) -> None:
    """Certificates in a form that both clients read, each told once and with its key."""
    for store, readable, pem in (
        ("ssl.truststore", ("PEM",), "ssl.ca.location"),
        ("ssl.keystore", ("PEM", "PKCS12"), "ssl.certificate.location and ssl.key.location"),
    ):
        if f"{store}.location" in given and given.get(f"{store}.type", "JKS").upper() not in readable:
            raise ValueError(
                f"options: {store}.location is a Java key store, which only Java reads: give the certificates as PEM by "
                f"{pem}, which both Spark and the sensor are told of"
            )
    for names in _ONE_OF:
        found = [name for name in names if name in given]
        if len(found) > 1:
            raise ValueError(f"options: {found[0]} and {found[1]} say the same thing twice; leave one of them out")
    for name, other in _TOGETHER.items():
        if name in given and other not in given:
            raise ValueError(f"options: {name} needs {other}, which is missing or empty")
