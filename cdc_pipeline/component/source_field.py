"""The field `source`: the settings of each source type, and the `Source` that they declare."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import dagster as dg
from jinja2 import Environment, StrictUndefined
from pydantic import ConfigDict, Discriminator, Field, Tag, field_serializer, field_validator, model_validator

from cdc_pipeline.component.json_schema import ByType, YamlModel
from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.known_options import SECRET_NAMES, option_name
from cdc_pipeline.sources.kafka.secret_text import HIDDEN, SecretText
from cdc_pipeline.sources.kafka.source import MAX_RECORDS, KafkaTopics
from cdc_pipeline.sources.kafka.topic_selection import CLOCK_SKEW_MS, Start, TopicSelection
from cdc_pipeline.sources.source import Source  # noqa: TC001  # Dagster reads the annotations
from cdc_pipeline.sources.storage.source import MAX_BYTES, TicdcStorage

Offsets = dict[str, dict[int, int]]
Options = dict[str, str | int | float | bool]


class CaptureFilesSource(YamlModel):
    """A folder of `*.jsonl` or `*.jsonl.gz` files. Each line is one record in the format of `kcat -C -J`."""

    type: Literal["capture_files"]
    path: Annotated[str, Field(min_length=1, description="The folder. Each run ingests the files that were added.")]

    @property
    def source(self) -> Source:
        return CaptureFiles(self.path)


class StartAt(YamlModel):
    """Start position of a pipeline without ingested records. Exactly one field is expected."""

    timestamp: Annotated[
        str | int | None,
        Field(
            description="Start at the first record with this or a later timestamp: 2026-11-22T10:00:00Z, or ms since 1970."
        ),
    ] = None
    offsets: Annotated[Offsets | None, Field(description="First offset to read, per topic and partition.")] = None
    commit_tso: Annotated[
        int | None,
        Field(description="Start at the first record whose timestamp is at most ten minutes before this TSO."),
    ] = None

    @model_validator(mode="after")
    def _validate_start(self) -> StartAt:
        if sum(value is not None for value in (self.timestamp, self.offsets, self.commit_tso)) != 1:
            raise ValueError("one of timestamp, offsets and commit_tso is expected")
        if self.commit_tso is not None and not FIRST_TSO <= self.commit_tso <= LAST_TSO:
            raise ValueError(
                f"commit_tso: {self.commit_tso} is not a TSO: a number such as 470613987560259584 is expected"
            )
        _ = self.start
        return self

    @property
    def start(self) -> Start:
        if self.offsets is not None:
            return Start("offsets", offsets=_by_partition(self.offsets))
        if self.commit_tso is not None:
            return Start("time", time_ms=(self.commit_tso >> TSO_SHIFT) - CLOCK_SKEW_MS)
        return Start("time", time_ms=_milliseconds(str(self.timestamp)))


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"\d{13}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"timestamp: {text!r} is not an instant: 2026-11-22T10:00:00Z or ms since 1970 (13 digits) is expected"
        )
    return int(moment.timestamp() * 1000)


def _resolve_start(context: dg.ResolutionContext, model: Any) -> Any:
    if isinstance(model, str):
        return context.resolve_value(model)
    return StartAt.resolve_from_model(context, model)


def _require_value(value: Any) -> Any:
    if value is None:
        raise ValueError("an environment variable is not set")
    return value


# Dagster's own renderer evaluates the result as Python: it turns the password 1e5 into 100000.0, and '1' into 1.
_TEMPLATES = Environment(
    finalize=_require_value, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False
)


def _resolve_options(context: dg.ResolutionContext, model: Any) -> Options:
    """The options with rendered templates. Errors contain the option name, but no value."""
    if not isinstance(model, dict):
        raise ValueError("options: a mapping of settings is expected")
    options: Options = {}
    for name, value in model.items():
        try:
            options[name] = render_template(context, value) if isinstance(value, str) else value
        except Exception as error:
            raise ValueError(f"options: {name!r} cannot be rendered: {error}") from None
    return options


def render_template(context: dg.ResolutionContext, text: str) -> str:
    """The text with its templates rendered. Errors contain no values."""
    return _TEMPLATES.from_string(text).render(**context.scope)


class KafkaSource(YamlModel):
    """Topics of a Kafka cluster."""

    # errors must not show the value, which may be a password
    model_config = ConfigDict(hide_input_in_errors=True)

    type: Literal["kafka"]
    bootstrap_servers: Annotated[str, Field(min_length=1, description="Comma-separated list of host:port.")]
    topics: Annotated[list[str], Field(description="Names of the topics.")] = []  # noqa: RUF012  # pydantic copies it
    topic_pattern: Annotated[
        str | None,
        Field(description="Regular expression on complete topic names. New topics that match are ingested, too."),
    ] = None
    start: Annotated[
        Literal["earliest", "latest"] | StartAt,
        dg.Resolver(_resolve_start, model_field_type=str | StartAt.model()),
        Field(
            description="Start position if the lake has no records yet: earliest, latest, or one of timestamp, offsets and "
            "commit_tso. New topics and partitions are read from their first record."
        ),
    ] = "earliest"
    max_records_per_batch: Annotated[
        int, Field(description="Maximum number of offsets per batch. A run ingests all available batches.")
    ] = MAX_RECORDS
    options: Annotated[
        Options,
        dg.Resolver(_resolve_options, model_field_type=Options),
        Field(
            description="Consumer settings by their Java names. Security settings of librdkafka, such as sasl.username, "
            "sasl.password and ssl.ca.location, work, too. They apply to Spark and to the sensor. isolation.level is "
            "read_committed by default."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    publish_group: Annotated[
        str | None,
        Field(
            description="Consumer group to which each run commits its offsets, for lag monitoring. It is never read."
        ),
    ] = None
    made_anew: Annotated[
        dict[str, str],
        Field(description="New name in the lake for a topic that was deleted and recreated: topic to name."),
    ] = {}  # noqa: RUF012  # pydantic copies it
    resume_at: Annotated[
        Offsets,
        Field(
            description="Offset to continue at after records expired before they were read, per topic and partition."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    ended: Annotated[
        list[str],
        Field(
            description="Topics (by their names in the lake) without further records. They no longer limit the resolved TSO."
        ),
    ] = []  # noqa: RUF012  # pydantic copies it

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

    @field_validator("max_records_per_batch")
    @classmethod
    def _validate_max_records(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is not a number of records: 1 or more is expected")
        return value

    @field_validator("options")
    @classmethod
    def _wrap_secrets(cls, value: Options) -> Options:
        return {
            name: SecretText(_text(option)) if option_name(name) in SECRET_NAMES else option
            for name, option in value.items()
        }

    @field_serializer("options", when_used="json")
    def _redact_options(self, value: Options) -> Options:
        return {name: HIDDEN if isinstance(option, SecretText) else option for name, option in value.items()}

    @model_validator(mode="after")
    def _validate_options(self) -> KafkaSource:
        self.client.validate()
        names = list(self.made_anew.values())
        if len(set(names)) < len(names) or not all(names):
            raise ValueError("made_anew: each topic needs a different name")
        return self

    @property
    def client(self) -> ClientSettings:
        return ClientSettings(self.bootstrap_servers, {name: _text(value) for name, value in self.options.items()})

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


def _text(value: str | int | float | bool) -> str:
    """The value as Kafka's text: true for True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _by_partition(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {
        (topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


class TicdcStorageSource(YamlModel):
    """A folder that TiCDC's storage sink writes with protocol=canal-json."""

    type: Literal["ticdc_storage"]
    path: Annotated[str, Field(min_length=1, description="Folder or Hadoop URI of the changefeed's sink URI.")]
    topic: Annotated[str, Field(min_length=1, description="Topic name of the records in the lake.")] = "ticdc_storage"
    max_bytes_per_batch: Annotated[
        int, Field(description="Maximum size of the files of a batch, in bytes. A run ingests all available batches.")
    ] = MAX_BYTES

    @field_validator("max_bytes_per_batch")
    @classmethod
    def _validate_max_bytes(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is not a number of bytes: 1 or more is expected")
        return value

    @property
    def source(self) -> Source:
        return TicdcStorage(self.path, self.topic, self.max_bytes_per_batch)


SourceField = CaptureFilesSource | KafkaSource | TicdcStorageSource
SOURCES: dict[str, type[CaptureFilesSource] | type[KafkaSource] | type[TicdcStorageSource]] = {
    "capture_files": CaptureFilesSource,
    "kafka": KafkaSource,
    "ticdc_storage": TicdcStorageSource,
}


def _type_of(value: Any) -> str | None:
    name = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return name if isinstance(name, str) else None


SOURCE_MODEL: Any = Annotated[
    Annotated[CaptureFilesSource.model(), Tag("capture_files")]
    | Annotated[KafkaSource.model(), Tag("kafka")]
    | Annotated[TicdcStorageSource.model(), Tag("ticdc_storage")],
    Discriminator(_type_of),
    ByType(),
]
"""The field as Dagster reads it from YAML. `type` selects the model, so that errors concern this model only."""
