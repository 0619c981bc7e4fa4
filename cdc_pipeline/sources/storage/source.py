"""The source `ticdc_storage`: the folder of a TiCDC storage sink with protocol=canal-json, as the records of one partition.

A line of a data file is a record, byte for byte without its line end; so is a schema file as a whole; and so is the
checkpoint, which comes last. Records are numbered as they are read. What is in is told by the files: each is read once,
and one that has grown from where it ended. docs/storage.md says what is read when.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.delta import Commit, append_once
from cdc_pipeline.lake.paths import first_line
from cdc_pipeline.sources.intake import OffsetRange
from cdc_pipeline.sources.raw_batches import raw_app_id
from cdc_pipeline.sources.source import CaptureFile, Intake, News, NoNews
from cdc_pipeline.sources.storage.batches import bounded, checkpoint_waits_for, files_to_read
from cdc_pipeline.sources.storage.folder import (
    ArrowFolder,
    Checkpoint,
    Folder,
    Listing,
    LocalFolder,
    is_local,
    listed,
    local_or_hadoop,
)
from cdc_pipeline.sources.storage.layout import CLOSES_MS, FILE, METADATA
from cdc_pipeline.sources.storage.progress import read_so_far
from cdc_pipeline.sources.storage.reading import (
    ReadFile,
    blocks_by_path,
    is_whole,
    known_lines,
    lines_of,
    one_record,
    records,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.sources.source import RunContext
    from cdc_pipeline.sources.storage.layout import StorageFile
    from cdc_pipeline.sources.storage.progress import ReadSoFar

MAX_BYTES = 256 << 20
"""A batch's lines are kept while they are counted and written, and decoding holds a few times as much: 256 MB, four files
of the sink's default size, fit a driver of 3 GB with room, and are large enough for a batch's fixed seconds not to count."""
_SHOWN = 5


@dataclass(frozen=True)
class TicdcStorage:
    """The folder, or Hadoop URI, `path`. `name` is the topic under which its records stand in the lake. A batch has files of
    `max_bytes_per_batch` together, or one larger file."""

    path: str
    name: str = "ticdc_storage"
    max_bytes_per_batch: int = MAX_BYTES

    @property
    def place(self) -> str:
        return f"the storage folder {self.path!r}"

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset()

    @property
    def secrets(self) -> tuple[str, ...]:
        return ()

    def take_in(
        self,
        spark: SparkSession,
        paths: LakePaths,
        run: RunContext,
        until: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Intake:
        """All that is new in the folder, in as many batches as it needs; the checkpoint in the last one."""
        paths.require_writable(spark)
        folder = local_or_hadoop(spark, self.path)
        listing = listed(folder)
        before = read_so_far(spark, paths, self.name)
        if before.batch_id == 0 and not listing.files and listing.checkpoint is None:
            raise SourceError(
                f"{self.place} is empty: files of a TiCDC storage sink with protocol=canal-json are expected"
            )
        return _Taking(self, spark, paths, run, folder, listing, before).take_all_in()

    def news(self, note: Mapping[str, Any] | None) -> News | NoNews:
        """By a listing: Python's of a local folder, pyarrow's of any other."""
        folder: Folder = LocalFolder(self.path) if is_local(self.path) else ArrowFolder(self.path)
        listing = listed(folder)
        if not listing.files and listing.checkpoint is None:
            return NoNews(f"there is nothing in {self.path!r} yet")
        range_id, seen = listing.digest, (note or {}).get("listing")
        if seen == range_id:
            return NoNews(f"nothing new: all {len(listing.files)} files of {self.path!r} are taken in")
        # how many records they have is known to none but a reader
        summary = f"new among the {len(listing.files)} files of {self.path!r}"
        return News(summary, str(seen), range_id, len(listing.files))


@dataclass
class _Taking:
    """One run's work on one listing: what it has done so far."""

    source: TicdcStorage
    spark: SparkSession
    paths: LakePaths
    run: RunContext
    folder: Folder
    listing: Listing
    before: ReadSoFar
    waiting: list[StorageFile] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    files: list[StorageFile] = field(default_factory=list)
    ranges: list[OffsetRange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = self.before.next_offset
        self._without_tso = self.before.without_tso
        self._checkpoint = self.before.checkpoint

    def take_all_in(self) -> Intake:
        new, again = files_to_read(self.spark, self.paths, self.folder.root, self.listing.files, self.before)
        chunks = bounded(new, self.source.max_bytes_per_batch) or [()]
        for number, chunk in enumerate(chunks, start=1):
            last = number == len(chunks)
            self._take_in(chunk, again if number == 1 else (), last=last)
            if not last:
                self.run.report(f"batch {number} of {len(chunks)} of {self.source.place}")
        if self.waiting:
            names = ", ".join(file.path for file in self.waiting[:_SHOWN])
            self.run.report(f"{len(self.waiting)} files are empty or end in the middle of a line and wait: {names}")
        files = tuple(CaptureFile(file.path, file.size, file.modified_ms) for file in self.files)
        return Intake(tuple(self.batches), files, tuple(self.ranges))

    def _take_in(self, chunk: tuple[StorageFile, ...], again: tuple[StorageFile, ...], *, last: bool) -> None:
        """One batch: the whole files of the chunk, and after the last chunk the checkpoint. `again` are files that TiCDC has
        written a second time as they were."""
        if not chunk:
            self._write([], None, again, last=last)
            return
        try:
            lines = lines_of(self.spark, self.folder.root, chunk).persist()
        except (PySparkException, Py4JJavaError) as error:
            raise self._unreadable(error) from error
        try:
            self._write(self._read(lines, chunk), lines, again, last=last)
        finally:
            lines.unpersist()

    def _read(self, lines: DataFrame, chunk: tuple[StorageFile, ...]) -> list[ReadFile]:
        """`_whole_files`, with Spark's errors as what they say of the source. It reads every file to its end."""
        try:
            return self._whole_files(lines, chunk)
        except (PySparkException, Py4JJavaError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SourceError:
        return SourceError(f"{self.source.place} cannot be read: {first_line(error)}")

    def _whole_files(self, lines: DataFrame, chunk: tuple[StorageFile, ...]) -> list[ReadFile]:
        found = blocks_by_path(lines, self.folder.root)
        whole: list[StorageFile] = []
        for file in chunk:
            _, blocks = found.get(file.path, ("", ()))
            (whole if is_whole(file, blocks) else self.waiting).append(file)
        sizes = {found[file.path][0]: self.before.files[file.path].size for file in whole if self._has_grown(file)}
        known = known_lines(lines, sizes)
        return [ReadFile(file, *found[file.path], known.get(found[file.path][0], 0)) for file in whole]

    def _has_grown(self, file: StorageFile) -> bool:
        return file.path in self.before.files and self.before.files[file.path].size > 0

    def _write(
        self, read: list[ReadFile], lines: DataFrame | None, again: tuple[StorageFile, ...], *, last: bool
    ) -> None:
        self._without_tso = self._without_tso or any(file.without_tso for file in read)
        checkpoint = self._new_checkpoint() if last else None
        if not read and checkpoint is None:
            return
        batch_id = self.before.batch_id + len(self.batches) + 1
        first, frames = self._next, []
        if read and lines is not None:
            frames.append(records(lines, read, self.source.name, first))
            self._next += sum(file.new_lines for file in read)
        if checkpoint is not None:
            mark = {CLOSES_MS: "true"} if self._without_tso else {}
            headers = {FILE: METADATA, **mark}
            place = (self.source.name, self._next, checkpoint.text, checkpoint.modified_ms, headers)
            frames.append(one_record(self.spark, *place))
            self._next += 1
            self._checkpoint = checkpoint.tso
        span = OffsetRange(self.source.name, 0, first, self._next - 1, self._next - first)
        done = [*(file.file for file in read), *again]
        note: dict[str, Any] = {
            "batch": batch_id,
            "run_id": self.run.run_id,
            "files": [[file.path, file.size, file.modified_ms] for file in done],
            "offsets": [[span.topic, span.partition, span.first, span.last, span.records]] if span.records else [],
            "checkpoint": self._checkpoint,
            "without_tso": self._without_tso,
            # the storage sink compresses nothing: large-message-handle-compression is of message queues
            "plain": True,
            # only what ends a run says that all of the listing is in
            **({"listing": self.listing.digest} if last else {}),
        }
        frame = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
        batch = frame.select(F.lit(batch_id).cast("bigint").alias("batch_id"), "*")
        append_once(batch, self.paths.table("raw_topic_snapshot"), Commit(raw_app_id(self.paths), batch_id, note))
        self.batches.append(batch_id)
        self.files += [file.file for file in read]
        if span.records:
            self.ranges.append(span)

    def _new_checkpoint(self) -> Checkpoint | None:
        """The checkpoint, where it is above the last one, and nothing that it may speak of waits."""
        found = self.listing.checkpoint
        if found is None or (self._checkpoint is not None and found.tso <= self._checkpoint):
            return None
        if waits := checkpoint_waits_for(self.waiting, self.listing.files):
            self.run.report(f"the checkpoint {found.tso} waits for {waits.path}, which is not written to its end")
            return None
        return found
