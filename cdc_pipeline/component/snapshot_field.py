"""The field `snapshot`: an export of the tables, with which their mirrors begin."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cdc_pipeline.component.yaml_model import YamlModel
from cdc_pipeline.pipeline import Snapshot
from cdc_pipeline.snapshots.export import ExportType


class SnapshotSettings(YamlModel):
    """An export of Dumpling, mydumper or mysqldump, which `<name>_snapshot` loads and makes the beginning of mirrors."""

    type: Annotated[ExportType, Field(description="The program that has written the export.")]
    path: Annotated[
        str, Field(description="Its folder, or the file of mysqldump: local, s3a:// or another URI of Arrow.")
    ]
    tables: Annotated[
        list[str], Field(description="Patterns on the upstream database.table of the tables to load.")
    ] = ["*"]  # noqa: RUF012  # pydantic copies it
    changefeed_start: Annotated[
        int | None,
        Field(description="TSO from which the changefeed sends (start-ts), if no watermark is as old as the export."),
    ] = None
    accept_gap: Annotated[
        bool,
        Field(description="Load tables although the stream may lack changes after the export. They have a gap then."),
    ] = False

    @property
    def settings(self) -> Snapshot:
        return Snapshot(self.type, self.path, tuple(self.tables), self.changefeed_start, self.accept_gap)
