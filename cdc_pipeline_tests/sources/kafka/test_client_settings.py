"""Settings of one connection for Java and librdkafka, checked with both clients."""

from __future__ import annotations

import json
import re
import traceback
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from py4j.protocol import Py4JJavaError
from pydantic import ValidationError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka.broker import Broker
from cdc_pipeline.sources.kafka.client_settings import ClientSettings, SecretText, is_secret, secret_forms
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline_tests.local_kafka.certificates import Certificates, create_certificates

SECRET = r"""Tr0ub4dor &"3\'é;"""
_MODULES = "org.apache.kafka.common.security"
_QUOTED = SECRET.replace("\\", "\\\\").replace('"', '\\"')
PLAIN_LINE = f'{_MODULES}.plain.PlainLoginModule required username="alice" password="{_QUOTED}";'
SCRAM_LINE = f'{_MODULES}.scram.ScramLoginModule required username="alice" password="{_QUOTED}";'
TOKEN_LINE = f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="alice" clientSecret="{_QUOTED}";'
URL = "http://127.0.0.1:9/token"


def _user(mechanism: str, protocol: str = "SASL_PLAINTEXT") -> dict[str, str]:
    return {"protocol": protocol, "mechanism": mechanism, "username": "alice", "password": SECRET}


def _java_login(mechanism: str, line: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": line}


def _librdkafka_login(mechanism: str) -> dict[str, str]:
    login = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": SECRET}
    return {"security.protocol": "SASL_PLAINTEXT", **login}


_TOKEN_JAVA = {
    **_java_login("OAUTHBEARER", TOKEN_LINE),
    "sasl.oauthbearer.token.endpoint.url": URL,
    "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
}
_TOKEN_LIBRDKAFKA = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "alice",
    "sasl.oauthbearer.client.secret": SECRET,
    "sasl.oauthbearer.token.endpoint.url": URL,
}
_TLS = {"security.protocol": "SSL"}
_CA_JAVA = {**_TLS, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "$$CA"}
_CERTIFICATE_JAVA = {
    **_TLS,
    "ssl.keystore.type": "PEM",
    "ssl.keystore.certificate.chain": "$$CERTIFICATE",
    "ssl.keystore.key": "$$KEY",
}
_JAVA_STORES = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "$CA"}
_HOST_CHECK = "ssl.endpoint.identification.algorithm"

