"""Conversion of one set of options for Java and librdkafka, checked with both clients."""

from __future__ import annotations

import json
import re
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_pipeline.component.component import CdcPipeline
from cdc_pipeline.component.source_field import KafkaSource
from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.kafka.broker import Broker
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.jaas import PLAIN, jaas_line, jaas_options
from cdc_pipeline.sources.kafka.known_options import JAVA_NAMES
from cdc_pipeline.sources.kafka.secret_text import SecretText, secret_forms
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline_tests.local_kafka.certificates import Certificates, create_certificates

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SECRET = r"""Tr0ub4dor &"3\'é;"""
_MODULES = "org.apache.kafka.common.security"
_QUOTED = SECRET.replace("\\", "\\\\").replace('"', '\\"')
PLAIN_LINE = f'{_MODULES}.plain.PlainLoginModule required username="alice" password="{_QUOTED}";'
SCRAM_LINE = f'{_MODULES}.scram.ScramLoginModule required username="alice" password="{_QUOTED}";'
TOKEN_LINE = (
    f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="alice" clientSecret="{_QUOTED}" scope="kafka";'
)
TOKEN_LOGIN = f"{_MODULES}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
URL = "http://127.0.0.1:9/token"
SASL = {"security.protocol": "SASL_PLAINTEXT"}
USER = {"sasl.username": "alice", "sasl.password": SECRET}
CLIENT = {
    "sasl.oauthbearer.client.id": "alice",
    "sasl.oauthbearer.client.secret": SECRET,
    "sasl.oauthbearer.scope": "kafka",
}
ENDPOINT = {"sasl.oauthbearer.token.endpoint.url": URL}


def _login(mechanism: str, line: str) -> dict[str, str]:
    return {**SASL, "sasl.mechanism": mechanism, "sasl.jaas.config": line}


def _user(mechanism: str) -> dict[str, str]:
    return {**SASL, "sasl.mechanism": mechanism, **USER}


_TOKEN_JAVA = {**_login("OAUTHBEARER", TOKEN_LINE), **ENDPOINT, "sasl.login.callback.handler.class": TOKEN_LOGIN}
_TOKEN_LIBRDKAFKA = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    **CLIENT,
    **ENDPOINT,
}
_TLS = {"security.protocol": "SSL"}
_CERTIFICATE_JAVA = {
    **_TLS,
    "ssl.keystore.type": "PEM",
    "ssl.keystore.certificate.chain": "$$CERTIFICATE",
    "ssl.keystore.key": "$$KEY",
}

