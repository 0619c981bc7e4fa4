"""Converts one set of consumer settings for two clients: Java's (used by Spark) and librdkafka (used by the sensor).

`options` has Java's names. For security it may also have librdkafka's short names (`sasl.username`, `sasl.password`,
`ssl.ca.location`, …), which Java lacks. Both clients work with either spelling. PEM files are read here and passed to Java
as text, so executors need no file. A PKCS12 key store remains a file, which executors need too.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka import option_rules
from cdc_pipeline.sources.kafka.jaas import OAUTHBEARER, PLAIN, SCRAM, jaas_line, jaas_options
from cdc_pipeline.sources.kafka.known_options import JAVA_NAMES, LIBRDKAFKA_NAMES, SECRET_NAMES, option_name
from cdc_pipeline.sources.kafka.option_rules import LOGIN_OPTIONS, OAUTH
from cdc_pipeline.sources.kafka.pem import certificates, pem_text, private_key
from cdc_pipeline.sources.kafka.secret_text import secret_forms

if TYPE_CHECKING:
    from collections.abc import Mapping

# Java's class that fetches a token with client credentials (KIP-768), in the Kafka client of Spark 4.0's connector
_TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
_LOGIN_MODULES = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}
# options with the same name and meaning in both clients
_SHARED = (
    "security.protocol",
    "client.id",
    "client.rack",
    "client.dns.lookup",
    "ssl.key.password",
    "sasl.kerberos.service.name",
    "metadata.max.age.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
)
# option of the client certificate → option of its key; "" if the same file contains both
_KEY_OPTIONS = {
    "ssl.certificate.location": "ssl.key.location",
    "ssl.keystore.location": "",
    "ssl.keystore.certificate.chain": "ssl.keystore.key",
}
_ISOLATION_LEVEL = "isolation.level"
_LONGEST_FETCH = "fetch.max.wait.ms"
"""How long a broker keeps a fetch without records. Spark's reader asks for offsets on the connection on which its next fetch
waits already, so that Java's default (500) delays each partition by half a second."""
_HOST_CHECK = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True, repr=False)
class ClientSettings:
    """The settings of a connection to a broker."""

    bootstrap_servers: str
    options: Mapping[str, str]
    """Consumer settings with Java's names or, for security, librdkafka's. An empty value counts as not set."""

    def __repr__(self) -> str:
        return f"ClientSettings({self.bootstrap_servers!r}, {sorted(self._given)})"  # names only: values may be secrets

    @property
    def _given(self) -> dict[str, str]:
        found = {option_name(name): str(value) for name, value in self.options.items()}
        if "security.protocol" in found:
            found["security.protocol"] = found["security.protocol"].upper()  # both clients ignore the case
        return {name: value for name, value in found.items() if value or name == _HOST_CHECK}

    @property
    def protocol(self) -> str:
        return self._given.get("security.protocol", "PLAINTEXT")

    @property
    def reads_uncommitted(self) -> bool:
        """Whether records of aborted and open transactions are read, too. Both clients' own defaults do so."""
        return self._given.get(_ISOLATION_LEVEL) == "read_uncommitted"

    @property
    def _mechanism(self) -> str:
        return self._given.get("sasl.mechanism", self._given.get("sasl.mechanisms", "GSSAPI"))

    @property
    def _login(self) -> dict[str, str]:
        """Options of the login module: user and password, or client id and secret."""
        given = self._given
        found = jaas_options(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else {}
        return {**found, **{name: given[option] for name, option in LOGIN_OPTIONS.items() if option in given}}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in any output, in each encoding (`secret_forms`)."""
        given, login = self._given, self._login
        hidden = [given[name] for name in sorted(SECRET_NAMES) if name in given]
        # a custom login module may have other names
        hidden += [value for name, value in login.items() if "password" in name.lower() or "secret" in name.lower()]
        if "clientId" in login and "clientSecret" in login:
            hidden.append(f"{login['clientId']}:{login['clientSecret']}")  # as a request for a token carries it
        with contextlib.suppress(SourceError):  # an unreadable file cannot leak its key
            hidden.append(self._java_certificates().get("ssl.keystore.key", ""))
        return secret_forms(hidden)

    def validate(self) -> ClientSettings:
        """Returns these settings if both clients support them. Raises ValueError with the option's name otherwise."""
        given = self._given
        option_rules.require_known(map(option_name, self.options))
        option_rules.require_isolation_level(given)
        option_rules.require_protocol(given)
        option_rules.require_one_login(given)
        option_rules.require_login(given, self._login)
        option_rules.require_readable_stores(given)
        return self

    # ---- Java

    def java(self) -> dict[str, str]:
        """The settings for Java's client, without Spark's prefix. Raises SourceError if a certificate cannot be read."""
        given = self._given
        found = {name: value for name, value in given.items() if name in JAVA_NAMES}
        found["bootstrap.servers"] = self.bootstrap_servers
        found.setdefault(_ISOLATION_LEVEL, "read_committed")
        found.setdefault(_LONGEST_FETCH, "10")
        if self.protocol.startswith("SASL"):
            found.update(self._java_login())
        stores = self._java_certificates()
        # Java rejects locations and passwords next to certificates as text and unencrypted keys
        for store, text in (("truststore", "certificates"), ("keystore", "certificate.chain")):
            if f"ssl.{store}.{text}" in stores:
                for name in (f"ssl.{store}.location", f"ssl.{store}.password", "ssl.key.password"):
                    found.pop(name, None)
        return {**found, **stores}

    def _java_login(self) -> dict[str, str]:
        found = {"sasl.mechanism": self._mechanism}
        if "sasl.jaas.config" not in self._given:
            if self._mechanism in _LOGIN_MODULES:
                login = self._login_options("username", "password")
                found["sasl.jaas.config"] = jaas_line(_LOGIN_MODULES[self._mechanism], login)
            elif self._mechanism == "OAUTHBEARER":
                login = self._login_options("clientId", "clientSecret", "scope")
                found["sasl.jaas.config"] = jaas_line(OAUTHBEARER, login)
        if self._mechanism == "OAUTHBEARER" and "sasl.login.callback.handler.class" not in self._given:
            found["sasl.login.callback.handler.class"] = _TOKEN_LOGIN
        return found

    def _login_options(self, *names: str) -> dict[str, str]:
        return {name: self._login[name] for name in names if name in self._login}

    def _java_certificates(self) -> dict[str, str]:
        given, found = self._given, {}
        for option in ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates"):
            if option in given:
                found["ssl.truststore.type"] = "PEM"
                found["ssl.truststore.certificates"] = certificates(self._pem(option), option)
        for option, key in _KEY_OPTIONS.items():
            if option in given and not (option == "ssl.keystore.location" and not self._has_pem_store):
                key = key if key in given else option
                found["ssl.keystore.type"] = "PEM"
                found["ssl.keystore.certificate.chain"] = certificates(self._pem(option), option)
                found["ssl.keystore.key"] = private_key(self._pem(key), key, given.get("ssl.key.password"))
        if _skips_host_check(given):
            found[_HOST_CHECK] = ""
        return found

    @property
    def _has_pem_store(self) -> bool:
        return self._given.get("ssl.keystore.type", "").upper() == "PEM"

    def _pem(self, option: str) -> str:
        return pem_text(self._given[option], option) if option.endswith(".location") else self._given[option]

    # ---- librdkafka

    def librdkafka(self) -> dict[str, str]:
        """The connection's settings for librdkafka. Settings of the consumer itself are left out."""
        given = self._given
        found = {name: given[name] for name in _SHARED if name in given}
        found.update({name: given[name] for name in LIBRDKAFKA_NAMES if name in given and not name.startswith("sasl.")})
        found["bootstrap.servers"] = self.bootstrap_servers
        if self.protocol.startswith("SASL"):
            found["sasl.mechanism"] = self._mechanism
            found.update(self._librdkafka_login())
        return {**found, **self._librdkafka_certificates()}

    def _librdkafka_login(self) -> dict[str, str]:
        login = self._login
        if self._mechanism in _LOGIN_MODULES:
            return {"sasl.username": login["username"], "sasl.password": login["password"]}
        if self._mechanism != "OAUTHBEARER":
            return {}
        found = {
            f"{OAUTH}method": "oidc",
            f"{OAUTH}client.id": login["clientId"],
            f"{OAUTH}client.secret": login["clientSecret"],
            f"{OAUTH}token.endpoint.url": self._given[f"{OAUTH}token.endpoint.url"],
        }
        return {**found, **({f"{OAUTH}scope": login["scope"]} if "scope" in login else {})}

    def _librdkafka_certificates(self) -> dict[str, str]:
        given, found = self._given, {}
        if location := given.get("ssl.truststore.location"):
            found["ssl.ca.location"] = location
        if text := given.get("ssl.truststore.certificates"):
            found["ssl.ca.pem"] = text
        if (location := given.get("ssl.certificate.location")) and "ssl.key.location" not in given:
            found["ssl.key.location"] = location
        if location := given.get("ssl.keystore.location"):
            if self._has_pem_store:
                found.update({"ssl.certificate.location": location, "ssl.key.location": location})
            else:
                found["ssl.keystore.location"] = location
                found["ssl.keystore.password"] = given.get("ssl.keystore.password", "")
        if text := given.get("ssl.keystore.certificate.chain"):
            found.update({"ssl.certificate.pem": text, "ssl.key.pem": given["ssl.keystore.key"]})
        if _skips_host_check(given):
            found[_HOST_CHECK] = "none"
        return found


def _skips_host_check(given: Mapping[str, str]) -> bool:
    """Whether host name verification is disabled: in Java with an empty value, in librdkafka with `none`."""
    return given.get(_HOST_CHECK) in ("", "none")