# name → (fields of the source, Java's settings, librdkafka's settings); $CA, $CERTIFICATE, $KEY and $BOTH are paths of
# files, $$CA, $$CERTIFICATE, $$KEY and $$BOTH their contents
CASES: dict[str, tuple[dict[str, dict[str, Any]], dict[str, str], dict[str, str]]] = {
    "nothing": ({}, {}, {}),
    "Spark's prefix": ({"options": {"kafka.client.id": "a"}}, {"client.id": "a"}, {}),
    "options of any name": (
        {"options": {"fetch.max.bytes": 1000, "qqq": "r", "check.crcs": True}, "sensor_options": {"client.rack": "r"}},
        {"fetch.max.bytes": "1000", "qqq": "r", "check.crcs": "true"},
        {"client.rack": "r"},
    ),
    # Spark changes names to lower case, too
    "uncommitted records": (
        {"options": {"Kafka.Isolation.Level": "read_uncommitted"}},
        {"isolation.level": "read_uncommitted"},
        {},
    ),
    "PLAIN": ({"security": _user("PLAIN")}, _java_login("PLAIN", PLAIN_LINE), _librdkafka_login("PLAIN")),
    "SCRAM 256": (
        {"security": _user("SCRAM-SHA-256")},
        _java_login("SCRAM-SHA-256", SCRAM_LINE),
        _librdkafka_login("SCRAM-SHA-256"),
    ),
    "SCRAM 512": (
        {"security": _user("SCRAM-SHA-512")},
        _java_login("SCRAM-SHA-512", SCRAM_LINE),
        _librdkafka_login("SCRAM-SHA-512"),
    ),
    "OAUTHBEARER": (
        {
            "security": {"protocol": "SASL_PLAINTEXT"},
            "options": {name: value for name, value in _TOKEN_JAVA.items() if name != "security.protocol"},
            "sensor_options": _TOKEN_LIBRDKAFKA,
        },
        _TOKEN_JAVA,
        {"security.protocol": "SASL_PLAINTEXT", **_TOKEN_LIBRDKAFKA},
    ),
    "TLS": ({"security": {"protocol": "SSL"}}, _TLS, _TLS),
    "TLS, empty fields": (
        {"security": {"protocol": "SSL", "ca": "", "username": "", "password": "", "certificate": "", "key": ""}},
        _TLS,
        _TLS,
    ),
    "TLS with an authority": (
        {"security": {"protocol": "SSL", "ca": "$CA"}},
        _CA_JAVA,
        {**_TLS, "ssl.ca.location": "$CA"},
    ),
    "TLS, as text": ({"security": {"protocol": "SSL", "ca": "$$CA"}}, _CA_JAVA, {**_TLS, "ssl.ca.pem": "$$CA"}),
    "TLS by options": (
        {"options": {**_TLS, **_JAVA_STORES}, "sensor_options": {**_TLS, "ssl.ca.location": "$CA"}},
        {**_TLS, **_JAVA_STORES},
        {**_TLS, "ssl.ca.location": "$CA"},
    ),
    "TLS for any host": (
        {"security": {"protocol": "SSL"}, "options": {_HOST_CHECK: ""}, "sensor_options": {_HOST_CHECK: "none"}},
        {**_TLS, _HOST_CHECK: ""},
        {**_TLS, _HOST_CHECK: "none"},
    ),
    "client certificate": (
        {"security": {"protocol": "SSL", "certificate": "$CERTIFICATE", "key": "$KEY"}},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$KEY"},
    ),
    "client certificate and key in one file": (
        {"security": {"protocol": "SSL", "certificate": "$BOTH", "key": "$BOTH"}},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$BOTH", "ssl.key.location": "$BOTH"},
    ),
    "client certificate, as text": (
        {"security": {"protocol": "SSL", "certificate": "$$CERTIFICATE", "key": "$$KEY"}},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.pem": "$$CERTIFICATE", "ssl.key.pem": "$$KEY"},
    ),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return create_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def files(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pem")
    both, older = folder / "both.pem", folder / "older.pem"
    both.write_text(certificates.client_key.read_text() + "in between\n" + certificates.client_certificate.read_text())
    key: Any = load_pem_private_key(certificates.client_key.read_bytes(), None)
    older.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return {
        "CA": certificates.ca,
        "CERTIFICATE": certificates.client_certificate,
        "KEY": certificates.client_key,
        "BOTH": both,
        "OLDER": older,
    }


def _filled(options: dict[str, Any], files: dict[str, Path]) -> dict[str, Any]:
    found = {}
    for name, value in options.items():
        text = files[value[2:]].read_text() if str(value).startswith("$$") else value
        found[name] = str(files[value[1:]]) if re.fullmatch(r"\$[A-Z]+", str(value)) else text
    return found


def _source(**fields: Any) -> KafkaSource:
    return KafkaSource(type="kafka", bootstrap_servers="127.0.0.1:9", topics=["t"], **fields)


def _client(fields: dict[str, dict[str, Any]], files: dict[str, Path]) -> ClientSettings:
    return _source(**{name: _filled(options, files) for name, options in fields.items()}).client


def _blocks(text: str) -> str:
    """The text without white space if it is PEM: Java's keytool writes other line ends."""
    return "".join(text.split()) if "-----BEGIN" in text else text


def _same(found: dict[str, str], expected: dict[str, str]) -> bool:
    always = {"bootstrap.servers": "127.0.0.1:9", "security.protocol": "PLAINTEXT"}
    wanted = {name: _blocks(value) for name, value in {**always, **expected}.items()}
    return {name: _blocks(value) for name, value in found.items()} == wanted


def test_each_client_gets_what_it_knows(files: dict[str, Path]) -> None:
    wrong = []
    for name, (fields, java, librdkafka) in CASES.items():
        client = _client(fields, files)
        by_java = {"isolation.level": "read_committed", "fetch.max.wait.ms": "10", **java}
        for got, expected in ((client.java(), by_java), (client.librdkafka(), librdkafka)):
            if not _same(got, _filled(expected, files)):
                wrong.append((name, sorted(got), sorted(expected)))
    assert wrong == []


def test_librdkafka_accepts_the_settings(files: dict[str, Path]) -> None:
    for fields, _, _ in CASES.values():
        config: dict[str, Any] = {**_client(fields, files).librdkafka(), "log_level": 0}
        AdminClient(config)
    with pytest.raises(SourceError, match=r"settings of the Kafka broker .* are invalid: .*No such .*qqq"):
        Broker(_source(sensor_options={"qqq": "r"}).client)


def test_java_accepts_the_settings(spark: SparkSession, files: dict[str, Path]) -> None:
    """Java creates the client with its stores and its login, without connecting.

    With OAUTHBEARER it would request a token first, so only the settings are checked.
    """
    kafka: Any = jvm(spark).org.apache.kafka
    byte_array = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for fields, _, _ in CASES.values():
        found = {**_client(fields, files).java(), "key.deserializer": byte_array, "value.deserializer": byte_array}
        config: Any = jvm(spark).java.util.HashMap()
        for name, value in found.items():
            config.put(name, value)
        known = kafka.clients.consumer.ConsumerConfig(config)
        assert set(known.unused()) <= set(found)
        if found.get("sasl.mechanism") != "OAUTHBEARER":
            kafka.clients.consumer.KafkaConsumer(config).close()
    config.put("isolation.level", "READ_UNCOMMITTED")
    with pytest.raises(Py4JJavaError, match=r"Invalid value READ_UNCOMMITTED for configuration isolation\.level"):
        kafka.clients.consumer.ConsumerConfig(config)


def test_spark_refuses_options_that_would_change_what_is_read(spark: SparkSession) -> None:
    """So that the load of a pipeline need not."""
    for option, value in (
        ("auto.offset.reset", "latest"),
        ("enable.auto.commit", "true"),
        ("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
        ("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer"),
        ("interceptor.classes", "a.B"),
    ):
        settings = _source(options={option: value}).client.java()
        reader = spark.read.format("kafka").options(**{f"kafka.{name}": text for name, text in settings.items()})
        with pytest.raises(IllegalArgumentException, match=re.escape(option)):
            reader.option("subscribe", "t").load()


def test_java_reads_a_password_as_it_is(spark: SparkSession) -> None:
    java: Any = jvm(spark)
    context: Any = java.org.apache.kafka.common.security.JaasContext
    quotes = [SECRET, "\\", '\\"', "'", '"', "\\n", "\\101", "a\nb\r\tc"]
    for password in [*quotes, "a b", "é 漢 🎉", ";", "=", "//x", "/*", "#", " ", "1e5", "required"]:
        line = _source(security={**_user("PLAIN"), "password": password}).client.java()["sasl.jaas.config"]
        config = java.java.util.HashMap()
        config.put("sasl.jaas.config", java.org.apache.kafka.common.config.types.Password(line))
        (entry,) = context.loadClientContext(config).configurationEntries()
        assert dict(entry.getOptions()) == {"username": "alice", "password": password}


_DOOR = _user("PLAIN", "SASL_SSL")
_LOGIN_FIELDS = {name: value for name, value in _DOOR.items() if name != "protocol"}
# fields of the source → pattern of the message
REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"options": {"bootstrap.servers": SECRET}},
        "options\n.*'bootstrap.servers' cannot be set here: set the source's field",
    ),
    ({"options": {"Kafka.Bootstrap.Servers": SECRET}}, "'bootstrap.servers' cannot be set here"),
    ({"sensor_options": {"bootstrap.servers": SECRET}}, "sensor_options\n.*'bootstrap.servers' cannot be set here"),
    ({"sensor_options": {"metadata.broker.list": SECRET}}, "'metadata.broker.list' cannot be set here"),
    ({"options": {"sasl.password": [SECRET]}}, r"options.`sasl\.password`"),
    ({"sensor_options": {"sasl.password": None}}, r"sensor_options.`sasl\.password`"),
    ({"security": {**_DOOR, "pasword": SECRET}}, r"security\.pasword\n +Extra inputs"),
    ({"security": _LOGIN_FIELDS}, r"protocol PLAINTEXT ignores mechanism: SASL_SSL or SASL_PLAINTEXT is expected"),
    ({"security": {**_DOOR, "protocol": SECRET}}, r"security\.protocol\n +Input should be 'PLAINTEXT', 'SSL'"),
    ({"security": {**_DOOR, "mechanism": SECRET}}, r"security\.mechanism\n +Input should be 'PLAIN', 'SCRAM-SHA-256'"),
    ({"security": {**_DOOR, "password": [SECRET]}}, r"security\.password\n"),
    ({"security": {**_DOOR, "password": ""}}, "security\n.*mechanism needs password, which is missing or empty"),
    ({"security": {**_DOOR, "username": ""}}, "mechanism needs username, which is missing or empty"),
    ({"security": {**_DOOR, "mechanism": None}}, "username needs mechanism, which is missing or empty"),
    ({"security": {"protocol": "SSL", "password": SECRET}}, "password needs mechanism, which is missing"),
    ({"security": {**_DOOR, "protocol": "SSL"}}, "SSL ignores mechanism: SASL_SSL or SASL_PLAINTEXT is expected"),
    ({"security": {"protocol": "PLAINTEXT", "ca": SECRET}}, "PLAINTEXT ignores ca: SSL or SASL_SSL is expected"),
    ({"security": {**_user("PLAIN"), "ca": SECRET}}, "SASL_PLAINTEXT ignores ca: SSL or SASL_SSL is expected"),
    ({"security": {"protocol": "SSL", "key": SECRET}}, "key needs certificate, which is missing or empty"),
    ({"security": {"protocol": "SSL", "certificate": SECRET}}, "certificate needs key, which is missing or empty"),
]


