"""The field `snapshot`: an export of the tables, or their server, with which their mirrors begin."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, field_validator, model_validator

from cdc_pipeline.component.yaml_model import (
    Secret,
    YamlModel,
    milliseconds,
    require_tso,
    resolver_by_type,
    secret_resolver,
)
from cdc_pipeline.pipeline import ExportedFiles, Snapshot
from cdc_pipeline.snapshots.export import ExportType
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline.spark.jdbc import JdbcServer

_DRIVERS = {"jdbc:mysql:": "com.mysql.cj.jdbc.Driver", "jdbc:mariadb:": "org.mariadb.jdbc.Driver"}


class _SnapshotFields(YamlModel):
    tables: list[str] = ["*"]
    """Patterns on the upstream database.table of the tables to load."""
    changefeed_start: int | None = None
    """TSO from which the changefeed sends (start-ts), or for other senders ms since 1970 << 18, if the stream does not
    show that it is older than the export."""
    accept_gap: bool = False
    """Load tables although the stream may lack changes after the export. They have a gap then."""

    definitions_only: bool = False
    """Import definitions, and no rows: for tables whose changes name no keys or types. The stream must have no
    statements about them."""

    _require_tso = field_validator("changefeed_start")(require_tso)


class SnapshotSettings(_SnapshotFields):
    """An export of Dumpling, mydumper or mysqldump, which `<name>_snapshot` loads and makes the beginning of mirrors."""

    type: ExportType
    """The program that has written the export."""
    path: str
    """Its folder, or the file of mysqldump: local, s3a:// or another URI of Arrow."""
    started: str | int | None = None
    """When the export began, or a little earlier: 2026-11-29T01:00:00Z, or ms since 1970. Required without a TSO, so
    for MySQL and MariaDB."""
    finished: str | int | None = None
    """When it ended, or a little later, in the same form. By default when it is loaded. Tables without a key get a gap
    if they changed in between."""

    @model_validator(mode="after")
    def _validate_times(self) -> SnapshotSettings:
        times = self._times
        if times is not None and times.finished is not None and times.finished < times.started:
            raise ValueError("finished is before started")
        if times is None and self.finished is not None:
            raise ValueError("finished needs started")
        return self

    @property
    def _times(self) -> ExportTimes | None:
        if self.started is None:
            return None
        finished = None if self.finished is None else milliseconds("finished", self.finished)
        return ExportTimes(milliseconds("started", self.started), finished)

    @property
    def settings(self) -> Snapshot:
        files = ExportedFiles(self.type, self.path, self._times)
        return Snapshot(files, tuple(self.tables), self.changefeed_start, self.accept_gap, self.definitions_only)


class JdbcSnapshotSettings(_SnapshotFields):
    """A running MySQL or MariaDB, whose tables `<name>_snapshot` reads and makes the beginning of mirrors."""

    # errors must not show the value, which may be a password
    model_config = ConfigDict(hide_input_in_errors=True)

    type: Literal["jdbc"]
    url: str
    """jdbc:mysql://host:3306/ or jdbc:mariadb://host:3306/, without user."""
    driver: str
    """Maven coordinates of the driver, such as org.mariadb.jdbc:mariadb-java-client:3.5.6."""
    user: Annotated[str, secret_resolver("snapshot.user")] = ""
    """User, with the right SELECT."""
    password: Annotated[Secret, secret_resolver("snapshot.password")] = ""
    """Secret: the password, from the environment."""

    @field_validator("url")
    @classmethod
    def _validate_url(cls, value: str) -> str:
        if not value.startswith(tuple(_DRIVERS)):
            raise ValueError("jdbc:mysql://… or jdbc:mariadb://… is expected")
        if re.search(r"password|//[^/]*@", value):
            raise ValueError("user and password are fields of their own")
        return value

    @field_validator("driver")
    @classmethod
    def _validate_driver(cls, value: str) -> str:
        if not re.fullmatch(r"[\w.-]+:[\w.-]+:[\w.-]+", value):
            raise ValueError(f"{value!r}: Maven coordinates group:artifact:version are expected")
        return value

    @property
    def settings(self) -> Snapshot:
        name = next(name for prefix, name in _DRIVERS.items() if self.url.startswith(prefix))
        server = JdbcServer(self.url, name, self.user, self.password)
        own = self.changefeed_start, self.accept_gap, self.definitions_only
        return Snapshot(server, tuple(self.tables), *own, (self.driver,))


SnapshotField = Annotated[
    SnapshotSettings | JdbcSnapshotSettings | None,
    resolver_by_type("snapshot", **dict.fromkeys(get_args(ExportType), SnapshotSettings), jdbc=JdbcSnapshotSettings),
]