# name → (options, Java's settings, librdkafka's settings); $CA, $CERTIFICATE, $KEY and $STORE are paths of files,
# $$CA, $$CERTIFICATE and $$KEY their contents
CASES: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str]]] = {
    "nothing": ({}, {}, {}),
    "Spark's prefix": ({"kafka.client.id": "a"}, {"client.id": "a"}, {"client.id": "a"}),
    "only for Java": ({"fetch.max.bytes": "1000", "max.poll.records": "9"},) * 2 + ({},),  # type: ignore[dict-item]
    "uncommitted records": ({"kafka.isolation.level": "read_uncommitted"}, {"isolation.level": "read_uncommitted"}, {}),
    "for both": ({"reconnect.backoff.ms": "20", "client.dns.lookup": "use_all_dns_ips", "client.rack": "r"},) * 3,  # type: ignore[dict-item]
    "an empty value": ({"client.id": "", "ssl.ca.location": "", "security.protocol": "SSL"}, _TLS, _TLS),
    "a protocol in small letters": ({"security.protocol": "ssl"}, _TLS, _TLS),
    "PLAIN, librdkafka's names": (_user("PLAIN"), _login("PLAIN", PLAIN_LINE), _user("PLAIN")),
    "PLAIN, Java's names": (_login("PLAIN", PLAIN_LINE), _login("PLAIN", PLAIN_LINE), _user("PLAIN")),
    "PLAIN, small letters": (
        {**_user("PLAIN"), "security.protocol": "sasl_plaintext"},
        _login("PLAIN", PLAIN_LINE),
        _user("PLAIN"),
    ),
    "PLAIN, librdkafka's name of mechanisms": (
        {**SASL, "sasl.mechanisms": "PLAIN", **USER},
        _login("PLAIN", PLAIN_LINE),
        _user("PLAIN"),
    ),
    "SCRAM 256": (_user("SCRAM-SHA-256"), _login("SCRAM-SHA-256", SCRAM_LINE), _user("SCRAM-SHA-256")),
    "SCRAM 512": (_login("SCRAM-SHA-512", SCRAM_LINE),) * 2 + (_user("SCRAM-SHA-512"),),  # type: ignore[dict-item]
    "OAUTHBEARER, librdkafka's names": (_TOKEN_LIBRDKAFKA, _TOKEN_JAVA, _TOKEN_LIBRDKAFKA),
    "OAUTHBEARER, Java's names": (_TOKEN_JAVA, _TOKEN_JAVA, _TOKEN_LIBRDKAFKA),
    "TLS, librdkafka's names": (
        {**_TLS, "ssl.ca.location": "$CA"},
        {**_TLS, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "$$CA"},
        {**_TLS, "ssl.ca.location": "$CA"},
    ),
    "TLS, Java's names": (
        {**_TLS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "$CA", "ssl.truststore.password": "x"},
        {**_TLS, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "$$CA"},
        {**_TLS, "ssl.ca.location": "$CA"},
    ),
    "TLS, as text": (
        {**_TLS, "ssl.truststore.certificates": "$$CA"},
        {**_TLS, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": "$$CA"},
        {**_TLS, "ssl.ca.pem": "$$CA"},
    ),
    "TLS for any host, Java's way": (
        {**_TLS, "ssl.endpoint.identification.algorithm": ""},
        {**_TLS, "ssl.endpoint.identification.algorithm": ""},
        {**_TLS, "ssl.endpoint.identification.algorithm": "none"},
    ),
    "TLS for any host, librdkafka's way": (
        {**_TLS, "ssl.endpoint.identification.algorithm": "none"},
        {**_TLS, "ssl.endpoint.identification.algorithm": ""},
        {**_TLS, "ssl.endpoint.identification.algorithm": "none"},
    ),
    "client certificate": (
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$KEY"},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$KEY"},
    ),
    "client certificate and key in one file": (
        {**_TLS, "ssl.certificate.location": "$BOTH"},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$BOTH", "ssl.key.location": "$BOTH"},
    ),
    "client certificate, as text": (
        {**_TLS, "ssl.keystore.certificate.chain": "$$CERTIFICATE", "ssl.keystore.key": "$$KEY"},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.pem": "$$CERTIFICATE", "ssl.key.pem": "$$KEY"},
    ),
    "client certificate, Java's PEM file": (
        {**_TLS, "ssl.keystore.type": "PEM", "ssl.keystore.location": "$BOTH"},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$BOTH", "ssl.key.location": "$BOTH"},
    ),
    "a key with a password": (
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$LOCKED", "ssl.key.password": SECRET},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$LOCKED", "ssl.key.password": SECRET},
    ),
    "a key in OpenSSL's older form": (
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$OLDER"},
        _CERTIFICATE_JAVA,
        {**_TLS, "ssl.certificate.location": "$CERTIFICATE", "ssl.key.location": "$OLDER"},
    ),
    "client certificate, PKCS12": (
        (
            {
                **_TLS,
                "ssl.keystore.type": "PKCS12",
                "ssl.keystore.location": "$STORE",
                "ssl.keystore.password": "throw-away",
            },
        )
        * 2  # type: ignore[dict-item]
        + ({**_TLS, "ssl.keystore.location": "$STORE", "ssl.keystore.password": "throw-away"},)
    ),
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return create_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def files(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pem")
    both, locked, older = folder / "both.pem", folder / "locked.pem", folder / "older.pem"
    both.write_text(certificates.client_key.read_text() + "in between\n" + certificates.client_certificate.read_text())
    key: Any = load_pem_private_key(certificates.client_key.read_bytes(), None)
    encryption = BestAvailableEncryption(SECRET.encode())
    locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
    older.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return {
        "CA": certificates.ca,
        "CERTIFICATE": certificates.client_certificate,
        "KEY": certificates.client_key,
        "BOTH": both,
        "LOCKED": locked,
        "OLDER": older,
        "STORE": certificates.client_store,
    }


def _filled(options: dict[str, str], files: dict[str, Path]) -> dict[str, str]:
    found = {}
    for name, value in options.items():
        text = files[value[2:]].read_text() if value.startswith("$$") else value
        found[name] = str(files[value[1:]]) if re.fullmatch(r"\$[A-Z]+", value) else text
    return found


def _blocks(text: str) -> str:
    """The text without white space if it is PEM: Java's keytool writes other line ends."""
    return "".join(text.split()) if "-----BEGIN" in text else text


def _same(found: dict[str, str], expected: dict[str, str]) -> bool:
    return {name: _blocks(value) for name, value in found.items()} == {
        name: _blocks(value) for name, value in {"bootstrap.servers": "127.0.0.1:9", **expected}.items()
    }


def test_each_client_gets_what_it_knows(files: dict[str, Path]) -> None:
    wrong = []
    for name, (options, java, librdkafka) in CASES.items():
        client = ClientSettings("127.0.0.1:9", _filled(options, files)).validate()
        by_java = {"isolation.level": "read_committed", "fetch.max.wait.ms": "10", **java}
        for got, expected in ((client.java(), by_java), (client.librdkafka(), librdkafka)):
            if not _same(got, _filled(expected, files)):
                wrong.append((name, sorted(got), sorted(expected)))
    assert wrong == []


def test_librdkafka_accepts_the_settings(files: dict[str, Path]) -> None:
    for options, _, _ in CASES.values():
        client = ClientSettings("127.0.0.1:9", _filled(options, files))
        config: dict[str, Any] = {**client.librdkafka(), "log_level": 0}
        AdminClient(config)


def test_java_accepts_the_settings(spark: SparkSession, files: dict[str, Path]) -> None:
    """Java creates the client with its stores and its login, without connecting.

    With OAUTHBEARER it would request a token first, so only the settings are checked.
    """
    kafka: Any = jvm(spark).org.apache.kafka
    byte_array = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for options, _, _ in CASES.values():
        client = ClientSettings("127.0.0.1:9", _filled(options, files))
        found = {**client.java(), "key.deserializer": byte_array, "value.deserializer": byte_array}
        config: Any = jvm(spark).java.util.HashMap()
        for name, value in found.items():
            config.put(name, value)
        known = kafka.clients.consumer.ConsumerConfig(config)
        assert set(known.unused()) <= set(found)
        if found.get("sasl.mechanism") != "OAUTHBEARER":
            kafka.clients.consumer.KafkaConsumer(config).close()


def test_the_names_are_those_of_java(spark: SparkSession) -> None:
    kafka: Any = jvm(spark).org.apache.kafka
    assert set(kafka.clients.consumer.ConsumerConfig.configNames()) >= JAVA_NAMES


# Texts that a YAML file can contain as a password. A test below compares with Java's parser of JAAS.
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30)


