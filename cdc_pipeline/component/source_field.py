"""The field `source`: the settings of each source type, and the `Source` that they declare."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import ConfigDict, Field, PlainSerializer, field_validator, model_validator

from cdc_pipeline.component.yaml_model import (
    Secret,
    YamlModel,
    limit,
    milliseconds,
    render_template,
    require_tso,
    resolver_by_type,
    secret_resolver,
    settings_resolver,
)
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.kafka.client_settings import HIDDEN, ClientSettings, SecretText, is_secret
from cdc_pipeline.sources.kafka.positions import CLOCK_SKEW_MS, Start, TopicSelection
from cdc_pipeline.sources.kafka.source import MAX_RECORDS, KafkaTopics
from cdc_pipeline.sources.source import Source
from cdc_pipeline.sources.storage.source import MAX_BYTES, TicdcStorage

Offsets = dict[str, dict[int, int]]
_BROKERS = ("bootstrap.servers", "metadata.broker.list")
_TOGETHER = ((("mechanism", "username", "password"), "SASL"), (("certificate", "key"), "SSL"), (("ca",), "SSL"))
"""Fields that need each other, and a part of the protocols that use them."""
Options = Annotated[
    dict[str, str | int | float | bool],
    PlainSerializer(
        lambda options: {name: HIDDEN if is_secret(name) else value for name, value in options.items()},
        when_used="json",
    ),
]
TopicTables = Annotated[
    dict[str, str],
    Field(
        description="The tables of topics that Flink writes, whose messages have no time and may name no table: topic, by "
        "its name in the lake, to database.table. Each table needs `keys`."
    ),
]


class CaptureFilesSource(YamlModel):
    """A folder of `*.jsonl` or `*.jsonl.gz` files. Each line is one record in the format of `kcat -C -J`."""

    type: Literal["capture_files"]
    path: Annotated[str, Field(min_length=1)]
    """The folder. Each run ingests the files that were added."""
    tables: TopicTables = {}

    @property
    def source(self) -> Source:
        return CaptureFiles(self.path)


class StartAt(YamlModel):
    """Start position of a pipeline without ingested records. Exactly one field is expected."""

    timestamp: str | int | None = None
    """Start at the first record with this or a later timestamp: 2026-11-22T10:00:00Z, or ms since 1970."""
    offsets: Offsets | None = None
    """First offset to read, per topic and partition."""
    commit_tso: int | None = None
    """Start at the first record whose timestamp is at most ten minutes before this TSO."""

    _require_tso = field_validator("commit_tso")(require_tso)

    @model_validator(mode="after")
    def _validate_start(self) -> StartAt:
        if sum(value is not None for value in (self.timestamp, self.offsets, self.commit_tso)) != 1:
            raise ValueError("one of timestamp, offsets and commit_tso is expected")
        _ = self.start
        return self

    @property
    def start(self) -> Start:
        if self.offsets is not None:
            return Start("offsets", offsets=_by_partition(self.offsets))
        if self.commit_tso is not None:
            return Start("time", time_ms=(self.commit_tso >> TSO_SHIFT) - CLOCK_SKEW_MS)
        return Start("time", time_ms=milliseconds("timestamp", self.timestamp))


class SecuritySettings(YamlModel):
    """TLS and login of both clients. Certificates and keys are PEM: the path of a file, or its text."""

    # errors must not show the value, which may be a password
    model_config = ConfigDict(hide_input_in_errors=True)

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of the listener."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """SASL mechanism. For others use options and sensor_options."""
    username: Annotated[str, secret_resolver("source.security.username")] = ""
    """User of the login."""
    password: Annotated[Secret, secret_resolver("source.security.password")] = ""
    """Secret: password of the login, from the environment."""
    ca: str = ""
    """Certificates of the authorities that sign the brokers' certificates."""
    # its file may contain the key
    certificate: Secret = ""
    """Certificate of the client."""
    key: Annotated[Secret, secret_resolver("source.security.key")] = ""
    """Private key of the client in PKCS#8 (BEGIN PRIVATE KEY). Its text is a secret."""

    @model_validator(mode="after")
    def _validate_fields(self) -> SecuritySettings:
        for names, needed in _TOGETHER:
            given = [name for name in names if getattr(self, name)]
            if given and len(given) < len(names):
                (missing, *_) = (name for name in names if name not in given)
                raise ValueError(f"{given[0]} needs {missing}, which is missing or empty")
            if given and needed not in self.protocol:
                expected = "SASL_SSL or SASL_PLAINTEXT" if needed == "SASL" else "SSL or SASL_SSL"
                raise ValueError(f"protocol {self.protocol} ignores {given[0]}: {expected} is expected")
        return self


def options_resolver(field: str) -> dg.Resolver:
    """Resolves a mapping of settings with its templates rendered. Errors contain the setting's name, but no value."""

    def resolve(context: dg.ResolutionContext, model: Any) -> Options:
        if not isinstance(model, dict):
            raise ValueError(f"{field}: a mapping of settings is expected")
        options: Options = {}
        for name, value in model.items():
            try:
                options[name] = render_template(context, value) if isinstance(value, str) else value
            except Exception as error:
                raise ValueError(f"{field}: {name!r} cannot be rendered: {error}") from None
        return options

    return dg.Resolver(resolve, model_field_type=Options)


