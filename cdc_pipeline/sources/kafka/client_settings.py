"""Settings of a connection for two clients: Java's, by which Spark reads records, and librdkafka, which reads metadata.

`security` applies to both. PEM files are read here and passed to Java as text, so executors need no file. The other settings
are passed on unchecked, each to its client. Secret values must not appear in outputs, in any encoding.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, quote_plus

from cdc_pipeline.errors import SECRET_SETTINGS, SourceError

HIDDEN = "***"
_MIN_LINE = 16
"""A shorter last line of a key reveals nothing, and could occur in any text."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----(.*?)-----END", re.DOTALL)


class SecretText(str):
    """A string whose `repr` is hidden, also within mappings, pydantic models and pydantic errors, which use `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"'{HIDDEN}'"


def is_secret(name: str) -> bool:
    """Whether the values of settings with this name must not appear in any output."""
    return re.search(SECRET_SETTINGS, name) is not None


def jaas_escaped(text: str) -> str:
    """The text as it stands between double quotes in a JAAS entry, where a line end is not allowed."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each secret, plain and encoded as in JAAS, JSON, Python's `repr`, a URL and Base64.

    Longest first, because one form may contain another. Of a private key also each line, because Java and Python encode line
    ends differently.
    """
    found: set[str] = set()
    for secret in secrets:
        lines = "\n".join(_PRIVATE_KEY.findall(secret)).split()
        for text in (str(secret), *(line for line in lines if len(line) >= _MIN_LINE)):
            found |= _forms(text)
    return tuple(sorted(found - {""}, key=lambda form: (-len(form), form)))


def _forms(text: str) -> set[str]:
    raw, plain = text.encode("utf-8", errors="surrogatepass"), (text, jaas_escaped(text))
    encoded = {base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()}
    encoded |= {form.rstrip("=") for form in encoded}
    # also a JAAS entry within JSON or within another repr
    forms = ((repr(found), json.dumps(found), json.dumps(found, ensure_ascii=False)) for found in plain)
    quoted = {form[1:-1] for found in forms for form in found}
    return {*plain, *quoted, *encoded, quote(raw, safe=""), quote(raw), quote_plus(raw)}


_FIELDS = {
    "protocol": ("security.protocol", "security.protocol", None),
    "mechanism": ("sasl.mechanism", "sasl.mechanism", None),
    "username": (None, "sasl.username", None),
    "password": (None, "sasl.password", None),
    "ca": ("ssl.truststore.certificates", "ssl.ca", "CERTIFICATE"),
    "certificate": ("ssl.keystore.certificate.chain", "ssl.certificate", "CERTIFICATE"),
    "key": ("ssl.keystore.key", "ssl.key", "PRIVATE KEY"),
}
"""Field of `security` → Java's setting, librdkafka's setting, label of its PEM blocks.

Java has user and password within `sasl.jaas.config`. librdkafka has `ssl.ca.location` for a path, `ssl.ca.pem` for text.
"""
_MODULES = {"PLAIN": "plain.Plain", "SCRAM-SHA-256": "scram.Scram", "SCRAM-SHA-512": "scram.Scram"}
_LOGIN = 'org.apache.kafka.common.security.{}LoginModule required username="{}" password="{}";'
_DEFAULTS = {
    "isolation.level": "read_committed",
    # How long a broker keeps a fetch without records. Spark's reader asks for offsets on the connection on which its next
    # fetch waits already, so that Java's default (500) delays each partition by half a second.
    "fetch.max.wait.ms": "10",
}


@dataclass(frozen=True, repr=False)
class ClientSettings:
    """The settings of a connection to a broker."""

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of Java's consumer."""
    sensor_options: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka."""
    security: Mapping[str, str] = field(default_factory=dict)
    """The fields of `source.security` that are set. PEM fields have text or the path of a file."""

    def __repr__(self) -> str:
        names = sorted([*self.security, *self.options, *self.sensor_options])
        return f"ClientSettings({self.bootstrap_servers!r}, {names})"  # names only: values may be secrets

    @property
    def reads_uncommitted(self) -> bool:
        """Whether records of aborted and open transactions are read, too. Both clients' own defaults do so."""
        return self.options.get("isolation.level") == "read_uncommitted"

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not appear in any output, in each encoding (`secret_forms`)."""
        options = (*self.options.items(), *self.sensor_options.items())
        hidden = [self.security.get("password", ""), *(value for name, value in options if is_secret(name))]
        with contextlib.suppress(SourceError, KeyError):  # an unreadable file cannot leak its key
            hidden.append(self._java_value("key"))
        return secret_forms(hidden)

    def java(self) -> dict[str, str]:
        """The settings for Java's client, without Spark's prefix. Raises SourceError if a PEM field cannot be read."""
        given = self.security
        found = {java: self._java_value(name) for name, (java, _, _) in _FIELDS.items() if java and name in given}
        if "mechanism" in given:
            user, password = jaas_escaped(given["username"]), jaas_escaped(given["password"])
            found["sasl.jaas.config"] = _LOGIN.format(_MODULES[given["mechanism"]], user, password)
        stores = {"ssl.truststore.type": "ca", "ssl.keystore.type": "key"}
        found.update({option: "PEM" for option, name in stores.items() if name in given})
        return {**_DEFAULTS, **found, **self.options, "bootstrap.servers": self.bootstrap_servers}

    def librdkafka(self) -> dict[str, str]:
        """The settings for librdkafka."""
        found = {"bootstrap.servers": self.bootstrap_servers}
        for name, value in self.security.items():
            _, option, label = _FIELDS[name]
            form = "" if label is None else ".pem" if _is_pem(value) else ".location"
            found[option + form] = value
        return {**found, **self.sensor_options}

    def _java_value(self, name: str) -> str:
        """The value of a field of `security`; of a PEM field the text of its certificates or its key.

        Raises SourceError without the value, which may be a key in place of a path.
        """
        value, label = self.security[name], _FIELDS[name][2]
        if label is None:
            return value
        try:
            text = value if _is_pem(value) else Path(value).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text; PEM is expected"
            raise SourceError(f"source.security.{name}: the file cannot be read: {reason}") from None
        mark = rf"(?:ENCRYPTED )?{label}-----"
        blocks = re.findall(rf"-----BEGIN {mark}.*?-----END {mark}", text, re.DOTALL)
        if not blocks:
            # Java reads PKCS#8 only
            advice = "; openssl pkcs8 -topk8 -nocrypt converts other keys" if name == "key" else ""
            raise SourceError(f"source.security.{name}: no block BEGIN {label} in PEM format found{advice}")
        return "".join(f"{block}\n" for block in blocks)


def _is_pem(value: str) -> bool:
    return "-----BEGIN" in value
