"""DDL events: the statements of `ddl_history` in upstream's order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from itertools import groupby

from pyspark.sql import Row

from cdc_pipeline.dialects.ticdc_storage import DEFINITION_TYPE
from cdc_pipeline.dialects.traits import Trait, dialect_has_trait, statement_quotings
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.ddl.statements import BASELINE_EVENT, DDL_EVENT, event_changes
from cdc_pipeline.mysql.model.change_names import folded, with_sent_name
from cdc_pipeline.mysql.model.schema_changes import CreateTable, RenameTable, SchemaChange
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import Position

BASELINE_TOPIC = "snapshot:"
"""Precedes the id of a baseline in `topic`, of its rows and of its events."""
WITH_GAP, WITHOUT_GAP, DEFINITION = "SNAPSHOT WITH GAP", "SNAPSHOT", DEFINITION_TYPE
"""Values of `type` in events of baselines. DEFINITION: without rows, and before all changes."""
_WITHOUT_ROWS = Gap(
    GapKind.UNSEEN_START, "the definition is that of an export: rows from before the stream began are missing"
)
BEFORE_CHANGEFEED = Gap(
    GapKind.UNSEEN_START,
    "TiCDC wrote the definition without a CREATE TABLE: rows from before the changefeed began are missing",
)
_AFTER_BASELINE = Gap(GapKind.UNSEEN_START, "the stream may lack changes after the export that the table begins with")
SAME_BATCH_MS = 10_000
"""Messages of Canal with one batch number whose `ts` differ by less are of one batch: numbers start again at a restart.

With `canal.mq.dynamicTopic` a thread per topic builds the messages of a batch, so that `ts` does not order its topics.
"""


@dataclass(frozen=True)
class DdlEvent:
    """One DDL message with its parsed changes."""

    topic: str
    partition: int
    offset: int
    database: str
    table: str
    commit_ts: int
    exact_ts: bool
    """Whether `commit_ts` is a TSO; false if it is only `es << 18`."""
    es: int
    """Execution time in ms: the time of the event, because `commit_ts` of DataWorks is a sequence number."""
    ts: int | None
    """Time in ms at which the encoder built the message. Of a baseline without a TSO: when the export had ended."""
    sql: str
    changes: tuple[SchemaChange, ...]
    dialect: str = ""
    message_id: int | None = None
    """Number of Canal's batch."""
    at: int = 0
    """Position on the clock of the stream (`dialects.unified`)."""
    created: tuple[tuple[TableName, TableName], ...] = ()
    """(the mirror's key, upstream's name) of the included tables that the event creates, renames or recovers."""

    @property
    def identity(self) -> tuple[int, str, str, str]:
        """Equal for copies of one DDL (PEERS §4.2): same time, statement and table."""
        return (self.commit_ts, self.sql, self.database, self.table)

    @property
    def position(self) -> Position:
        return Position(self.topic, self.partition, self.offset)

    @property
    def is_baseline(self) -> bool:
        return self.topic.startswith(BASELINE_TOPIC)

    @property
    def ddl_id(self) -> str:
        """The event's id. It has the position if `commit_ts` is no TSO, because Canal's times are whole seconds."""
        if self.is_baseline:
            return f"baseline-{self.topic.removeprefix(BASELINE_TOPIC)}"  # no time: no RECOVER brings back what it replaces
        position = "" if self.exact_ts else f".{self.partition}.{self.offset}"
        return f"{self.commit_ts}{position}"

    @property
    def is_start(self) -> bool:
        """Whether the statement began in the second of `es`, as in a binlog. TiDB's statements began earlier."""
        return not dialect_has_trait(self.dialect, Trait.FROM_TIDB)

    def names(self) -> tuple[TableName, ...]:
        """The tables whose rows this event separates into segments, in the order of the statement."""
        return tuple(dict.fromkeys(name for change in self.changes for name in change.names().touched))


