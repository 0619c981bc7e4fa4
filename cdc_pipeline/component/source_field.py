"""The field `source` of a pipeline's file: what may be written there, and the source that it declares."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal

import dagster as dg
from jinja2 import Environment, StrictUndefined
from pydantic import ConfigDict, Discriminator, Field, Tag, field_serializer, field_validator, model_validator

from cdc_pipeline.component.json_schema import ByType, Described
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline.sources.kafka.client_settings import ClientSettings
from cdc_pipeline.sources.kafka.known_options import SECRET_NAMES, option_name
from cdc_pipeline.sources.kafka.secret_text import HIDDEN, SecretText
from cdc_pipeline.sources.kafka.source import MOST_RECORDS, KafkaTopics
from cdc_pipeline.sources.kafka.topic_selection import CLOCK_SKEW_MS, Selection, Start
from cdc_pipeline.sources.source import Source  # noqa: TC001  # Dagster reads the annotations
from cdc_pipeline.sources.storage.source import MAX_BYTES, TicdcStorage

Offsets = dict[str, dict[int, int]]
Options = dict[str, str | int | float | bool]


class CaptureFilesSource(Described):
    """A folder of `*.jsonl` or `*.jsonl.gz`, each line one record as `kcat -C -J` prints it."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["capture_files"]
    path: Annotated[str, Field(min_length=1, description="The folder. Files that are added later are new offsets.")]

    @property
    def source(self) -> Source:
        return CaptureFiles(self.path)


class StartAt(Described):
    """Where a pipeline begins that has read nothing yet: one of the three."""

    model_config = ConfigDict(extra="forbid")

    timestamp: Annotated[
        str | int | None,
        Field(description="The first records of this time or later: 2026-11-22T10:00:00Z, or ms since 1970."),
    ] = None
    offsets: Annotated[Offsets | None, Field(description="The first offset of each partition, by topic.")] = None
    commit_tso: Annotated[
        int | None, Field(description="A TSO: the records that were sent from ten minutes before it on.")
    ] = None

    @model_validator(mode="after")
    def _is_one(self) -> StartAt:
        if sum(value is not None for value in (self.timestamp, self.offsets, self.commit_tso)) != 1:
            raise ValueError("one of timestamp, offsets and commit_tso is expected")
        _ = self.start
        return self

    @property
    def start(self) -> Start:
        if self.offsets is not None:
            return Start("offsets", offsets=_places(self.offsets))
        if self.commit_tso is not None:
            return Start("time", time_ms=(self.commit_tso >> TSO_SHIFT) - CLOCK_SKEW_MS)
        return Start("time", time_ms=_milliseconds(str(self.timestamp)))


def _milliseconds(text: str) -> int:
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"timestamp: {text!r} is no instant: 2026-11-22T10:00:00Z or ms since 1970 is expected")
    return int(moment.timestamp() * 1000)


def _start(context: dg.ResolutionContext, model: Any) -> Any:
    if isinstance(model, str):
        return context.resolve_value(model)
    return StartAt.resolve_from_model(context, model)


def _present(value: Any) -> Any:
    if value is None:
        raise ValueError("a variable of the environment is not set")
    return value


# Not Dagster's own reading of a template, which takes what comes out for Python where it can: of a password 1e5 it makes
# 100000.0, and of '1' the number without its quotes.
_TEMPLATES = Environment(finalize=_present, undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)


def _options(context: dg.ResolutionContext, model: Any) -> Options:
    """The options with their templates filled in, as text. The errors say which one it is, and show no value."""
    if not isinstance(model, dict):
        raise ValueError("options: a mapping of settings is expected")
    found: Options = {}
    for name, value in model.items():
        try:
            filled = filled_in(context, value) if isinstance(value, str) else value
        except Exception as error:
            raise ValueError(f"options: {name!r} cannot be filled in: {error}") from None
        found[name] = filled
    return found


def filled_in(context: dg.ResolutionContext, text: str) -> str:
    """The text with its templates filled in, and otherwise as it is. The errors show no value."""
    return _TEMPLATES.from_string(text).render(**context.scope)