def test_what_cannot_work_is_refused_at_load_without_its_value() -> None:
    for fields, expected in REFUSED:
        with pytest.raises(ValidationError) as caught:
            _source(**fields)
        text = str(caught.value)
        assert re.search(expected, text, re.MULTILINE), (expected, text)
        assert SECRET not in text
        assert repr(SECRET)[1:-1] not in text
        assert caught.value.__cause__ is None


_YAML = """
type: kafka
bootstrap_servers: b:1
topics: [t]
security: {protocol: "{{ env('CDC_NONE', 'SASL_SSL') }}", mechanism: PLAIN, username: "{{ env.CDC_TEST_PASSWORD }}", %s}
options: {max.poll.records: 5, check.crcs: true, %s}
"""
_WITHOUT_DEPRECATION = pytest.mark.filterwarnings(
    "ignore:`parse_obj_as` is deprecated:pydantic.warnings.PydanticDeprecatedSince20"
)


@_WITHOUT_DEPRECATION
def test_the_environment_gives_a_password_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dagster's template rendering would convert a text that looks like a Python literal."""
    passwords = ["1e5", "007", "0x10", "1_000", "True", "None", "'q'", "[1]", "{{ x }}", " a ", "a\n", '"', "#", SECRET]
    for template in (
        "{{ env.CDC_TEST_PASSWORD }}",
        "{{ env('CDC_TEST_PASSWORD') }}",
        "{{ env('CDC_NONE', env.CDC_TEST_PASSWORD) }}",
    ):
        for password in passwords:
            monkeypatch.setenv("CDC_TEST_PASSWORD", password)
            source = KafkaSource.resolve_from_yaml(
                _YAML % (f'password: "{template}"', f'ssl.key.password: "{template}"')
            )
            found = source.client.librdkafka()
            assert (found["sasl.username"], found["sasl.password"]) == (password, password)
            java = source.client.java()
            options = {"max.poll.records": "5", "check.crcs": "true", "ssl.key.password": password}
            assert options.items() <= java.items()