@given(_VALUES, _VALUES)
@settings(max_examples=300, deadline=None)
def test_a_jaas_line_reads_back(username: str, password: str) -> None:
    options = {"username": username, "password": password}
    assert jaas_options(jaas_line(PLAIN, options)) == options


def test_java_reads_a_jaas_line_as_we_do(spark: SparkSession) -> None:
    passwords = [
        SECRET,
        "a b",
        "\\",
        '\\"',
        "'",
        "é 漢 🎉",
        "a\nb\r\tc",
        "\\n",
        "\\101",
        ";",
        "=",
        "//x",
        "/*",
        "#",
        " ",
    ]
    lines = [jaas_line(PLAIN, {"username": "a", "password": password}) for password in passwords]
    lines += [
        "a.b.C required password = bare.word-1 ;",
        "a.b.C REQUIRED password='single \" \\' \\101\\t' ; // the end",
        'a.b.C /* none */ optional\n password="x" other=$y_1 // more\n;',
        'a.b.C required "quoted"="x" ;',
        "a.b.C required ;",
    ]
    context: Any = jvm(spark).org.apache.kafka.common.security.JaasContext
    java: Any = jvm(spark)
    for line in lines:
        config = java.java.util.HashMap()
        config.put("sasl.jaas.config", java.org.apache.kafka.common.config.types.Password(line))
        (entry,) = context.loadClientContext(config).configurationEntries()
        assert dict(entry.getOptions()) == jaas_options(line)


