"""The source `ticdc_storage`: reads the folder of a TiCDC storage sink with protocol=canal-json as one partition.

Each line of a data file (without its line end), each schema file and each checkpoint is a record, byte for byte. The
checkpoint is the last record of a run. Offsets are assigned in reading order. Progress is a list of files with sizes, so a
file that has grown is read from its previous end. docs/storage.md lists what is read when.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.sources.intake import OffsetRange
from cdc_pipeline.sources.raw_batches import append_batch
from cdc_pipeline.sources.source import (
    Intake,
    NewRecords,
    NoNewRecords,
    RunContext,
    Source,
    SourceFile,
    compare_listings,
)
from cdc_pipeline.sources.storage import reading
from cdc_pipeline.sources.storage.batches import (
    Progress,
    file_blocking_checkpoint,
    files_to_read,
    read_progress,
    split_files,
)
from cdc_pipeline.sources.storage.folder import (
    ArrowFolder,
    Checkpoint,
    Folder,
    Listing,
    list_folder,
    local_or_hadoop,
    named_errors,
)
from cdc_pipeline.sources.storage.layout import CLOSES_MS, FILE, METADATA, StorageFile

MAX_BYTES = 256 << 20
"""Default of `max_bytes_per_batch`, in bytes: four files of the sink's default size. A batch is cached while it is written,
and decoding needs a few times its size: it fits a driver of 3 GB, and the fixed cost of a batch is negligible."""
_SHOWN = 5


@dataclass(frozen=True)
class TicdcStorage(Source):
    """The folder of a TiCDC storage sink."""

    path: str
    """A local path or a Hadoop URI."""
    name: str = "ticdc_storage"
    """The topic of the records in the lake."""
    max_bytes_per_batch: int = MAX_BYTES
    """Maximum total size of a batch's files; a larger file is a batch of its own."""

    @property
    def location(self) -> str:
        return f"the storage folder {self.path!r}"

    @property
    def folder(self) -> str:
        return self.path

    def ingest(self, lake: Lake, run: RunContext, until: Mapping[str, Mapping[str, int]] | None = None) -> Intake:
        """Ingests all new files in one or more batches, and the checkpoint in the last one. Ignores `until`."""
        lake.paths.require_writable(lake.spark)
        folder = local_or_hadoop(lake.spark, self.path)
        listing = list_folder(folder)
        before = read_progress(lake, self.name)
        if before.batch_id == 0 and not listing.files and listing.checkpoint is None:
            raise SourceError(
                f"{self.location} is empty; files of a TiCDC storage sink with protocol=canal-json are expected"
            )
        return _FolderIngest(self, lake, run, folder, listing, before).run_all()

    def find_new_records(self, note: Mapping[str, Any] | None) -> NewRecords | NoNewRecords:
        """Compares the folder's listing with the note."""
        listing = list_folder(ArrowFolder(self.path))
        if not listing.files and listing.checkpoint is None:
            return NoNewRecords(f"{self.path!r} is empty")
        return compare_listings(note, listing.digest, len(listing.files), self.path)