def ddl_event(row: Row) -> DdlEvent:
    """The event of a row of `ddl_history`. Parses the statement again instead of reading the stored changes."""
    database, table, dialect = row["database"] or "", row["table"] or "", row["dialect"] or ""
    changes = event_changes(row["kind"], database, table, row["sql"] or "", statement_quotings(row))
    if dialect_has_trait(dialect, Trait.FROM_TIDB):
        changes = with_sent_name(changes, TableName(database, table))
    if row["kind"] == DDL_EVENT and row["type"] == DEFINITION:
        # of a table that is older than the changefeed (`CheckOrWriteSchema` in TiCDC's pkg/cloudstorage/path.go)
        gap = (BEFORE_CHANGEFEED,)
        changes = tuple(replace(one, gaps=gap) if isinstance(one, CreateTable) else one for one in changes)
    if row["kind"] == BASELINE_EVENT:
        baseline = "" if row["type"] == DEFINITION else row["topic"].removeprefix(BASELINE_TOPIC)
        gaps = {WITH_GAP: (_AFTER_BASELINE,), DEFINITION: (_WITHOUT_ROWS,)}.get(row["type"], ())
        changes = tuple(
            replace(change, baseline=baseline, gaps=gaps) for change in changes if isinstance(change, CreateTable)
        )
    return DdlEvent(
        topic=row["topic"],
        partition=row["partition"],
        offset=row["offset"],
        database=database,
        table=table,
        commit_ts=row["commit_ts"],
        exact_ts=row["exact_ts"],
        es=row["es"],
        ts=row["ts"],
        sql=row["sql"] or "",
        changes=changes,
        dialect=dialect,
        message_id=row["message_id"],
        at=row["at"],
    )


def in_upstream_order(events: Iterable[DdlEvent]) -> list[DdlEvent]:
    """The events by commit TSO, then by position: the DDL messages of one statement share a TSO (`in_rename_order`).

    Canal's events are ordered by `at`, because `es` is when a statement began: one that waited for a lock is logged after
    others that began later. Within a partition the offset orders them, also where Canal resends events with their former
    `ts` and new batch numbers. Between the topics of one batch `es` decides (`SAME_BATCH_MS`). A baseline comes before the
    first event with a greater `at`, as before rows.
    """
    by_position, baselines = list[DdlEvent](), list[DdlEvent]()
    for event in sorted(events, key=lambda event: event.position):
        (baselines if event.is_baseline else by_position).append(event)
    logged = [event for event in by_position if dialect_has_trait(event.dialect, Trait.IN_LOG_ORDER)]
    times = {event.position: (event.commit_ts, 0) for event in by_position}
    times |= {event.position: (event.at, 0) for event in logged}
    for number, same in groupby(sorted(logged, key=lambda event: event.at), key=lambda event: event.message_id):
        batch = list(same)
        is_one = (batch[-1].ts or 0) - (batch[0].ts or 0) < SAME_BATCH_MS
        if number is not None and is_one and len({event.topic for event in batch}) > 1:
            times |= {event.position: (batch[0].at, event.es) for event in batch}
    newest: dict[tuple[str, int], tuple[int, int]] = {}
    for event in logged:
        partition, time = event.position[:2], times[event.position]
        times[event.position] = newest[partition] = max(time, newest.get(partition, time))
    by_time = sorted(by_position, key=lambda event: times[event.position])
    groups = groupby(by_time, key=lambda event: times[event.position])
    found = [event for _, same in groups for event in in_rename_order([*same])]
    for event in sorted(baselines, key=lambda event: event.at):
        # `commit_ts` of DataWorks is no time
        found.insert(next((at for at, other in enumerate(found) if other.at > event.at), len(found)), event)
    return found


def in_rename_order(events: Sequence[DdlEvent], tables: Callable[[], Set[TableName]] = frozenset) -> list[DdlEvent]:
    """The events of one `commit_ts`, with the pairs of a RENAME TABLE in the order of the statement.

    TiCDC sends a message per pair, each to the topic of the old name, before v8.5.5 in any order (tiflow #12745). A name is
    given up before it is taken. A cycle, as in a swap, begins with the pair whose new name is in none of the `tables` before
    the events, or was sent first. Names that occur several times as old or as new names stay in their order.
    """
    pairs: dict[tuple[TableName, TableName], list[DdlEvent]] = {}  # with copies
    for event in sorted(events, key=lambda event: (event.ts or 0, event.position)):
        match event.changes:
            case (RenameTable(name=old, new_name=new),) if dialect_has_trait(event.dialect, Trait.FROM_TIDB):
                pairs.setdefault((folded(old), folded(new)), []).append(event)
    rest = list(pairs)
    if not len(rest) == len({old for old, _ in rest}) == len({new for _, new in rest}) > 1:
        return list(events)
    renames: list[DdlEvent] = []
    while rest:
        olds = {old for old, _ in rest}
        free = [pair for pair in rest if pair[1] not in olds]
        if not free:
            taken = set(map(folded, tables()))
            free = [pair for pair in rest if pair[1] not in taken] or rest
        renames += pairs[free[0]]
        rest.remove(free[0])
    ordered, positions = iter(renames), {event.position for event in renames}
    return [next(ordered) if event.position in positions else event for event in events]
