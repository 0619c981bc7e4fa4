"""`CdcPipeline`: declares a pipeline in YAML or Python and builds its Dagster definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Any
from zoneinfo import ZoneInfo, available_timezones

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import Field, ValidationInfo, field_validator, model_validator

from cdc_pipeline.assets.asset_events import StageResult
from cdc_pipeline.assets.decoded import decoded_assets
from cdc_pipeline.assets.follower import follow_job
from cdc_pipeline.assets.jobs import maintain_job, maintenance_schedule, operation_jobs
from cdc_pipeline.assets.mirrors import mirror_assets
from cdc_pipeline.assets.nodes import CUTS, table_key
from cdc_pipeline.assets.raw import raw_asset, source_specs
from cdc_pipeline.component import run_fields, table_fields
from cdc_pipeline.component.catalog_field import CatalogField
from cdc_pipeline.component.scaffold import PipelineScaffolder
from cdc_pipeline.component.snapshot_field import SnapshotField
from cdc_pipeline.component.source_field import SourceField, TicdcStorageSource
from cdc_pipeline.component.yaml_model import Secret, YamlModel, limit, secret_resolver, settings_resolver
from cdc_pipeline.contracts.limits import MAX_CLOCK_SKEW_MS
from cdc_pipeline.dialects.decode import DialectName
from cdc_pipeline.dialects.decoded_tables import DecodeSettings
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import APPLY, HOLD, KEEP, DdlAction, DdlPolicy
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sensors.new_offsets import new_offsets_sensor
from cdc_pipeline.sensors.new_tables import new_tables_sensor
from cdc_pipeline.sensors.notifications import notify_sensor
from cdc_pipeline.spark.session import own_spark

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


class DdlPolicyRules(YamlModel):
    """The policy for DDL, by pattern on database.table."""

    default: DdlAction = APPLY
    """Policy for tables that match no pattern."""
    tables: dict[str, DdlAction] = {}
    """Policy by pattern on the mirror's database.table (`*`, `?`, `[…]` as in file names). The first match applies."""

    _validate_tables = field_validator("tables")(table_fields.require_patterns)


def _to_policy(value: object) -> object:
    if isinstance(value, (DdlPolicyRules, dict)):
        return value
    if value not in (APPLY, KEEP, HOLD):
        raise ValueError(f"{value!r} is not a policy: {APPLY}, {KEEP} or {HOLD} is expected, or a mapping")
    return DdlPolicyRules(default=value)


class AssetTranslation(YamlModel):
    """Attributes of all assets. Templates may use `spec`, the asset as it is without, such as `{{ spec.group_name }}`."""

    key_prefix: str | list[str] | None = None
    """Before each asset key."""
    group_name: str | None = None
    """Group in place of the pipeline's."""
    description: str | None = None
    """Description in place of the pipeline's."""
    owners: list[str] | None = None
    """Owners in place of the pipeline's."""
    tags: dict[str, str] | None = None
    """Further tags."""
    metadata: dict[str, Any] | None = None
    """Further metadata."""