_DOOR = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
# options → pattern of the message
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sasl.pasword": SECRET}, "'sasl.pasword' is not a setting of a Kafka consumer; do you mean 'sasl.password'?"),
    ({"kafka.sasl.jaas.confg": SECRET}, "'sasl.jaas.confg' is not a setting .* 'sasl.jaas.config'"),
    ({"qqq": SECRET}, r"'qqq' is not a setting of a Kafka consumer \["),
    ({"bootstrap.servers": "x"}, "'bootstrap.servers' cannot be set here: set the source's field bootstrap_servers"),
    ({"isolation.level": "READ_COMMITTED"}, "isolation.level must be one of read_committed, read_uncommitted"),
    ({"kafka.isolation.level": True}, "isolation.level must be one of read_committed, read_uncommitted"),
    ({"auto.offset.reset": "latest"}, "'auto.offset.reset' cannot be set here: the source's field start"),
    ({"kafka.enable.auto.commit": True}, "'enable.auto.commit' cannot be set here"),
    ({**_DOOR, "sasl.username": "a"}, "PLAIN needs sasl.password, which is missing or empty"),
    ({**_DOOR, **USER, "sasl.password": ""}, "PLAIN needs sasl.password, which is missing or empty"),
    ({**_DOOR, "sasl.password": SECRET}, "PLAIN needs sasl.username"),
    ({**_DOOR, **USER, "sasl.mechanism": SECRET}, "sasl.mechanism must be one of PLAIN, SCRAM-SHA-256"),
    ({**SASL, **USER}, "sasl.mechanism must be one of PLAIN, SCRAM-SHA-256"),
    ({**_DOOR, **USER, "security.protocol": SECRET}, "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT"),
    (USER, "sasl.username is set but security.protocol is not; SASL_SSL or SASL_PLAINTEXT is expected"),
    ({"ssl.key.password": SECRET}, "ssl.key.password is set but security.protocol is not; SSL or SASL_SSL"),
    ({**SASL, **CLIENT, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
    (
        {**SASL, **ENDPOINT, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.client.id": "a"},
        "OAUTHBEARER needs sasl.oauthbearer.client.secret",
    ),
    ({**_TOKEN_LIBRDKAFKA, "sasl.oauthbearer.method": "default"}, "sasl.oauthbearer.method must be oidc"),
    ({**_DOOR, "sasl.jaas.config": f"x.Y required password={SECRET}"}, "sasl.jaas.config is not a JAAS entry"),
    ({**_DOOR, "sasl.jaas.config": PLAIN_LINE[:-1]}, "sasl.jaas.config is not a JAAS entry, or does not end with"),
    ({**_login("PLAIN", PLAIN_LINE), "sasl.password": "other"}, "sasl.jaas.config and sasl.password have different"),
    (
        {**_TLS, "ssl.truststore.location": "t.jks", "ssl.truststore.password": SECRET},
        "ssl.truststore.location is a Java",
    ),
    ({**_TLS, "ssl.truststore.location": "t.p12", "ssl.truststore.type": "PKCS12"}, "as PEM with ssl.ca.location"),
    ({**_TLS, "ssl.keystore.location": "t.jks"}, "as PEM with ssl.certificate.location and ssl.key.location"),
    ({**_TLS, "ssl.ca.location": "a", "ssl.truststore.certificates": "b"}, "set the same certificates"),
    ({**_TLS, "ssl.key.location": "a"}, "ssl.key.location needs ssl.certificate.location"),
    ({**_TLS, "ssl.keystore.key": SECRET}, "ssl.keystore.key needs ssl.keystore.certificate.chain"),
    ({**_DOOR, **USER, "sasl.password": [SECRET]}, r"options.`sasl\.password`"),
    ({**_DOOR, **USER, "sasl.password": None}, r"options.`sasl\.password`"),
]


def test_what_cannot_work_is_refused_at_load_without_its_value() -> None:
    for options, expected in REFUSED:
        with pytest.raises(ValidationError) as caught:
            KafkaSource(type="kafka", bootstrap_servers="b:1", topics=["t"], options=options)
        text = str(caught.value)
        assert re.search(expected, text, re.MULTILINE), (expected, text)
        assert SECRET not in text
        assert repr(SECRET)[1:-1] not in text
        assert caught.value.__cause__ is None


_YAML = """
type: kafka
bootstrap_servers: b:1
topics: [t]
options: {security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: a, max.poll.records: 5, check.crcs: true, %s}
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
            source = KafkaSource.resolve_from_yaml(_YAML % f'sasl.password: "{template}"')
            assert source.client.librdkafka()["sasl.password"] == password
            assert source.options["max.poll.records"] == 5
            assert source.client.java()["check.crcs"] == "true"


@_WITHOUT_DEPRECATION
def test_missing_environment_variables_are_reported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_TEST_PASSWORD", SECRET)
    known = "sasl.password: '{{ env.CDC_TEST_PASSWORD }}'"
    for options, expected in (
        (
            f"{known}, client.id: '{{{{ env.CDC_NONE }}}}'",
            r"options\.client\.id: the environment variable CDC_NONE is not set",
        ),
        (
            f"{known}, client.id: \"{{{{ env('CDC_NONE') }}}}\"",
            "'client.id' cannot be rendered: .* CDC_NONE is not set",
        ),
        (f"{known}, client.id: '{{{{ none }}}}'", "'client.id' cannot be rendered"),
        (f"{known}, client.id: '{{{{ nobody }}}}'", "'client.id' cannot be rendered: 'nobody' is undefined"),
        (f"{known}, client.idd: x", "'client.idd' is not a setting"),
    ):
        with pytest.raises(Exception, match=expected) as caught:
            KafkaSource.resolve_from_yaml(_YAML % options)
        text = "".join(traceback.format_exception(caught.value))
        assert [form for form in secret_forms([SECRET]) if form in text] == []
    text = re.sub(r"options: .*", "options: '{{ env.CDC_TEST_PASSWORD }}'", _YAML % "")
    with pytest.raises(Exception, match="a mapping of settings is expected") as caught:
        KafkaSource.resolve_from_yaml(text)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_invalid_certificate_is_reported_with_its_option(tmp_path: Path, files: dict[str, Path]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "damaged").write_text("-----BEGIN EC PRIVATE KEY-----\nMHc=\n-----END EC PRIVATE KEY-----")
    own = {"ssl.certificate.location": str(files["CERTIFICATE"])}
    for options, expected in (
        ({"ssl.ca.location": str(tmp_path / "gone")}, "ssl.ca.location: .* cannot be read: No such file"),
        ({"ssl.ca.location": str(tmp_path / "binary")}, "ssl.ca.location: .* it is not text"),
        ({"ssl.ca.location": str(files["KEY"])}, "ssl.ca.location: no certificate in PEM format found"),
        ({**own, "ssl.key.location": str(files["CERTIFICATE"])}, "ssl.key.location: no private key in PEM format"),
        ({**own, "ssl.key.location": str(tmp_path / "damaged")}, "ssl.key.location: the private key .* damaged"),
        (
            {**own, "ssl.key.location": str(files["LOCKED"])},
            "ssl.key.location: .* ssl.key.password does not decrypt it",
        ),
        (
            {**own, "ssl.key.location": str(files["LOCKED"]), "ssl.key.password": "wrong"},
            "ssl.key.location: .* ssl.key.password does not decrypt it",
        ),
        (own, "ssl.certificate.location: no private key in PEM format"),
    ):
        client = ClientSettings("b:1", {**_TLS, **options}).validate()
        with pytest.raises(SourceError, match=f"^{expected}"):
            client.java()
        with pytest.raises(SourceError, match=f"the settings of the Kafka broker b:1 are invalid: {expected}"):
            Broker(client)


def test_nothing_that_holds_a_secret_shows_it(files: dict[str, Path]) -> None:
    key = {"ssl.certificate.location": str(files["CERTIFICATE"]), "ssl.key.location": str(files["KEY"])}
    password = {"ssl.key.password": SECRET, "kafka.ssl.truststore.password": SECRET}
    source = KafkaSource(
        type="kafka",
        bootstrap_servers="b:1",
        topics=["t"],
        options={**_user("PLAIN"), **key, **password, "security.protocol": "SASL_SSL"},
    )
    again = source.model_copy(deep=True)
    component = CdcPipeline(name="shop", source=source, lake="lake")
    held = [source, again, component, component.pipeline, source.source, source.client, Broker(source.client)]
    held += [source.model_dump(), component.model_dump()]
    with pytest.raises(ValidationError) as missing:
        CdcPipeline(source=source)  # type: ignore[call-arg]
    texts = [repr(found) for found in held] + [str(found) for found in held]
    texts += [source.model_dump_json(), component.model_dump_json(), str(missing.value), repr(missing.value.errors())]
    for text in texts:
        assert [secret for secret in source.client.secrets if secret in text] == []
    assert source == again == KafkaSource.model_validate(source.model_dump())
    assert source.options["sasl.password"] == SECRET
    assert json.loads(source.model_dump_json())["options"]["sasl.password"] == "***"
    assert source != source.model_copy(update={"options": {**source.options, "sasl.password": "x"}})
    assert source.client.librdkafka()["sasl.password"] == SECRET


def test_each_form_of_a_secret_is_known(files: dict[str, Path]) -> None:
    options = {**_TOKEN_LIBRDKAFKA, "security.protocol": "SASL_SSL", "ssl.key.location": str(files["KEY"])}
    client = ClientSettings("b:1", {**options, "ssl.certificate.location": str(files["CERTIFICATE"])})
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
    assert ClientSettings("b:1", {}).secrets == secret_forms([""]) == ()
    assert f"{SecretText(SECRET)}" == SECRET
