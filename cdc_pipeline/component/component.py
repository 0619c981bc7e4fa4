"""`CdcPipeline`: the declaration of a pipeline, in YAML or Python, and the Dagster definitions that follow from it."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import dagster as dg
from pydantic import ConfigDict, Field, ValidationInfo, field_serializer, field_validator

from cdc_pipeline.assets.ddl_jobs import approve_ddl_job, ddl_dry_run_job
from cdc_pipeline.assets.decoded import decoded_assets
from cdc_pipeline.assets.maintain_job import maintain_job, maintenance_schedule
from cdc_pipeline.assets.mirrors import mirror_assets
from cdc_pipeline.assets.raw import raw_asset
from cdc_pipeline.assets.rebuild_job import rebuild_job
from cdc_pipeline.assets.release_job import release_job
from cdc_pipeline.component.column_fields import (
    Masks,
    check_masked_keys,
    checked_masks,
    checked_metadata,
    checked_salt,
    listed_metadata,
    mask_rules,
    resolved_metadata,
    resolved_salt,
)
from cdc_pipeline.component.computed_field import ComputedColumn, ComputedColumns, checked_computed, computed_rules
from cdc_pipeline.component.json_schema import Described
from cdc_pipeline.component.run_fields import FreshnessSettings, SensorSettings, settings_resolver
from cdc_pipeline.component.scaffold import PipelineScaffolder
from cdc_pipeline.component.source_field import SOURCE_MODEL, SOURCES, SourceField
from cdc_pipeline.component.table_fields import RouteRule, require_patterns, require_something, table_selection
from cdc_pipeline.dialects.decode import DialectName  # noqa: TC001  # pydantic reads the annotation
from cdc_pipeline.mirrors.model.state import TRACE_NAMES
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import APPLY, HOLD, KEEP, DdlAction, DdlPolicy
from cdc_pipeline.mirrors.settings.table_patterns import require_pattern
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sensors.new_offsets import new_offsets_sensor
from cdc_pipeline.sensors.new_tables import new_tables_sensor
from cdc_pipeline.sources.kafka.secret_text import HIDDEN

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MOST_THREADS = 64
_LEAST_RUNTIME_SECONDS = 60


def _source(context: dg.ResolutionContext, model: Any) -> SourceField:
    if isinstance(model, str):
        # Dagster takes any text for a template, and its own resolver fails on it without saying what is expected.
        raise ValueError(
            f"source: {model!r} is no source: a mapping with type and path, or what else that type needs, is expected"
        )
    source: SourceField = SOURCES[model.type].resolve_from_model(context, model)
    return source


class DdlPolicyRules(Described):
    """What DDL may do to mirrors, by patterns on database.table."""

    model_config = ConfigDict(extra="forbid")

    default: Annotated[DdlAction, Field(description="What holds for tables that no pattern matches.")] = APPLY
    tables: Annotated[
        dict[str, DdlAction],
        Field(
            description="By pattern on the mirror's database.table (`*`, `?`, `[…]` as in file names); the first that "
            "matches counts."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it

    @field_validator("tables")
    @classmethod
    def _have_patterns(cls, value: dict[str, DdlAction]) -> dict[str, DdlAction]:
        for pattern in value:
            require_pattern(pattern)
        return value


def _ddl_policy(context: dg.ResolutionContext, model: dg.Model | str) -> DdlPolicyRules:
    if isinstance(model, str):
        return _policy_of(context.resolve_value(model))
    rules: DdlPolicyRules = DdlPolicyRules.resolve_from_model(context, model)
    return rules


def _policy_of(action: object) -> DdlPolicyRules:
    if action not in (APPLY, KEEP, HOLD):
        raise ValueError(f"ddl_policy: {action!r} is no policy: {APPLY}, {KEEP} or {HOLD} is expected, or a mapping")
    return DdlPolicyRules(default=action)


_Value = TypeVar("_Value")


def _as_dagster_takes_them(value: _Value, **fields: Any) -> _Value:
    """The value, if a node of Dagster's can have it. Raises ValueError in Dagster's own words."""
    try:
        dg.AssetSpec("any", **fields)
    except dg.DagsterInvalidDefinitionError as error:
        raise ValueError(str(error)) from error
    return value


@dg.scaffold_with(PipelineScaffolder)
class CdcPipeline(dg.Component, Described):
    """Canal-JSON change records to mirror tables in Delta Lake.

    Gives the assets `raw_topic_snapshot`, `change_log`, `ddl_history`, `watermarks`, `dead_letters`, one for each
    mirrored table and `consistent_cuts`, the job `<name>_ingest` that makes them all in one run, `<name>_rebuild`,
    `<name>_release_dead_letters`, `<name>_ddl_dry_run`, `<name>_approve_ddl` and `<name>_maintain` (with a schedule), and
    the sensors `<name>_new_offsets`, which asks for `<name>_ingest`, and `<name>_new_tables`, which shows new mirrors in
    the UI.
    """

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(description="Names the pipeline: first part of its asset keys, folder in the lake.")]
    source: Annotated[
        SourceField,
        dg.Resolver(_source, model_field_type=SOURCE_MODEL),
        Field(
            description="Where the records come from.",
            examples=[{"type": "kafka", "bootstrap_servers": "broker:9092", "topics": ["tidb-orders"]}],
        ),
    ]
    lake: Annotated[str, Field(min_length=1, description="The folder or Hadoop URI under which all tables lie.")]
    dialect: Annotated[
        DialectName,
        Field(
            description="`auto` recognises each record by itself; with `ticdc`, `canal` or `dataworks` all records are "
            "of that one, and dead letters where they are not."
        ),
    ] = "auto"
    include: Annotated[
        list[str],
        Field(
            description="Patterns on upstream's database.table (`*`, `?`, `[…]` as in file names; case counts): tables that "
            "are mirrored. What others send is kept in the change log all the same."
        ),
    ] = ["*"]  # noqa: RUF012  # pydantic copies it
    exclude: Annotated[
        list[str], Field(description="Patterns on upstream's database.table: tables that are not mirrored after all.")
    ] = []  # noqa: RUF012  # pydantic copies it
    routes: Annotated[
        list[RouteRule],
        Field(
            description="Mirrors that have other names than upstream's tables; the first that matches counts. Two tables "
            "share a mirror only where `merge` says so: else a run stops before that."
        ),
    ] = []  # noqa: RUF012  # pydantic copies it
    time_zone: Annotated[
        str,
        Field(description="The time zone in which the encoder prints TIMESTAMP values, such as UTC or Asia/Shanghai."),
    ] = "UTC"
    keys: Annotated[
        dict[str, list[str]],
        Field(
            description="Columns that identify a row, by the mirror's database.table, for tables that have no primary key "
            "and no UNIQUE NOT NULL key that DDL has told of. Without a key a table is kept as a multiset."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    ddl_policy: Annotated[
        DdlPolicyRules,
        dg.Resolver(_ddl_policy, model_field_type=str | DdlPolicyRules.model()),
        Field(
            description="`apply`: mirrors follow DDL. `keep`: dropped columns and tables stay, renamed apart. `hold`: a "
            "table stops before a statement that takes rows or values away, until that is approved. One for all, or "
            "`default` and `tables` (by pattern on the mirror's name).",
            examples=["apply"],
        ),
    ] = DdlPolicyRules()
    metadata_columns: Annotated[
        list[str],
        dg.Resolver(resolved_metadata, model_field_type=str | list[str]),
        Field(
            description="Which of `_commit_ts`, `_topic`, `_partition`, `_offset` mirrors have beside upstream's columns; "
            "`none` for none of them. A mirror that is there keeps its own until it is rebuilt."
        ),
    ] = list(TRACE_NAMES)  # noqa: RUF012  # pydantic copies it
    mask: Annotated[
        dict[str, dict[str, str | None]],
        Field(
            description="Columns whose values mirrors do not show, by pattern on the mirror's database.table: `hash` (text, "
            "equal where values are equal) or `null`. The raw snapshot and the change log have them in clear."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    mask_salt: Annotated[
        str,
        dg.Resolver(resolved_salt, model_field_type=str, inject_before_resolve=False),
        Field(
            description="A secret, without which hashes cannot be found out by trying values: 16 characters or more, from "
            "the environment. `mask` needs it.",
            validate_default=True,
        ),
    ] = ""
    soft_delete: Annotated[
        list[str],
        Field(
            description="Patterns on the mirror's database.table: mirrors that keep the rows which upstream deletes, with "
            "`_deleted` true. A mirror that is there is made so by a rebuild; a table without a key is not."
        ),
    ] = []  # noqa: RUF012  # pydantic copies it
    computed: Annotated[
        dict[str, dict[str, ComputedColumn]],
        Field(
            description="Columns that mirrors have of others, by pattern on the mirror's database.table, each with its type "
            "and its expression. A mirror that is there keeps its own until it is rebuilt.",
            examples=[{"shop.orders": {"total": {"type": "decimal(12,2)", "sql": "price * quantity"}}}],
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    claim_store: Annotated[
        str,
        Field(
            description="The folder or Hadoop URI where TiCDC puts messages that are too large for a topic "
            "(large-message-handle-option claim-check). Empty: there is none."
        ),
    ] = ""
    owners: Annotated[
        list[str],
        Field(description="Who answers for the tables, shown on every node: e-mail addresses, or team:NAME."),
    ] = []  # noqa: RUF012  # pydantic copies it
    tags: Annotated[
        dict[str, str], Field(description="Tags of every node of the pipeline, to search and select by.")
    ] = {}  # noqa: RUF012  # pydantic copies it
    sensor: Annotated[
        SensorSettings,
        settings_resolver(SensorSettings),
        Field(description="When `<name>_new_offsets` asks for a run.", examples=[{"running": True}]),
    ] = SensorSettings()
    freshness: Annotated[
        FreshnessSettings,
        settings_resolver(FreshnessSettings),
        Field(
            description="How old the newest cut may be. Empty: as old as it likes.",
            examples=[{"warn_minutes": 10, "fail_minutes": 60}],
        ),
    ] = FreshnessSettings()
    maintenance_cron: Annotated[
        str,
        Field(
            description="When the schedule of `<name>_maintain` asks for a run, in UTC, once it is switched on in the UI."
        ),
    ] = "0 3 * * *"
    merge_threads: Annotated[int, Field(description="Mirrors that are merged side by side, 1 to 64.")] = 2
    key_check_rows: Annotated[
        int,
        Field(
            description="Rows up to which the check `keys_hold` looks at all of a mirror that a cut has changed; of a "
            "larger one it looks at the rows that the cut has written. 0: it looks at none."
        ),
    ] = 1_000_000

    max_runtime_seconds: Annotated[
        int | None,
        Field(
            description="After so many seconds the daemon ends a run of this pipeline; the next one goes on from what was "
            "committed. Empty: after `run_monitoring.max_runtime_seconds` of dagster.yaml."
        ),
    ] = None

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"{value!r} is no pipeline name: a letter, then letters, digits and underscores are expected"
            )
        return value

    @field_validator("time_zone")
    @classmethod
    def _is_a_time_zone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(f"{value!r} is no time zone: a name of the IANA data base is expected, such as UTC")
        return ZoneInfo(value).key

    @field_validator("owners")
    @classmethod
    def _are_owners(cls, value: list[str]) -> list[str]:
        return _as_dagster_takes_them(value, owners=value)

    @field_validator("tags")
    @classmethod
    def _are_tags(cls, value: dict[str, str]) -> dict[str, str]:
        return _as_dagster_takes_them(value, tags=value)

    @field_validator("maintenance_cron")
    @classmethod
    def _is_a_cron_schedule(cls, value: str) -> str:
        try:
            dg.ScheduleDefinition(name="any", job_name="any", cron_schedule=value)
        except dg.DagsterInvalidDefinitionError as error:
            raise ValueError(f"{value!r} is no cron schedule: five fields are expected, such as 0 3 * * *") from error
        return value

    @field_validator("include")
    @classmethod
    def _include_something(cls, value: list[str]) -> list[str]:
        return require_something(value)

    @field_validator("exclude", "soft_delete")
    @classmethod
    def _are_patterns(cls, value: list[str]) -> list[str]:
        return require_patterns(value)

    @field_validator("keys")
    @classmethod
    def _are_keys(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for table, columns in value.items():
            if "." not in table.strip("."):
                raise ValueError(f"{table!r} is no table: database.table is expected, such as shop.payments")
            if not columns or len(set(columns)) < len(columns) or not all(columns):
                raise ValueError(f"{table}: {columns!r} is no key: one or more columns are expected, each once")
        return value

    @field_validator("metadata_columns", mode="before")
    @classmethod
    def _are_listed(cls, value: object) -> list[object]:
        return listed_metadata(value)

    @field_validator("metadata_columns")
    @classmethod
    def _are_metadata_columns(cls, value: list[str]) -> list[str]:
        return checked_metadata(value)

    @field_validator("mask")
    @classmethod
    def _are_masks(cls, value: Masks, info: ValidationInfo) -> Masks:
        checked_masks(value)
        check_masked_keys(value, info.data.get("keys", {}))
        return value

    @field_validator("mask_salt")
    @classmethod
    def _is_a_salt(cls, value: str, info: ValidationInfo) -> str:
        return checked_salt(value, info.data.get("mask"))

    @field_serializer("mask_salt", when_used="json")
    def _without_salt(self, value: str) -> str:
        return HIDDEN if value else ""

    @field_validator("computed")
    @classmethod
    def _are_computed(cls, value: ComputedColumns) -> ComputedColumns:
        return checked_computed(value)

    @field_validator("ddl_policy", mode="before")
    @classmethod
    def _is_a_policy(cls, value: object) -> object:
        return _policy_of(value) if isinstance(value, str) else value

    @field_validator("merge_threads")
    @classmethod
    def _is_a_number_of_threads(cls, value: int) -> int:
        # not Field(ge=…): Dagster puts that on its own model of the YAML, where a text in its place is no clear error
        if not 1 <= value <= _MOST_THREADS:
            raise ValueError(f"{value} is no number of threads: 1 to {_MOST_THREADS} is expected")
        return value

    @field_validator("max_runtime_seconds")
    @classmethod
    def _is_a_time(cls, value: int | None) -> int | None:
        if value is not None and value < _LEAST_RUNTIME_SECONDS:
            raise ValueError(
                f"{value} is too little: {_LEAST_RUNTIME_SECONDS} or more seconds are expected, or nothing; a run that is "
                "ended before its first commit would be begun again for ever"
            )
        return value

    @field_validator("key_check_rows")
    @classmethod
    def _is_a_number_of_rows(cls, value: int) -> int:
        if value < 0:
            raise ValueError(f"{value} is no number of rows: 0 or more is expected")
        return value

    @property
    def pipeline(self) -> Pipeline:
        keys = {table: tuple(columns) for table, columns in self.keys.items()}
        policy = DdlPolicy(self.ddl_policy.default, tuple(self.ddl_policy.tables.items()))
        return Pipeline(
            self.name,
            self.source.source,
            self.lake,
            self.time_zone,
            self.merge_threads,
            self.dialect,
            keys,
            policy,
            self.claim_store or None,
            tuple(self.owners),
            self.tags,
            self.key_check_rows,
            self.max_runtime_seconds,
            table_selection(self.include, self.exclude, self.routes),
            ColumnRules(
                tuple(self.metadata_columns),
                mask_rules(self.mask),
                self.mask_salt,
                tuple(self.soft_delete),
                computed_rules(self.computed),
            ),
        )

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        pipeline = self.pipeline
        assets = [raw_asset(pipeline), decoded_assets(pipeline), mirror_assets(pipeline, self.freshness.limits)]
        ingest = dg.define_asset_job(
            f"{self.name}_ingest",
            # these and no others: somebody's own table may stand beside them, under the same prefix
            selection=dg.AssetSelection.assets(*(key for found in assets for key in found.keys)),
            description="Takes in what is new, decodes it and brings the mirrors up to the resolved TSO: one run.",
            # One JVM for the whole run: a process per step would pay its start each time.
            executor_def=dg.in_process_executor,
            tags=pipeline.run_tags,
        )
        maintain = maintain_job(pipeline)
        return dg.Definitions(
            assets=assets,
            schedules=[maintenance_schedule(maintain, self.maintenance_cron)],
            sensors=[
                new_offsets_sensor(pipeline, ingest, self.sensor.timing, running=self.sensor.running),
                new_tables_sensor(pipeline),
            ],
            jobs=[
                ingest,
                rebuild_job(pipeline),
                release_job(pipeline),
                ddl_dry_run_job(pipeline),
                approve_ddl_job(pipeline),
                maintain,
            ],
        )