def validate_options(value: Options) -> Options:
    """The options as Kafka's clients read them: lower-case names without Spark's prefix, values as text.

    Raises ValueError if one names brokers, which the other client would not see.
    """
    texts = {
        name.lower().removeprefix("kafka."): str(option).lower() if isinstance(option, bool) else str(option)
        for name, option in value.items()
    }
    for name in _BROKERS:
        if name in texts:
            raise ValueError(f"{name!r} cannot be set here: set the source's field bootstrap_servers instead")
    return {name: SecretText(text) if is_secret(name) else text for name, text in texts.items()}


class KafkaSource(YamlModel):
    """Topics of a Kafka cluster."""

    # errors must not show the value, which may be a password
    model_config = ConfigDict(hide_input_in_errors=True)

    type: Literal["kafka"]
    bootstrap_servers: Annotated[str, Field(min_length=1)]
    """Comma-separated list of host:port."""
    topics: list[str] = []
    """Names of the topics."""
    topic_pattern: str | None = None
    """Regular expression on complete topic names. New topics that match are ingested, too."""
    start: Annotated[
        Literal["earliest", "latest"] | StartAt, settings_resolver(StartAt, from_text=lambda value: value)
    ] = "earliest"
    """Start position if the lake has no records yet: earliest, latest, or one of timestamp, offsets and commit_tso. New
    topics and partitions are read from their first record."""
    max_records_per_batch: int = MAX_RECORDS
    """Maximum number of offsets per batch. A run ingests all available batches."""
    security: Annotated[SecuritySettings, settings_resolver(SecuritySettings)] = SecuritySettings()
    """TLS and login of both clients: Spark's and the one that reads metadata."""
    options: Annotated[Options, options_resolver("options")] = {}
    """Settings of Spark's consumer by their Java names, passed on unchecked. isolation.level is read_committed by
    default."""
    sensor_options: Annotated[Options, options_resolver("sensor_options")] = {}
    """Settings of the metadata client, which the sensor and runs use, by their names in librdkafka, passed on
    unchecked."""
    publish_group: str | None = None
    """Consumer group to which each run commits its offsets, for lag monitoring. It is never read."""
    made_anew: dict[str, str] = {}
    """New name in the lake for a topic that was deleted and recreated: topic to name."""
    resume_at: Offsets = {}
    """Offset to continue at after records expired before they were read, per topic and partition."""
    ended: list[str] = []
    """Topics (by their names in the lake) without further records. They no longer limit the resolved TSO."""
    tables: TopicTables = {}

    @model_validator(mode="after")
    def _validate_topics(self) -> KafkaSource:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("either topics or topic_pattern is expected")
        return self

    @field_validator("topic_pattern")
    @classmethod
    def _validate_topic_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from None
        return value

    _limit_records = limit("max_records_per_batch", least=1)

    @field_validator("made_anew")
    @classmethod
    def _validate_made_anew(cls, value: dict[str, str]) -> dict[str, str]:
        names = list(value.values())
        if len(set(names)) < len(names) or not all(names):
            raise ValueError("each topic needs a different name")
        return value

    _validate_options = field_validator("options", "sensor_options")(validate_options)

    @property
    def client(self) -> ClientSettings:
        security = {name: value for name, value in self.security if value}
        given = (self.options, self.sensor_options)
        options, sensor_options = ({name: str(value) for name, value in found.items()} for found in given)
        return ClientSettings(self.bootstrap_servers, options, sensor_options, security)

    @property
    def source(self) -> Source:
        start = Start(self.start) if isinstance(self.start, str) else self.start.start
        selection = TopicSelection(
            tuple(self.topics),
            self.topic_pattern,
            start,
            dict(self.made_anew),
            _by_partition(self.resume_at),
            frozenset(self.ended),
        )
        return KafkaTopics(self.client, selection, self.max_records_per_batch, self.publish_group)


def _by_partition(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


class TicdcStorageSource(YamlModel):
    """A folder that TiCDC's storage sink writes with protocol=canal-json."""

    type: Literal["ticdc_storage"]
    path: Annotated[str, Field(min_length=1)]
    """Folder or Hadoop URI of the changefeed's sink URI."""
    topic: Annotated[str, Field(min_length=1)] = "ticdc_storage"
    """Topic name of the records in the lake."""
    max_bytes_per_batch: int = MAX_BYTES
    """Maximum size of the files of a batch, in bytes. A run ingests all available batches."""

    _limit_bytes = limit("max_bytes_per_batch", least=1)

    @property
    def source(self) -> Source:
        return TicdcStorage(self.path, self.topic, self.max_bytes_per_batch)


SourceField = Annotated[
    CaptureFilesSource | KafkaSource | TicdcStorageSource,
    resolver_by_type("source", capture_files=CaptureFilesSource, kafka=KafkaSource, ticdc_storage=TicdcStorageSource),
]
