"""Histories with an export: when it is made, what the streams lack from before it, and when a pipeline adopts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cdc_pipeline_tests.histories.choices import Choices, Seeded
from cdc_pipeline_tests.histories.combined import Combined, combined
from cdc_pipeline_tests.histories.exported import Moment, is_exportable
from cdc_pipeline_tests.histories.history import History
from cdc_pipeline_tests.histories.late_starts import started_at
from cdc_pipeline_tests.histories.message import physical_ms
from cdc_pipeline_tests.histories.shapes import Content, Name, Table
from cdc_pipeline_tests.histories.upstream import END_TSO, TSO_SHIFT, Ddl
from cdc_pipeline_tests.support.messages import EPOCH_MS

CLOCKS_MS = 400
"""For how long around an export of MySQL changes may be in it. The minute of `mirrors.operations.adoption` has many
histories."""
_MS_AROUND = (0, 30, 700)
"""How long before and after its moment an export may begin and end."""
_LOGGED_LATER_MS = 4000
"""Canal's statements have the time at which they began, in whole seconds."""
_FROM_MYSQL = ("canal", "dataworks")


@dataclass(frozen=True, repr=False)
class Snapshot:
    """An export of the databases of all histories, and what a pipeline does with it."""

    tso: int
    """It has the rows of this moment."""
    moment: Moment
    tables: Mapping[Table, Content]
    starts: tuple[int | None, ...]
    """For each history: up to this TSO the stream has nothing. None: it has everything."""
    shows_start: bool
    """Whether each partition begins with a watermark at the start."""
    loaded: int
    """The number of the file after which the export is loaded."""
    adopted: int
    """The number of the file after which it is adopted."""
    unsure: frozenset[Name]
    """Tables of statements that the stream does not order against the rows of the export."""
    is_ahead: bool
    """Whether the mirrors show an export without an exact TSO before the stream has reached it. Then they have rows from
    messages that a rebuild has from the export."""

    @property
    def latest_start(self) -> int | None:
        return max((start for start in self.starts if start is not None), default=None)

    def __repr__(self) -> str:
        shown = "" if self.shows_start or self.latest_start is None else ", which no watermark shows"
        unsure = f", unsure: {sorted(self.unsure)}" if self.unsure else ""
        return (
            f"<Snapshot of {len(self.tables)} tables at {self.tso}, streams begin after {self.starts}{shown}, "
            f"loaded after file {self.loaded}, adopted after file {self.adopted}{unsure}>"
        )


def with_snapshot(histories: Sequence[History], seed: int, *, late: bool | None = None) -> tuple[Combined, Snapshot]:
    """The histories, all with TSOs or none, as their changefeeds send them, and an export of a random moment.

    `late`: whether the changefeeds start late, if the moment allows it. None: random.
    """
    choices, tidb = Seeded(seed), histories[0].mode not in _FROM_MYSQL
    tso = _moment(histories, choices, tidb=tidb)
    started, finished = (choices.pick(_MS_AROUND) for _ in range(2))
    moment = Moment(physical_ms(tso) - started, physical_ms(tso) + finished, tso if tidb else None)
    shows_start, is_late = choices.chance(0.5), choices.chance(0.6) if late is None else late
    exported: dict[Table, Content] = {}
    sent, starts = [], []
    for history in histories:
        tables = history.upstream.tables_at(tso)
        exported |= {table: content for table, content in tables.items() if is_exportable(table, tidb=tidb)}
        start = None
        # what is not in the export must be in the stream
        if is_late and all(table in exported for table in tables):
            latest = min(_first_time(history, moment), tso)
            start = choices.pick([*(time for time in _times(history) if time <= latest), latest])
            found = started_at(history, start, choices, shows_start=shows_start)
            start, history = (None, history) if found is None else (start, found)
        sent.append(history)
        starts.append(start)
    together = combined(sent)
    begun = next(number for number, records in enumerate(together.slices) if records)
    adopted = choices.integer(begun, len(together.slices) - 1)
    loaded = choices.integer(0, adopted)
    unsure = frozenset(name for history in sent for name in _unsure_tables(history, moment, adopted))
    is_ahead = any(_is_ahead(history, moment, adopted) for history in sent)
    return together, Snapshot(tso, moment, exported, tuple(starts), shows_start, loaded, adopted, unsure, is_ahead)


def _times(history: History) -> list[int]:
    return [event.commit_ts for event in history.upstream.events]


def _moment(histories: Sequence[History], choices: Choices, *, tidb: bool) -> int:
    """The TSO of a change or later statement, or the one before it. If possible most tables can be exported at it."""
    times = [time for history in histories for time in _times(history)]
    # the first tables are created before
    moments = sorted(time - back for time in times if physical_ms(time) >= EPOCH_MS for back in (0, 1))

    def share(moment: int) -> float:
        tables = [table for history in histories for table in history.upstream.tables_at(moment)]
        return sum(is_exportable(table, tidb=tidb) for table in tables) / len(tables)

    shares = {moment: share(moment) for moment in moments}
    most = max(shares.values())
    return choices.pick([moment for moment in moments if shares[moment] > most - 0.1])


def _first_time(history: History, moment: Moment) -> int:
    """The TSO from which the stream must have all changes."""
    if moment.tso is not None and history.mode != "default":
        return moment.tso
    first = (moment.started - CLOCKS_MS) // 1000 * 1000 if moment.tso is None else physical_ms(moment.tso)
    return (first - 1) << TSO_SHIFT


def _unsure_tables(history: History, moment: Moment, adopted: int) -> frozenset[Name]:
    """The tables of statements from while an export without an exact TSO ran, and those that later statements tie to them.

    The mirrors show the export at once, so what reaches them after the adoption may be from before it, too.
    """
    if moment.tso is None:
        low, high = _first_time(history, moment), moment.finished + CLOCKS_MS + _LOGGED_LATER_MS << TSO_SHIFT
    elif history.mode == "default":
        low, high = _first_time(history, moment), physical_ms(moment.tso) + 1 << TSO_SHIFT
    else:
        return frozenset()
    low = min(low, *_later_times(history, adopted), END_TSO)
    found: set[Name] = set()
    for event in history.upstream.events:
        if isinstance(event, Ddl):
            names = {table.full_name for table in event.statement.tables}
            if low <= event.commit_ts <= high or names & found:
                found |= names
    return frozenset(found)


def _later_times(history: History, adopted: int) -> list[int]:
    """The commit TSOs of the records that first arrive after the adoption."""
    seen = {(record.partition, record.offset) for part in history.slices[: adopted + 1] for record in part.records}
    later = [record for part in history.slices[adopted + 1 :] for record in part.records]
    return [record.commit_ts for record in later if (record.partition, record.offset) not in seen]


def _is_ahead(history: History, moment: Moment, adopted: int) -> bool:
    is_exact = moment.tso is not None and history.mode != "default"
    return not is_exact and min(_later_times(history, adopted), default=END_TSO) <= _first_time(history, moment)
