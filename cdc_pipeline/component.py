"""`CdcPipeline`: the declaration of a pipeline, in YAML or Python, and the Dagster definitions that follow from it."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo, available_timezones

import dagster as dg
from pydantic import ConfigDict, Field, field_validator

from cdc_pipeline.assets.ddl import approve_ddl_job, ddl_dry_run_job
from cdc_pipeline.assets.decoded import decoded_assets
from cdc_pipeline.assets.maintain import maintain_job, maintenance_schedule
from cdc_pipeline.assets.mirrors import mirror_assets
from cdc_pipeline.assets.raw import raw_asset
from cdc_pipeline.assets.rebuild import rebuild_job
from cdc_pipeline.described import Described
from cdc_pipeline.dialects.decode import DialectName  # noqa: TC001  # pydantic reads the annotation
from cdc_pipeline.mirrors.policy import APPLY, HOLD, KEEP, DdlAction, DdlPolicy
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.reload import new_tables_sensor
from cdc_pipeline.run_fields import FreshnessSettings, SensorSettings, settings_resolver
from cdc_pipeline.scaffold import PipelineScaffolder
from cdc_pipeline.sensors import new_offsets_sensor
from cdc_pipeline.source_fields import SOURCE_MODEL, SOURCES, SourceField

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_MOST_THREADS = 64


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
            description="By pattern on database.table (`*`, `?`, `[…]` as in file names); the first that matches counts."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it

    @field_validator("tables")
    @classmethod
    def _have_patterns(cls, value: dict[str, DdlAction]) -> dict[str, DdlAction]:
        for pattern in value:
            if "." not in pattern.strip(".") and pattern != "*":
                raise ValueError(f"{pattern!r} is no pattern: one on database.table is expected, such as shop.*")
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
    `<name>_ddl_dry_run`, `<name>_approve_ddl` and `<name>_maintain` (with a schedule), and the sensors
    `<name>_new_offsets`, which asks for `<name>_ingest`, and `<name>_new_tables`, which shows new mirrors in the UI.
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
    time_zone: Annotated[
        str,
        Field(description="The time zone in which the encoder prints TIMESTAMP values, such as UTC or Asia/Shanghai."),
    ] = "UTC"
    keys: Annotated[
        dict[str, list[str]],
        Field(
            description="Columns that identify a row, by database.table, for tables that have no primary key and no UNIQUE "
            "NOT NULL key that DDL has told of. Without a key a table is kept as a multiset."
        ),
    ] = {}  # noqa: RUF012  # pydantic copies it
    ddl_policy: Annotated[
        DdlPolicyRules,
        dg.Resolver(_ddl_policy, model_field_type=str | DdlPolicyRules.model()),
        Field(
            description="`apply`: mirrors follow DDL. `keep`: dropped columns and tables stay, renamed apart. `hold`: a "
            "table stops before a statement that takes rows or values away, until that is approved. One for all, or "
            "`default` and `tables` (by pattern).",
            examples=["apply"],
        ),
    ] = DdlPolicyRules()
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

    @field_validator("keys")
    @classmethod
    def _are_keys(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for table, columns in value.items():
            if "." not in table.strip("."):
                raise ValueError(f"{table!r} is no table: database.table is expected, such as shop.payments")
            if not columns or len(set(columns)) < len(columns) or not all(columns):
                raise ValueError(f"{table}: {columns!r} is no key: one or more columns are expected, each once")
        return value

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
            tags={"cdc/pipeline": self.name},
        )
        maintain = maintain_job(pipeline)
        return dg.Definitions(
            assets=assets,
            schedules=[maintenance_schedule(maintain, self.maintenance_cron)],
            sensors=[
                new_offsets_sensor(pipeline, ingest, self.sensor.timing, running=self.sensor.running),
                new_tables_sensor(pipeline),
            ],
            jobs=[ingest, rebuild_job(pipeline), ddl_dry_run_job(pipeline), approve_ddl_job(pipeline), maintain],
        )
