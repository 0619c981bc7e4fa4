"""The source `capture_files`: a folder of files with one record per line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cdc_pipeline.sources.capture_files.new_files import ingest_new_files, listing_digest
from cdc_pipeline.sources.capture_files.reading import list_folder
from cdc_pipeline.sources.source import Intake, NewRecords, NoNewRecords

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.sources.source import RunContext


@dataclass(frozen=True)
class CaptureFiles:
    """The folder `path` of capture files; the format is described in `sources.capture_files.reading`."""

    path: str

    @property
    def location(self) -> str:
        return f"the capture folder {self.path!r}"

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset()

    @property
    def secrets(self) -> tuple[str, ...]:
        return ()

    def ingest(
        self,
        lake: Lake,
        run: RunContext,
        until: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Intake:
        """Ingests all new files as one batch. Ignores `until`: the run uses the current listing, not the sensor's."""
        return ingest_new_files(lake, self.path, run.run_id)

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        listing = list_folder(self.path)
        if not listing.files:
            return NoNewRecords(f"there are no capture files in {self.path!r} yet")
        range_id = listing_digest(listing)
        if note is not None and note.get("listing") == range_id:
            return NoNewRecords(f"nothing new: all {len(listing.files)} files of {self.path!r} are ingested")
        # the number of records is unknown until the files are read
        summary = f"new files among the {len(listing.files)} of {self.path!r}"
        return NewRecords(summary, range_id, range_id, len(listing.files))