@_WITHOUT_DEPRECATION
def test_missing_environment_variables_are_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_PASSWORD", SECRET)
    known = "password: '{{ env.CDC_TEST_PASSWORD }}'"
    for security, options, expected in (
        (
            known,
            "client.id: '{{ env.CDC_NONE }}'",
            r"options\.client\.id: the environment variable CDC_NONE is not set",
        ),
        (known, "client.id: \"{{ env('CDC_NONE') }}\"", "'client.id' cannot be rendered: .* CDC_NONE is not set"),
        (known, "client.id: '{{ none }}'", "'client.id' cannot be rendered"),
        (known, "client.id: '{{ nobody }}'", "'client.id' cannot be rendered: 'nobody' is undefined"),
        ("password: '{{ env.CDC_NONE }}'", "", r"password: the environment variable CDC_NONE is not set"),
        (f"{known}, key: '{{{{ nobody }}}}'", "", r"source\.security\.key cannot be rendered: 'nobody' is undefined"),
    ):
        with pytest.raises(Exception, match=expected) as caught:
            KafkaSource.resolve_from_yaml(_YAML % (security, options))
        text = "".join(traceback.format_exception(caught.value))
        assert [form for form in secret_forms([SECRET]) if form in text] == []
    for field, expected in (
        ("options", "options: a mapping of settings"),
        ("security", "is text: a mapping of fields"),
    ):
        text = re.sub(f"{field}: .*", f"{field}: '{{{{ env.CDC_TEST_PASSWORD }}}}'", _YAML % (known, ""))
        with pytest.raises(Exception, match=f"{expected} is expected") as caught:
            KafkaSource.resolve_from_yaml(text)
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_invalid_certificate_is_reported_with_its_field(tmp_path: Path, files: dict[str, Path]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    own = {"certificate": "$CERTIFICATE"}
    for fields, expected in (
        ({"ca": str(tmp_path / "gone")}, "ca: the file cannot be read: No such file"),
        ({"ca": str(tmp_path / "binary")}, "ca: the file cannot be read: it is not text"),
        ({"ca": "$KEY"}, "ca: no block BEGIN CERTIFICATE in PEM format found"),
        ({**own, "key": "$CERTIFICATE"}, "key: no block BEGIN PRIVATE KEY in PEM format found; openssl pkcs8"),
        ({**own, "key": "$OLDER"}, "key: no block BEGIN PRIVATE KEY in PEM format found; openssl pkcs8"),
        ({**own, "key": "$$OLDER"}, "key: no block BEGIN PRIVATE KEY in PEM format found; openssl pkcs8"),
        # a key without its first line
        ({**own, "key": SECRET}, "key: the file cannot be read: No such file"),
        ({**own, "key": SECRET * 300}, "key: the file cannot be read: File name too long"),
    ):
        client = _client({"security": {"protocol": "SSL", **fields}}, files)
        with pytest.raises(SourceError, match=f"^source.security.{expected}") as caught:
            client.java()
        assert "Tr0ub4dor" not in "".join(traceback.format_exception(caught.value))
        with pytest.raises(SourceError, match=f"the settings of the Kafka broker .* are invalid: .*{expected}"):
            Broker(client)


def test_nothing_that_holds_a_secret_shows_it(files: dict[str, Path]) -> None:
    key = {"certificate": "$$BOTH", "key": "$$KEY"}
    source = _source(
        security=_filled({**_DOOR, **key}, files),
        options={"kafka.ssl.truststore.password": f"{SECRET}1", "my.passphrase": f"{SECRET}2"},
        sensor_options={"sasl.oauthbearer.client.secret": f"{SECRET}3"},
    )
    again = source.model_copy(deep=True)
    component = CdcPipeline(name="shop", source=source, lake="lake")
    held = [source, again, component, component.pipeline, source.source, source.client, source.security]
    held += [source.model_dump(), component.model_dump(), Broker(source.client)]
    with pytest.raises(ValidationError) as missing:
        CdcPipeline(source=source)  # type: ignore[call-arg]
    texts = [repr(found) for found in held] + [str(found) for found in held]
    texts += [source.model_dump_json(), component.model_dump_json(), str(missing.value), repr(missing.value.errors())]
    assert {SECRET, *(f"{SECRET}{number}" for number in (1, 2, 3))} <= set(source.client.secrets)
    for text in texts:
        assert [secret for secret in source.client.secrets if secret in text] == []
    assert source == again == KafkaSource.model_validate(source.model_dump())
    assert source.client.librdkafka()["sasl.password"] == SECRET
    dumped = json.loads(source.model_dump_json())
    assert (dumped["security"]["password"], dumped["security"]["key"]) == ("***", "***")
    assert dumped["options"] == {"ssl.truststore.password": "***", "my.passphrase": "***"}
    assert dumped["sensor_options"] == {"sasl.oauthbearer.client.secret": "***"}
    assert source != source.model_copy(update={"sensor_options": {"sasl.oauthbearer.client.secret": "x"}})


def test_secrets_are_known_by_their_names() -> None:
    secrets = ["password", "key", "keystore.key", "key.pem", "keystore.password", "truststore.password", "key.password"]
    others = ["keystore.location", "keystore.type", "key.location", "ca.location", "certificate.pem", "protocol"]
    names = {f"{prefix}ssl.{name}": True for prefix in ("", "kafka.", "KAFKA.") for name in secrets}
    names |= {f"ssl.{name}": False for name in others}
    names |= dict.fromkeys(["sasl.jaas.config", "sasl.oauthbearer.client.secret", "apiKey", "some.token"], True)
    names |= dict.fromkeys(["client.id", "sasl.mechanism", "max.poll.records", "sasl.username"], False)
    assert {name: is_secret(name) for name in names} == names


def test_each_form_of_a_secret_is_known(files: dict[str, Path]) -> None:
    client = _client({"security": {**_DOOR, "certificate": "$CERTIFICATE", "key": "$KEY"}}, files)
    jaas = client.java()["sasl.jaas.config"]
    key = files["KEY"].read_text()
    texts = [SECRET, repr(SECRET), json.dumps(SECRET), jaas, json.dumps({"a": jaas}), repr({"a": jaas}), key, repr(key)]
    for text in texts:
        found = text
        for secret in client.secrets:
            found = found.replace(secret, "***")
        assert "Tr0ub4dor" not in found
        assert key.split()[5] not in found
    lengths = [len(secret) for secret in client.secrets]
    assert lengths == sorted(lengths, reverse=True)
    assert "" not in client.secrets
    assert ClientSettings("b:1").secrets == secret_forms([""]) == ()
    assert f"{SecretText(SECRET)}" == SECRET