@dg.scaffold_with(PipelineScaffolder)
class CdcPipeline(dg.Component, YamlModel):
    """Canal-JSON change records to mirror tables in Delta Lake.

    Assets: `raw_topic_snapshot`, `change_log`, `ddl_history`, `watermarks`, `dead_letters`, one mirror per table, and
    `consistent_cuts`. Jobs: `<name>_ingest` (materializes all assets in one run), `<name>_follow` (batch after batch in a
    run that stays), `<name>_rebuild`, `<name>_release_dead_letters`, `<name>_ddl_dry_run`, `<name>_approve_ddl` and
    `<name>_maintain` (with a schedule). Sensors: `<name>_new_offsets` requests `<name>_ingest` or `<name>_follow`,
    `<name>_new_tables` shows new mirrors in the UI, `<name>_notify` (with `notify`) sends alerts.
    """

    name: str
    """Name of the pipeline: first part of its asset keys, and its folder in the lake."""
    source: Annotated[
        SourceField, Field(examples=[{"type": "kafka", "bootstrap_servers": "broker:9092", "topics": ["tidb-orders"]}])
    ]
    """Source of the records."""
    lake: Annotated[str, Field(min_length=1)]
    """Folder or Hadoop URI of the lake."""
    catalog: Annotated[CatalogField, Field(examples=[{"type": "hive", "uri": "thrift://metastore:9083"}])] = None
    """Catalog in which mirrors have names. Empty: none, they have paths only."""
    dialect: DialectName = "auto"
    """`auto` detects the dialect per record. With the name of a dialect, records of the others become dead letters."""
    include: list[str] = ["*"]
    """Patterns on the upstream database.table of the mirrored tables (`*`, `?`, `[…]` as in file names; without case).
    The change log has the changes of all tables."""
    exclude: list[str] = []
    """Patterns on the upstream database.table of included tables that are not mirrored."""
    routes: list[table_fields.RouteRule] = []
    """Names of mirrors that differ from the upstream table. The first match applies. Two tables may have the same
    mirror only with `merge`; otherwise the run fails."""
    case_sensitive: bool = False
    """Whether upstream has tables whose names differ in case only, as MySQL with `lower_case_table_names=0` may. Names
    of tables, also in `include`, `exclude` and `routes`, are then compared exactly."""
    time_zone: str = "UTC"
    """IANA time zone in which the encoder prints TIMESTAMP values, such as UTC or Asia/Shanghai. If it changes, mirrors with
    TIMESTAMP columns have a gap until they are rebuilt."""
    keys: dict[str, list[str]] = {}
    """Key columns by the mirror's database.table, for tables without a primary key or UNIQUE NOT NULL key in their DDL.
    A table without a key is mirrored as a multiset of rows."""
    ddl_policy: Annotated[
        DdlPolicyRules, settings_resolver(DdlPolicyRules, from_text=_to_policy), Field(examples=["apply"])
    ] = DdlPolicyRules()
    """`apply`: mirrors follow DDL. `keep`: dropped columns and tables are kept under another name. `hold`: a table
    stops before a statement that destroys rows or values, until it is approved. One policy for all tables, or `default`
    and `tables` (by pattern on the mirror's name)."""
    metadata_columns: Annotated[list[str], dg.Resolver.default(model_field_type=str | list[str])] = list(
        METADATA_COLUMNS
    )
    """Metadata columns of mirrors: some of `_commit_ts`, `_topic`, `_partition`, `_offset`, or `none`. Existing mirrors
    change after a rebuild."""
    mask: dict[str, dict[str, str | None]] = {}
    """Masked columns by pattern on the mirror's database.table: `hash` (text, equal for equal values) or `null`. The
    raw snapshot and the change log contain the original values."""
    mask_salt: Annotated[Secret, secret_resolver("mask_salt"), Field(validate_default=True)] = ""
    """Secret salt of the hashes, which prevents guessing values: at least 16 characters, from the environment. Required
    with `mask`."""
    soft_delete: list[str] = []
    """Patterns on the mirror's database.table of mirrors that keep deleted rows, with `_deleted` true. Existing mirrors
    change after a rebuild. Tables without a key are not supported."""
    computed: Annotated[
        dict[str, dict[str, table_fields.ComputedField]],
        Field(examples=[{"shop.orders": {"total": {"type": "decimal(12,2)", "sql": "price * quantity"}}}]),
    ] = {}
    """Additional columns computed from upstream columns, by pattern on the mirror's database.table. Existing mirrors
    change after a rebuild."""
    claim_store: str = ""
    """Folder or Hadoop URI of the messages that TiCDC stores outside of Kafka because of their size
    (large-message-handle-option claim-check). Empty: none."""
    snapshot: Annotated[SnapshotField, Field(examples=[{"type": "dumpling", "path": "s3a://bucket/export"}])] = None
    """Tables that are older than their changes: an export, or a server. `<name>_snapshot` loads them."""
    keep_raw_days: int | None = None
    """How many days raw records stay. `<name>_maintain` removes older batches whose changes a kept cut has; rebuilds
    then begin there. Empty: for ever."""
    keep_change_log_days: int | None = None
    """The same for row changes in `change_log`."""
    single_writer: bool = False
    """Whether no other program ever writes to the lake. A run then accepts an object store without conditional writes.
    Two runs at once would destroy such a lake."""
    max_clock_skew_seconds: Annotated[int, Field(ge=0)] = MAX_CLOCK_SKEW_MS // 1000
    """How much later than the clock of the run a watermark may be; else it becomes a dead letter. Increase it only if
    the clock of the upstream is ahead."""
    owners: list[str] = []
    """Owners of all assets of the pipeline: e-mail addresses, or team:NAME."""
    tags: dict[str, str] = {}
    """Tags of all assets of the pipeline."""
    translation: Annotated[
        TranslationFn[dg.AssetSpec] | None,
        TranslationFnResolver[dg.AssetSpec](lambda _: {}, AssetTranslation.model()),
        Field(examples=[{"key_prefix": "lake", "group_name": "cdc/{{ spec.group_name }}"}]),
    ] = None
    """Changes attributes of all assets."""
    sensor: Annotated[run_fields.SensorField, Field(examples=[{"running": True}])] = run_fields.SensorSettings()
    """When `<name>_new_offsets` requests a run."""
    follow: Annotated[run_fields.FollowField, Field(examples=[{"enabled": True}])] = run_fields.FollowSettings()
    """Runs that stay and ingest batch after batch, so that mirrors are seconds behind the source."""
    freshness: Annotated[run_fields.FreshnessField, Field(examples=[{"warn_minutes": 10, "fail_minutes": 60}])] = (
        run_fields.FreshnessSettings()
    )
    """Limits for the age of the newest cut. Empty: no limits."""
    notify: Annotated[
        run_fields.NotifyField,
        Field(examples=[{"urls": ["{{ env.ALERT_URL }}"], "ui_url": "https://dagster.example.com"}]),
    ] = run_fields.NotifySettings()
    """Alerts to Slack, by e-mail, to a webhook and others. Empty: none."""
    maintenance_cron: str = "0 3 * * *"
    """Cron schedule of `<name>_maintain`, in UTC. Turn the schedule off in the UI to run the job by hand."""
    verify_minutes: int = 60
    """How often a run compares the before images of new row changes with mirrors, in minutes. 0: only `<name>_verify`
    does."""
    merge_threads: int = 2
    """Number of mirrors that are merged in parallel, 1 to 64."""
    key_check_rows: int = 1000000
    """The check `keys_hold` reads all rows of a changed mirror up to this size, and only the rows of the newest cut in
    a larger one. 0: disables the check."""

    spark_resource: str = ""
    """Key of a `SparkLakehouse` among the project's resources. Empty: the component supplies one, which takes
    `CDC_SPARK_MASTER` and `CDC_DRIVER_MEMORY` from the environment."""
    max_runtime_seconds: int | None = None
    """Time limit after which the daemon ends a run. The next run resumes from the last commit. Empty:
    `run_monitoring.max_runtime_seconds` of dagster.yaml."""

    @field_validator("name")
    @classmethod
    def _validate_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise ValueError(
                f"{value!r} is not a pipeline name: a letter, then letters, digits and underscores are expected"
            )
        return value

    @field_validator("time_zone")
    @classmethod
    def _validate_time_zone(cls, value: str) -> str:
        if value not in available_timezones():
            raise ValueError(
                f"{value!r} is not a time zone: a name of the IANA time zone database is expected, such as UTC"
            )
        return ZoneInfo(value).key

    @field_validator("owners", "tags")
    @classmethod
    def _validate_for_dagster(cls, value: Any, info: ValidationInfo) -> Any:
        try:
            dg.AssetSpec("any", **{str(info.field_name): value})
        except dg.DagsterInvalidDefinitionError as error:
            raise ValueError(str(error)) from error
        return value

    @field_validator("maintenance_cron")
    @classmethod
    def _validate_cron(cls, value: str) -> str:
        try:
            dg.ScheduleDefinition(name="any", job_name="any", cron_schedule=value)
        except dg.DagsterInvalidDefinitionError as error:
            raise ValueError(
                f"{value!r} is not a cron schedule: five fields are expected, such as 0 3 * * *"
            ) from error
        return value

    _validate_policy = field_validator("ddl_policy", mode="before")(_to_policy)
    _validate_include = field_validator("include")(table_fields.require_include)
    _validate_patterns = field_validator("exclude", "soft_delete")(table_fields.require_patterns)
    _validate_metadata = field_validator("metadata_columns", mode="before")(table_fields.validate_metadata)
    _validate_computed = field_validator("computed")(table_fields.validate_computed)
    _validate_masks = field_validator("mask")(table_fields.validate_masks)
    _validate_salt = field_validator("mask_salt")(table_fields.validate_salt)

    @field_validator("keys")
    @classmethod
    def _validate_keys(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for table, columns in value.items():
            if "." not in table.strip("."):
                raise ValueError(f"{table!r} is not a table: database.table is expected, such as shop.payments")
            if not columns or len(set(columns)) < len(columns) or not all(columns):
                raise ValueError(f"{table}: {columns!r} is not a key: one or more different columns are expected")
        return value

    @model_validator(mode="after")
    def _validate_topic_tables(self) -> CdcPipeline:
        known = {table.lower() for table in self.keys}
        if missing := sorted(table for table in self._topic_tables.values() if table.lower() not in known):
            # Flink delivers at least once: without a key, what it sends again would count twice
            raise ValueError(f"source.tables: {missing[0]} has no key: keys: {{{missing[0]}: [column]}} is expected")
        return self

    @property
    def _topic_tables(self) -> dict[str, str]:
        return {} if isinstance(self.source, TicdcStorageSource) else self.source.tables

    _limit_threads = limit("merge_threads", least=1, most=64)
    _limit_rows = limit("key_check_rows", "verify_minutes")
    _limit_days = limit("keep_raw_days", "keep_change_log_days", least=1)

    # a run that ends before its first commit would be repeated for ever
    _limit_runtime = limit("max_runtime_seconds", least=60)

    @property
    def pipeline(self) -> Pipeline:
        exact = self.case_sensitive
        keys = {table if exact else table.lower(): tuple(columns) for table, columns in self.keys.items()}
        routes = tuple(rule.route for rule in self.routes)
        kept = {"raw_topic_snapshot": self.keep_raw_days, "change_log": self.keep_change_log_days}
        policy = DdlPolicy(self.ddl_policy.default, tuple(self.ddl_policy.tables.items()))
        return Pipeline(
            self.name,
            self.source.source,
            self.lake,
            self.time_zone,
            self.merge_threads,
            DecodeSettings(
                self.dialect, self.claim_store or None, self.max_clock_skew_seconds * 1000, self._topic_tables
            ),
            keys,
            policy,
            tuple(self.owners),
            self.tags,
            self.key_check_rows,
            self.max_runtime_seconds,
            TableSelection(tuple(self.include), tuple(self.exclude), routes, exact),
            ColumnRules(
                tuple(self.metadata_columns),
                table_fields.mask_rules(self.mask),
                self.mask_salt,
                tuple(self.soft_delete),
                table_fields.computed_rules(self.computed),
            ),
            self.spark_resource,
            snapshot=None if self.snapshot is None else self.snapshot.settings,
            verify_minutes=self.verify_minutes,
            keep_days={table: days for table, days in kept.items() if days is not None},
            single_writer=self.single_writer,
            catalog=None if self.catalog is None else self.catalog.settings,
            translate_key=self._translate_key,
            execute=self.execute,
        )

    def get_asset_spec(self, spec: dg.AssetSpec) -> dg.AssetSpec:
        """The asset in Dagster of one that the pipeline declares. For subclasses to override.

        The key may get a prefix that depends on the key only: runs derive the keys of new tables from their names.
        """
        return spec if self.translation is None else self.translation(spec, spec)

    def execute(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, results: Iterable[StageResult]
    ) -> Iterator[StageResult]:
        """What a step reports of a stage that has run, also each batch of a run that follows. For subclasses to override:
        they may act on results and add metadata, and have to yield each result."""
        yield from results

    def _translate_key(self, path: Sequence[str]) -> Sequence[str]:
        key = self.get_asset_spec(dg.AssetSpec(dg.AssetKey(path), group_name=self.name)).key
        if key.path[-len(path) :] != [*path]:
            raise ValueError(f"translation: {key.to_user_string()} is not {'/'.join(path)} with a key_prefix")
        return key.path

    def _translate(self, assets: dg.AssetsDefinition) -> dg.AssetsDefinition:
        keys = {*assets.keys, *(dep.asset_key for spec in assets.specs for dep in spec.deps)}
        changed = {key: dg.AssetKey(self._translate_key(key.path)) for key in keys}
        mapped = assets.map_asset_specs(lambda spec: self.get_asset_spec(spec).replace_attributes(key=spec.key))
        return mapped.with_attributes(asset_key_replacements=changed)

    def build_defs(self, context: dg.ComponentLoadContext | None = None) -> dg.Definitions:
        pipeline = self.pipeline
        assets = [raw_asset(pipeline), decoded_assets(pipeline), mirror_assets(pipeline, self.freshness.limits)]
        assets = [self._translate(definition) for definition in assets]
        checks = [spec.key for definition in assets for spec in definition.check_specs]
        of_mirrors = [spec.key for spec in assets[-1].check_specs if spec.asset_key != table_key(pipeline, CUTS)]
        ingest = dg.define_asset_job(
            f"{self.name}_ingest",
            # not by prefix: the user may have assets with the same prefix
            selection=dg.AssetSelection.assets(*(key for definition in assets for key in definition.keys))
            - dg.AssetSelection.checks(*of_mirrors),
            description="Ingests new records, decodes them and advances the mirrors to the resolved TSO, in one run.",
            # one JVM per run: a process per step would start a JVM per step
            executor_def=dg.in_process_executor,
            tags=pipeline.run_tags,
        )
        follow = follow_job(
            pipeline,
            assets,
            self.follow.limits(self.sensor.timing),
            self.freshness.limits,
            None if context is None else context.path / "defs.yaml",
        )
        maintain = maintain_job(pipeline)
        jobs: list[Any] = [ingest, follow, *operation_jobs(pipeline), maintain]
        sensors = [
            new_offsets_sensor(
                pipeline,
                follow if self.follow.enabled else ingest,
                self.sensor.timing,
                running=self.sensor.running,
                follows=self.follow.enabled,
            ),
            new_tables_sensor(pipeline),
        ]
        if self.notify.urls:
            names = [job.name for job in jobs]
            of_all = [key for key in checks if key not in of_mirrors]
            channels = self.notify.urls, self.notify.events, self.notify.ui_url
            sensors.append(notify_sensor(pipeline, of_all, names, self.freshness.limits, *channels))
        return dg.Definitions(
            assets=[*assets, *map(self.get_asset_spec, source_specs(pipeline.untranslated).values())],
            resources={}
            if self.spark_resource
            else {pipeline.spark_key: own_spark(pipeline.stores, pipeline.packages)},
            schedules=[maintenance_schedule(maintain, self.maintenance_cron)],
            sensors=sensors,
            jobs=jobs,
        )
