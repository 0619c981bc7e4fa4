"""Progress of a pipeline: decoded batches, the resolved TSO of its streams, and the published cut."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import itemgetter, or_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.control_tables import newest_version, read_maxima, read_rows
from cdc_pipeline.lake.delta import committed_version
from cdc_pipeline.lake.file_statistics import Condition
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.log_files import has_version
from cdc_pipeline.lake.paths import LakePaths, mirror_folders
from cdc_pipeline.lake.restored_tables import RestoredTableError
from cdc_pipeline.lake.tables.consistent_cuts import CUTS, read_newest_cut
from cdc_pipeline.mirrors.changes.ended_topics import ended_topics
from cdc_pipeline.mirrors.changes.window import Window, is_below, is_of_baseline, read_unapplied
from cdc_pipeline.mirrors.model.step_commits import VERSIONS_OF_CUT
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable, quarantined_tables
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, SELECTION_JSON, TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

_BATCH_COLUMNS = ("batch_id", "offsets", "row_changes", "exact_ts", "ended", "heartbeats", "oldest_at", "newest_at")
_SETTLE = 1000 << TSO_SHIFT
"""Without watermarks: how far the partitions of a topic may be apart while it has new records (1 s)."""


@dataclass(frozen=True)
class StreamProgress:
    """How far the streams of the decoded batches are."""

    last_batch: int
    has_tsos: bool = False
    """Whether a record with a TSO was decoded. If so, mirrors advance by watermarks only."""
    resolved_tso: int | None = None
    """The minimum, over all (topic, partition), of the newest watermark. None while a partition has no watermark."""
    held_by: str | None = None
    """The partition (`topic/partition`) of that minimum."""
    without_watermark: tuple[str, ...] = ()
    """The partitions without a watermark."""
    newest_tso: int | None = None
    """The newest watermark of any partition."""
    new_row_changes: int = 0
    """Row changes of the batches after the published cut."""
    new_span: tuple[int, int] | None = None
    """The lowest and highest `at` of these row changes."""
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    """Topic → time (ms) of its newest heartbeat (DataWorks): all changes up to it have arrived."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """Without TSOs: topic → the `at` below which all has arrived."""
    oldest: Mapping[str, int] = field(default_factory=dict)
    """Without TSOs: topic → the lowest `at` of the batches after the published cut."""
    ended: Mapping[str, Position] = field(default_factory=dict)
    """Topics that do not count, because their last table was dropped or renamed away → the statement (`ended_topics`)."""

    def has_late(self, published: PublishedCut) -> bool:
        """Whether something new belongs before the end of that cut."""
        if published.resolved_tso is not None:
            return self.new_span is not None and self.new_span[0] < published.resolved_tso
        return any(at < published.ends.get(topic, 0) for topic, at in self.oldest.items())

    @property
    def oldest_heartbeat(self) -> tuple[int, str] | None:
        """The lowest heartbeat (ms) and its topic. None with TSOs: mirrors then advance by watermarks."""
        return None if self.has_tsos else min(((ms, topic) for topic, ms in self.heartbeats.items()), default=None)

    @property
    def held_back_ms(self) -> int:
        """How far `held_by` is behind the newest watermark."""
        if self.resolved_tso is None or self.newest_tso is None:
            return 0
        return (self.newest_tso >> TSO_SHIFT) - (self.resolved_tso >> TSO_SHIFT)

    def blocking_reason(self) -> str:
        """The reason why mirrors cannot advance."""
        if self.without_watermark:
            return f"no watermark has arrived yet in {', '.join(self.without_watermark)}"
        if (heartbeat := self.oldest_heartbeat) is not None:
            return f"no heartbeat has arrived in {heartbeat[1]} since"
        if self.held_by is None:
            return "nothing new has arrived"
        if not self.held_back_ms:
            return "no partition has a watermark above the resolved TSO yet"
        lag = f"{self.held_back_ms / 1000:.1f} s behind the newest watermark"
        return f"the resolved TSO is held by {self.held_by}, whose newest watermark is {lag}"


@dataclass(frozen=True)
class PublishedCut:
    """The newest row of `consistent_cuts`; cut 0 if the table has none."""

    cut_id: int
    resolved_tso: int | None
    last_batch: int
    mirrors: tuple[Mapping[str, Any], ...]
    """As in `consistent_cuts`."""
    pending: int = 0
    """The number of row changes that a later cut will apply."""
    held: tuple[HeldTable, ...] = ()
    selection: TableSelection = ALL_TABLES
    """The selection that the cut used."""
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    """Without TSOs: topic → the `at` below which the cut has all row changes and statements."""
    time_zone: str | None = None

    @property
    def held_rows(self) -> int:
        """The number of `pending` row changes of held tables."""
        return sum(table.rows for table in self.held)

    @property
    def names(self) -> frozenset[TableName]:
        return frozenset(self.ids)

    @cached_property
    def ids(self) -> Mapping[TableName, str]:
        """Name → mirror id."""
        return {TableName(row["database"], row["table"]): row["mirror_id"] for row in self.mirrors}

    def mirror_folder(self, name: TableName, paths: LakePaths) -> str:
        """The path of the mirror that has the name; of no table if none has it."""
        return paths.mirror_folder(name, self.ids.get(name, ""))


NO_CUT = PublishedCut(0, None, 0, ())


def read_progress(lake: Lake, published: PublishedCut = NO_CUT) -> StreamProgress:
    """Reads the progress from `batches` and `watermarks`, without `with_ends`. Ignores `ended_topics` and the topics in
    `ended` of the newest batch.

    `published` bounds what is read: every partition has reached its resolved TSO, so only newer batches and watermarks
    count.
    """
    # without a newer batch, the newest one of the cut lists the topics that ended
    batches = read_rows(lake, "batches", ("batch_id", ">=", published.last_batch), columns=_BATCH_COLUMNS)
    newest_batch = max(batches, key=itemgetter("batch_id"), default=None)
    if newest_batch is None:
        return StreamProgress(published.last_batch, heartbeats=published.heartbeats)
    new = [batch for batch in batches if batch["batch_id"] > published.last_batch]
    tso = published.resolved_tso
    least: list[Condition] = [] if tso is None else [("watermark_ts", ">=", tso)]
    newest_of = read_maxima(lake, "watermarks", ("topic", "partition"), "watermark_ts", *least)
    known = {(span["topic"], span["partition"]) for batch in new for span in batch["offsets"]} | newest_of.keys()
    ended = newest_batch["ended"] or ()
    # if all topics ended, their last watermarks still count
    partitions = {partition for partition in known if partition[0] not in ended} or known
    exact = any(batch["exact_ts"] for batch in new) or published.resolved_tso is not None
    if least and (behind := {topic for topic, _ in partitions - newest_of.keys()}):
        # a new partition, or one below the published TSO: of a topic that ended, and has records again
        newest_of = read_maxima(lake, "watermarks", ("topic", "partition"), "watermark_ts")
        partitions |= {partition for partition in newest_of if partition[0] in behind}
    newest = {partition: newest_of.get(partition) for partition in sorted(partitions)}
    without_tables = ended_topics(lake, newest, newest_batch) if exact else {}
    newest = {partition: tso for partition, tso in newest.items() if partition[0] not in without_tables}
    waiting = tuple(f"{topic}/{number}" for (topic, number), tso in newest.items() if tso is None) if exact else ()
    spans = [batch for batch in new if batch["oldest_at"] is not None]
    # the union of counters has the greater one of each topic
    heartbeats = reduce(or_, (Counter(batch["heartbeats"] or {}) for batch in new), Counter(published.heartbeats))
    found = StreamProgress(
        newest_batch["batch_id"],
        exact,
        without_watermark=waiting,
        new_row_changes=sum(batch["row_changes"] for batch in new),
        new_span=(min(one["oldest_at"] for one in spans), max(one["newest_at"] for one in spans)) if spans else None,
        heartbeats={topic: ms for topic, ms in heartbeats.items() if topic not in ended},
        ended=without_tables,
    )
    if not exact or waiting:
        return found
    tsos = {partition: tso for partition, tso in newest.items() if tso is not None}
    topic, number = slowest = min(tsos, key=lambda partition: tsos[partition])
    return replace(found, resolved_tso=tsos[slowest], held_by=f"{topic}/{number}", newest_tso=max(tsos.values()))


def with_ends(
    lake: Lake,
    found: StreamProgress,
    published: PublishedCut = NO_CUT,
    unread: Callable[[], Collection[str] | None] = tuple,
) -> StreamProgress:
    """Adds `ends` and `oldest` to a progress without TSOs. `unread` returns the topics with new records in the source
    (None: unknown).

    A topic without new records is complete. In another one, a partition may lack what its other partitions have already,
    but nothing older than a second.
    """
    if found.has_tsos or not found.last_batch:
        return found
    changes = read_unapplied(lake, None, published.ends, published.last_batch, found.last_batch)
    statements = lake.read("ddl_history").where((F.col("batch_id") <= found.last_batch) & ~is_of_baseline())
    of_new = F.when(F.col("batch_id") > published.last_batch, F.col("at"))
    columns = ["topic", "at", "batch_id"]
    by_topic = (
        changes.select(*columns).unionByName(statements.select(*columns)).where("at IS NOT NULL").groupBy("topic")
    )
    spans = by_topic.agg(F.max("at").alias("newest"), F.min(of_new).alias("oldest")).collect()
    oldest = {row["topic"]: row["oldest"] for row in spans if row["oldest"] is not None}
    ends = dict(published.ends)
    is_open = any(row["newest"] >= ends.get(row["topic"], 0) for row in spans)
    busy = unread() if is_open else ()
    for row in spans:
        topic, at = row["topic"], row["newest"]
        end = at - _SETTLE if busy is None or topic in busy else at + 1
        ends[topic] = max(end, ends.get(topic, 0))
    if (busy is None or busy) and len(ends) > 1:
        _hold_statements(statements, ends, published.ends, set(ends if busy is None else busy))
    return replace(found, ends=ends, oldest=oldest)


def _hold_statements(
    statements: DataFrame, ends: dict[str, int], applied: Mapping[str, int], incomplete: set[str]
) -> None:
    """Lowers the `ends` of topics with a statement of Canal that the `incomplete` topics have not passed.

    Threads of Canal build the topics of a batch, so that a statement may have a lower `ts` than rows before it in another
    topic (canal-facts 49).
    """
    inside = F.col("message_id").isNotNull() & is_below(None, ends) & ~is_below(None, applied)
    for topic, at in sorted(statements.where(inside).select("topic", "at").collect(), key=itemgetter("at")):
        if any(ends[other] <= at + _SETTLE for other in (incomplete & ends.keys()) - {topic}):
            ends[topic] = min(ends[topic], at)
            incomplete.add(topic)


def published_cut(lake: Lake) -> PublishedCut:
    """The newest cut."""
    return _published(read_newest_cut(lake))


def newest_known_cut(lake: Lake, published: PublishedCut) -> int:
    """The number of the newest cut that was published, also if `consistent_cuts` has lost its row."""
    paths = lake.paths
    committed, planned = (newest_version(lake, name, paths.app_id(name)) for name in (CUTS, "cut_plans"))
    known = max(published.cut_id, committed or 0, (planned or 1) - 1)
    if known or planned:
        return known
    steps = (
        committed_version(lake.spark, path, paths.app_id("steps")) or 0 for path in mirror_folders(lake.spark, paths)
    )
    return max(steps, default=0) // VERSIONS_OF_CUT


def require_published(lake: Lake, published: PublishedCut, *, mirrors: bool = True) -> None:
    """Raises RestoredTableError if a later cut than `published` was published: Delta would skip the commits of cuts with its
    number. With `mirrors`, also if a mirror does not exist, or (in a lake with `has_files`) only at an earlier version: it
    would be created from new rows only.

    Call it without a begun cut. Mirrors of quarantined tables are skipped, because no cut changes them.
    """
    paths, quarantined, remedy = lake.paths, quarantined_tables(published.held), "with its name in `tables`"
    folders = mirror_folders(lake.spark, paths) if mirrors and not paths.has_files else ()
    versions = {TableName(row["database"], row["table"]): row["version"] for row in published.mirrors if mirrors}
    lost = [
        f"mirror/{name} (version {version})"
        for name, version in versions.items()
        if name not in quarantined
        and (path := published.mirror_folder(name, paths))
        and not (has_version(path, version) if paths.has_files else path in folders)
    ]
    if lost and (newest_version(lake, "cut_plans", paths.app_id("cut_plans")) or 0) > published.cut_id:
        lost = []  # without a lock, another run has begun a cut meanwhile, or even published it
    if (known := newest_known_cut(lake, published)) > published.cut_id and known > published_cut(lake).cut_id:
        lost, remedy = [f"cut {known} in consistent_cuts"], "without `tables`, which makes all mirrors again"
    if lost:
        raise RestoredTableError(
            f"the lake lacks {', '.join(lost[:3])}{' …' if lost[3:] else ''}: it was removed, or replaced by an older copy. "
            f"No cut was made. Put the complete folder back, or run {paths.pipeline}_rebuild {remedy} "
            "(`cdc-pipeline docs operations removed`)",
            pipeline=paths.pipeline,
        )


def cut_at(lake: Lake, tso: int) -> PublishedCut:
    """The newest cut at or below the TSO; NO_CUT if there is none."""
    cuts = read_rows(lake, CUTS, ("resolved_tso", "<=", tso), columns=["cut_id"])
    found = max((cut["cut_id"] for cut in cuts), default=None)
    return NO_CUT if found is None else cut_with_id(lake, found)


def cut_with_id(lake: Lake, cut_id: int) -> PublishedCut:
    """The cut with this id; NO_CUT if there is none."""
    return _published(next(iter(read_rows(lake, CUTS, ("cut_id", "=", cut_id))), None))


def _published(row: Mapping[str, Any] | None) -> PublishedCut:
    if row is None:
        return NO_CUT
    held = tuple(map(_held_table, row["held"]))
    return PublishedCut(
        row["cut_id"],
        row["resolved_tso"],
        row["last_batch"],
        tuple(row["mirrors"]),
        row["pending"],
        held,
        SELECTION_JSON.from_json(row["selection"]),
        row["heartbeats"],
        dict(row["ends"]),
        row["time_zone"],
    )


def _held_table(row: Mapping[str, Any]) -> HeldTable:
    name, cause = TableName(row["database"], row["table"]), Position(row["topic"], row["partition"], row["offset"])
    return HeldTable(name, cause, row["commit_ts"], row["rows"], row["error"])


# ---- windows


def window_between(first: PublishedCut, last: PublishedCut) -> Window:
    """What the cuts after `first` have applied, up to `last`."""
    tsos, batches = (first.resolved_tso, last.resolved_tso), (first.last_batch, last.last_batch)
    return Window(last.cut_id, *tsos, *batches, first.ends, last.ends)


def require_tsos_as_before(lake: Lake, published: PublishedCut, streams: StreamProgress) -> None:
    """Raises LakeError if the stream has TSOs and the cuts so far have none: their ends would not be comparable."""
    if streams.has_tsos and published.ends:
        raise lake.error(
            "the stream has TSOs now, and the cuts so far have none. Nothing was changed. Run "
            f"{lake.paths.pipeline}_rebuild without `tables`, once each partition has a watermark"
        )


def next_window(published: PublishedCut, streams: StreamProgress, *, always: bool = False) -> Window | None:
    """The window of the next cut. If the streams are complete no further than the published cut: None, or with `always` an
    empty window."""
    tso, ends, batch = streams.resolved_tso, streams.ends, streams.last_batch
    if streams.has_tsos:
        # it never decreases: a restarted changefeed resends older watermarks
        is_new, ends = tso is not None and tso > (published.resolved_tso or 0), {}
    else:
        is_new = any(end > published.ends.get(topic, 0) for topic, end in ends.items()) or streams.has_late(published)
    if not is_new:
        tso, ends, batch = published.resolved_tso, published.ends, published.last_batch
    window = Window(
        published.cut_id + 1, published.resolved_tso, tso, published.last_batch, batch, published.ends, ends
    )
    return window if is_new or always else None


def pending_changes(published: PublishedCut, streams: StreamProgress, lake: Lake) -> int:
    """The number of pending row changes if there is no new cut."""
    if not streams.new_row_changes:
        return published.pending
    tso, ends = published.resolved_tso, published.ends
    rows = read_unapplied(lake, tso, ends, published.last_batch, streams.last_batch)
    return rows.where(~is_below(tso, ends)).count() + published.held_rows
