"""`Pipeline`: the declaration of a pipeline as plain values, without Dagster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cdc_pipeline.catalogs.updates import CatalogSettings
from cdc_pipeline.dialects.decoded_tables import DecodeSettings
from cdc_pipeline.lake.paths import LakePaths, stores_of
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.snapshots.export import ExportType
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline.sources.source import Source
from cdc_pipeline.spark.jdbc import JdbcServer

PIPELINE_TAG = "cdc/pipeline"
"""Tag of each run with the name of its pipeline. `dagster.yaml` allows one run at a time per value."""
OWN_SPARK = "cdc_spark"
"""Key of the resource that the component supplies."""
_MAX_RUNTIME_TAG = "dagster/max_runtime"


@dataclass(frozen=True)
class ExportedFiles:
    type: ExportType
    path: str
    times: ExportTimes | None = None


@dataclass(frozen=True)
class Snapshot:
    """An export, or a server, with whose tables mirrors begin."""

    source: ExportedFiles | JdbcServer
    tables: tuple[str, ...] = ("*",)
    """Patterns on the upstream `database.table`."""
    changefeed_start: int | None = None
    """The TSO from which the changefeed sends."""
    accept_gap: bool = False
    """Whether the stream may lack changes after the export."""
    definitions_only: bool = False
    packages: tuple[str, ...] = ()
    """Maven coordinates of the driver of the server."""

    @property
    def secrets(self) -> tuple[str, ...]:
        password = self.source.password if isinstance(self.source, JdbcServer) else ""
        return (password,) if password else ()


@dataclass(frozen=True)
class Pipeline:
    name: str
    source: Source
    lake: str
    """Folder or Hadoop URI. The tables of the pipeline are in its subfolder `name`."""
    time_zone: str = "UTC"
    """IANA time zone in which the encoder prints TIMESTAMP values."""
    merge_threads: int = 2
    """Number of mirrors that are merged in parallel."""
    decoding: DecodeSettings = field(default_factory=DecodeSettings)
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`database.table` of a mirror → key columns, for tables without a key in their definition."""
    ddl_policy: DdlPolicy = field(default_factory=DdlPolicy)
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    key_check_rows: int = 1_000_000
    """The check `keys_hold` reads all rows of a mirror up to this size, and the rows of the newest cut of a larger one."""
    max_runtime_seconds: int | None = None
    """Time limit of a run; None: the limit of `dagster.yaml`."""
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)
    spark_resource: str = ""
    """Key of the project's resource with the Spark session; empty: that of the component."""
    catalog: CatalogSettings | None = None
    """Where mirrors have names; None: nowhere."""
    snapshot: Snapshot | None = None
    keep_days: Mapping[str, int] = field(default_factory=dict)
    """Table → how many days it keeps batches that a kept cut has; a table that is not named keeps all."""
    verify_minutes: int = 60
    """How often runs compare before images with the mirrors; 0: never."""
    single_writer: bool = False
    """On S3: no other program ever writes to the lake, so that the store needs no conditional writes."""
    translate_key: Callable[[Sequence[str]], Sequence[str]] = field(default=tuple, compare=False, repr=False)
    """From the path of an asset key to that in Dagster (`CdcPipeline.get_asset_spec`)."""

    execute: Callable[[Any, Iterable[Any]], Iterable[Any]] = field(
        default=lambda _, results: results, compare=False, repr=False
    )
    """`CdcPipeline.execute`: takes a step's context and the results of its stage, and returns those for Dagster."""

    @property
    def untranslated(self) -> Pipeline:
        """For definitions, whose keys are translated together at the end."""
        return replace(self, translate_key=tuple)

    @property
    def stores(self) -> tuple[str, ...]:
        """The object stores that the Spark session has to reach."""
        return stores_of(self.lake, self.decoding.claim_store or "", self.source.folder)

    @property
    def packages(self) -> tuple[str, ...]:
        """Maven coordinates of further jars that the Spark session needs."""
        return () if self.snapshot is None else self.snapshot.packages

    @property
    def spark_key(self) -> str:
        """Key of the Dagster resource with the Spark session."""
        jars = (re.sub(r"\W", "_", package) for package in self.packages)
        return self.spark_resource or "_".join((OWN_SPARK, *self.stores, *jars))

    @property
    def run_tags(self) -> dict[str, str]:
        """Tags of a run that ingests once."""
        return self.tags_of_run(0)

    def tags_of_run(self, additional_seconds: float) -> dict[str, str]:
        """Tags of a run: the pipeline and the time limit, which is `additional_seconds` above the pipeline's."""
        tags = {PIPELINE_TAG: self.name}
        if self.max_runtime_seconds is not None:
            tags[_MAX_RUNTIME_TAG] = str(int(self.max_runtime_seconds + additional_seconds))
        return tags

    @property
    def paths(self) -> LakePaths:
        return LakePaths(self.lake, self.name)