@dataclass
class _FolderIngest:
    """Ingests one listing in one run, and holds the run's results so far."""

    source: TicdcStorage
    lake: Lake
    run: RunContext
    folder: Folder
    listing: Listing
    before: Progress
    incomplete: list[StorageFile] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    files: list[StorageFile] = field(default_factory=list)
    ranges: list[OffsetRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = self.before.next_offset
        self._without_tso = self.before.without_tso
        self._checkpoint = self.before.checkpoint

    def run_all(self) -> Intake:
        new, rewritten = files_to_read(self.lake, self.folder.root, self.listing.files, self.before)
        chunks = split_files(new, self.source.max_bytes_per_batch) or [()]
        for number, chunk in enumerate(chunks, start=1):
            last = number == len(chunks)
            self._ingest(chunk, rewritten if number == 1 else (), last=last)
            if not last:
                self.run.report(f"batch {number} of {len(chunks)} of {self.source.location}")
        if self.incomplete:
            names = ", ".join(file.path for file in self.incomplete[:_SHOWN])
            self.run.report(
                f"{len(self.incomplete)} files are empty or end in the middle of a line; the next run reads them: {names}"
            )
        files = tuple(SourceFile(file.path, file.size, file.modified_ms) for file in self.files)
        return Intake(tuple(self.batches), files, tuple(self.ranges), sum(span.records for span in self.ranges))

    def _ingest(self, chunk: tuple[StorageFile, ...], rewritten: tuple[StorageFile, ...], *, last: bool) -> None:
        """Appends the complete files of the chunk as one batch; after the last chunk also the checkpoint.

        `rewritten`: schema files that TiCDC has written again with the same content; the note stores their new time.
        """
        if not chunk:
            self._append([], None, rewritten, last=last)
            return
        with named_errors(self.folder.root):
            lines = reading.read_lines(self.lake.spark, self.folder.root, chunk).persist()
        try:
            self._append(self._read(lines, chunk), lines, rewritten, last=last)
        finally:
            lines.unpersist()

    def _read(self, lines: DataFrame, chunk: tuple[StorageFile, ...]) -> list[reading.ReadFile]:
        """The complete files of the chunk. Reads every file to its end."""
        with named_errors(self.folder.root):
            found = reading.blocks_by_path(lines, self.folder.root)
            complete: list[StorageFile] = []
            for file in chunk:
                _, blocks = found.get(file.path, ("", ()))
                (complete if reading.is_complete(file, blocks) else self.incomplete).append(file)
            sizes = {
                found[file.path][0]: self.before.files[file.path].size for file in complete if self._has_grown(file)
            }
            known = reading.known_lines(lines, sizes)
        return [reading.ReadFile(file, *found[file.path], known.get(found[file.path][0], 0)) for file in complete]

    def _has_grown(self, file: StorageFile) -> bool:
        return file.path in self.before.files and self.before.files[file.path].size > 0

    def _append(
        self, read: list[reading.ReadFile], lines: DataFrame | None, rewritten: tuple[StorageFile, ...], *, last: bool
    ) -> None:
        self._without_tso = self._without_tso or any(file.without_tso for file in read)
        checkpoint = self._new_checkpoint() if last else None
        if not read and checkpoint is None:
            return
        batch_id = self.before.batch_id + len(self.batches) + 1
        first, frames = self._next, []
        if read and lines is not None:
            frames.append(reading.records(lines, read, self.source.name, first))
            self._next += sum(file.new_lines for file in read)
        if checkpoint is not None:
            headers = {FILE: METADATA, **({CLOSES_MS: "true"} if self._without_tso else {})}
            record = (self.source.name, self._next, checkpoint.text, checkpoint.modified_ms, headers)
            frames.append(reading.one_record(self.lake.spark, *record))
            self._next += 1
            self._checkpoint = checkpoint.tso
        span = OffsetRange(self.source.name, 0, first, self._next - 1, self._next - first)
        done = [*(file.file for file in read), *rewritten]
        note: dict[str, Any] = {
            "run_id": self.run.run_id,
            "files": [[file.path, file.size, file.modified_ms] for file in done],
            "offsets": [[span.topic, span.partition, span.first, span.last, span.records]] if span.records else [],
            "checkpoint": self._checkpoint,
            "without_tso": self._without_tso,
            # their last watermark would hold back the mirrors
            "ended": sorted(self.before.other_topics),
            # the storage sink does not compress values: large-message-handle-compression is an option of message queues
            "plain": True,
            # rows of the storage sink are TiCDC's
            "zero_ids": False,
            # only the last batch of a run completes the listing
            **({"listing": self.listing.digest} if last else {}),
        }
        frame = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        append_batch(self.lake, frame, batch_id, note)
        self.batches.append(batch_id)
        self.files += [file.file for file in read]
        if span.records:
            self.ranges.append(span)

    def _new_checkpoint(self) -> Checkpoint | None:
        """The checkpoint, if it is above the previous one and no incomplete file blocks it."""
        found = self.listing.checkpoint
        if found is None or (self._checkpoint is not None and found.tso <= self._checkpoint):
            return None
        if file := file_blocking_checkpoint(self.incomplete, self.listing.files):
            self.run.report(f"the checkpoint {found.tso} waits for {file.path}, which is incomplete")
            return None
        return found
