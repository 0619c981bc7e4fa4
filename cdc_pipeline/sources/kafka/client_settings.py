"""One declaration of how to reach a broker, for its two readers: Spark (Java's client) and the sensor (librdkafka).

A pipeline's file has `options`: consumer settings by Java's names. For security the shorter names of librdkafka are
understood too (`sasl.username`, `sasl.password`, `ssl.ca.location`, …), because Java has none for them. Both clients get
what they need from either spelling. PEM files are read here and handed to Java as text, so that executors on other
machines need no file. (A key store in PKCS12 stays a file, which they need too.)
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
from cdc_pipeline.sources.kafka.secret_text import told_forms

if TYPE_CHECKING:
    from collections.abc import Mapping

# Java's class that fetches a token by client credentials (KIP-768), in the client of Spark 4.0's connector
_TOKEN_LOGIN = "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
_LOGIN_MODULES = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}
# the same meaning under the same name in both clients
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
# where a client's certificate is, and its key where that stands apart
_KEYS_OF = {
    "ssl.certificate.location": "ssl.key.location",
    "ssl.keystore.location": "",
    "ssl.keystore.certificate.chain": "ssl.keystore.key",
}
_HOST_CHECK = "ssl.endpoint.identification.algorithm"


@dataclass(frozen=True, repr=False)
class ClientSettings:
    """How to reach a broker. `options` are consumer settings by Java's or, for security, librdkafka's names; one whose value
    is empty is as one that is not there."""

    bootstrap_servers: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"ClientSettings({self.bootstrap_servers!r}, {sorted(self._given)})"  # names only: values may be secret

    @property
    def _given(self) -> dict[str, str]:
        found = {option_name(name): str(value) for name, value in self.options.items()}
        if "security.protocol" in found:
            found["security.protocol"] = found["security.protocol"].upper()  # as both clients take it
        return {name: value for name, value in found.items() if value or name == _HOST_CHECK}

    @property
    def protocol(self) -> str:
        return self._given.get("security.protocol", "PLAINTEXT")

    @property
    def _mechanism(self) -> str:
        return self._given.get("sasl.mechanism", self._given.get("sasl.mechanisms", "GSSAPI"))

    @property
    def _login(self) -> dict[str, str]:
        """What the login module is told: user and password, or client id and secret."""
        given = self._given
        found = jaas_options(given["sasl.jaas.config"]) if "sasl.jaas.config" in given else {}
        return {**found, **{name: given[option] for name, option in LOGIN_OPTIONS.items() if option in given}}

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must appear nowhere, in each form that they may take."""
        given, login = self._given, self._login
        hidden = [given[name] for name in sorted(SECRET_NAMES) if name in given]
        # a login module of somebody else's may have names of its own
        hidden += [value for name, value in login.items() if "password" in name.lower() or "secret" in name.lower()]
        if "clientId" in login and "clientSecret" in login:
            hidden.append(f"{login['clientId']}:{login['clientSecret']}")  # as a request for a token carries it
        with contextlib.suppress(SourceError):  # a file that cannot be read has told nobody anything
            hidden.append(self._java_certificates().get("ssl.keystore.key", ""))
        return told_forms(hidden)

    def checked(self) -> ClientSettings:
        """These settings. Raises ValueError, which names the option, where one is unknown, ours to set, or cannot be told to
        one of the two clients."""
        given = self._given
        option_rules.require_known(map(option_name, self.options))
        option_rules.require_protocol(given)
        option_rules.require_one_login(given)
        option_rules.require_login(given, self._login)
        option_rules.require_readable_stores(given)
        return self

    # ---- Java

    def java(self) -> dict[str, str]:
        """The settings for Spark, without its prefix. Raises SourceError where a certificate cannot be read."""
        given = self._given
        found = {name: value for name, value in given.items() if name in JAVA_NAMES}
        found["bootstrap.servers"] = self.bootstrap_servers
        if self.protocol.startswith("SASL"):
            found.update(self._java_login())
        made = self._java_certificates()
        # text in the place of files, and keys that are open: Java refuses what belongs to the others beside them
        for store, text in (("truststore", "certificates"), ("keystore", "certificate.chain")):
            if f"ssl.{store}.{text}" in made:
                for name in (f"ssl.{store}.location", f"ssl.{store}.password", "ssl.key.password"):
                    found.pop(name, None)
        return {**found, **made}

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
        for option, key in _KEYS_OF.items():
            if option in given and not (option == "ssl.keystore.location" and not self._has_pem_store):
                key = key if key in given else option
                found["ssl.keystore.type"] = "PEM"
                found["ssl.keystore.certificate.chain"] = certificates(self._pem(option), option)
                found["ssl.keystore.key"] = private_key(self._pem(key), key, given.get("ssl.key.password"))
        if _is_off(given):
            found[_HOST_CHECK] = ""
        return found

    @property
    def _has_pem_store(self) -> bool:
        return self._given.get("ssl.keystore.type", "").upper() == "PEM"

    def _pem(self, option: str) -> str:
        return pem_text(self._given[option], option) if option.endswith(".location") else self._given[option]

    # ---- librdkafka

    def librdkafka(self) -> dict[str, str]:
        """The settings for confluent-kafka: what concerns the connection."""
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
        if _is_off(given):
            found[_HOST_CHECK] = "none"
        return found


def _is_off(given: Mapping[str, str]) -> bool:
    """Whether host names of certificates are not to be checked: Java says it by an empty text, librdkafka by `none`."""
    return given.get(_HOST_CHECK) in ("", "none")