class KafkaSource(Described):
    """Topics of a Kafka broker."""

    # an error's text has the field and what was expected, not the value: it may be a password
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: Literal["kafka"]
    bootstrap_servers: Annotated[str, Field(min_length=1, description="host:port of one broker or more, with commas.")]
    topics: Annotated[list[str], Field(description="The topics, by name.")] = []  # noqa: RUF012  # pydantic copies it
    topic_pattern: Annotated[
        str | None,
        Field(description="A regular expression for whole names of topics. Those that appear later are taken in too."),
    ] = None
    start: Annotated[
        Literal["earliest", "latest"] | StartAt,
        dg.Resolver(_start, model_field_type=str | StartAt.model()),
        Field(
            description="Where to begin when the lake has nothing yet: earliest, latest, or one of timestamp, offsets and "
            "commit_tso. Topics and partitions that appear later are read from their first record."
        ),
    ] = "earliest"
    max_records_per_batch: Annotated[
        int, Field(description="Records of one batch at most. A run takes in as many batches as there are.")
    ] = MOST_RECORDS
    options: Annotated[
        Options,
        dg.Resolver(_options, model_field_type=Options),
        Field(
            description="Consumer settings by Java's names; for security also sasl.username, sasl.password, "
            "ssl.ca.location and their like, as librdkafka has them. Both Spark and the sensor follow them."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    publish_group: Annotated[
        str | None,
        Field(description="A consumer group whose offsets are set after each run, for dashboards of lag. Never read."),
    ] = None
    made_anew: Annotated[
        dict[str, str],
        Field(description="For a topic that was deleted and made again: another name for it in the lake."),
    ] = {}  # noqa: RUF012  # pydantic copies it
    resume_at: Annotated[
        Offsets,
        Field(
            description="Where records have expired before they were read: the offset to go on at, by topic and partition."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    ended: Annotated[
        list[str], Field(description="Topics in the lake, by their names there, from which nothing comes any more.")
    ] = []  # noqa: RUF012  # pydantic copies it

    @model_validator(mode="after")
    def _has_topics(self) -> KafkaSource:
        if bool(self.topics) == bool(self.topic_pattern):
            raise ValueError("either topics or topic_pattern is expected")
        return self

    @field_validator("topic_pattern")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"{value!r} is no regular expression: {error}") from None
        return value

    @field_validator("max_records_per_batch")
    @classmethod
    def _is_a_number(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is no number of records: 1 or more is expected")
        return value

    @field_validator("options")
    @classmethod
    def _hide_secrets(cls, value: Options) -> Options:
        return {
            name: SecretText(_text(found)) if option_name(name) in SECRET_NAMES else found
            for name, found in value.items()
        }

    @field_serializer("options", when_used="json")
    def _without_secrets(self, value: Options) -> Options:
        return {name: HIDDEN if isinstance(found, SecretText) else found for name, found in value.items()}

    @model_validator(mode="after")
    def _has_options(self) -> KafkaSource:
        self.client.checked()
        names = list(self.made_anew.values())
        if len(set(names)) < len(names) or not all(names):
            raise ValueError("made_anew: each topic needs a name of its own")
        return self

    @property
    def client(self) -> ClientSettings:
        return ClientSettings(self.bootstrap_servers, {name: _text(value) for name, value in self.options.items()})

    @property
    def source(self) -> Source:
        start = Start(self.start) if isinstance(self.start, str) else self.start.start
        selection = Selection(
            tuple(self.topics),
            self.topic_pattern,
            start,
            dict(self.made_anew),
            _places(self.resume_at),
            frozenset(self.ended),
        )
        return KafkaTopics(self.client, selection, self.max_records_per_batch, self.publish_group)


def _text(value: str | int | float | bool) -> str:
    """YAML's true is Kafka's "true"."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _places(offsets: Offsets) -> dict[tuple[str, int], int]:
    return {(topic, int(partition)): offset for topic, found in offsets.items() for partition, offset in found.items()}


class TicdcStorageSource(Described):
    """TiCDC's storage sink with protocol=canal-json: data files, schema files and the checkpoint."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["ticdc_storage"]
    path: Annotated[
        str, Field(min_length=1, description="The folder, or Hadoop URI, that the changefeed's sink URI names.")
    ]
    topic: Annotated[
        str, Field(min_length=1, description="The name under which its records stand in the lake, as those of a topic.")
    ] = "ticdc_storage"
    max_bytes_per_batch: Annotated[
        int, Field(description="Bytes of one batch's files at most. A run takes in as many batches as there are.")
    ] = MAX_BYTES

    @field_validator("max_bytes_per_batch")
    @classmethod
    def _is_a_size(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"{value} is no number of bytes: 1 or more is expected")
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
    found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return found if isinstance(found, str) else None


SOURCE_MODEL: Any = Annotated[
    Annotated[CaptureFilesSource.model(), Tag("capture_files")]
    | Annotated[KafkaSource.model(), Tag("kafka")]
    | Annotated[TicdcStorageSource.model(), Tag("ticdc_storage")],
    Discriminator(_type_of),
    ByType(),
]
"""The field as Dagster reads it from YAML: `type` says which of the forms it has, so that errors speak of that one only."""
