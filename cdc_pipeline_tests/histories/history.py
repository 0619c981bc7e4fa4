"""A whole history: the database, the messages, the files that hold them, and the expected tables after each file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

from cdc_pipeline_tests.histories.alterations import Rules
from cdc_pipeline_tests.histories.choices import Choices, Seeded
from cdc_pipeline_tests.histories.clock import Clock
from cdc_pipeline_tests.histories.ddl import CreateTable
from cdc_pipeline_tests.histories.definitions import Definitions
from cdc_pipeline_tests.histories.delivery import Record, Slice, delivered, resolved_tso, sliced
from cdc_pipeline_tests.histories.encoders import (
    MODES,
    encoded,
    encoder_of,
    has_watermarks,
    partition_of,
)
from cdc_pipeline_tests.histories.false_watermarks import with_false_watermarks
from cdc_pipeline_tests.histories.message import Message
from cdc_pipeline_tests.histories.omissions import with_omissions
from cdc_pipeline_tests.histories.replays import play_again, with_replays
from cdc_pipeline_tests.histories.sender import Sent, sent_by
from cdc_pipeline_tests.histories.settings import Settings, drawn_settings
from cdc_pipeline_tests.histories.shapes import State, Table
from cdc_pipeline_tests.histories.spelling import respelt
from cdc_pipeline_tests.histories.tables import KINDS, PLAIN_KINDS, keyed_kinds, table_of
from cdc_pipeline_tests.histories.topics import files_of_topics
from cdc_pipeline_tests.histories.upstream import END_TSO, START_TSO, TSO_SHIFT, Ddl, Upstream
from cdc_pipeline_tests.histories.workload import Workload

_SECOND = 1000 << TSO_SHIFT


@dataclass(frozen=True, repr=False)
class History:
    """A history on one topic."""

    name: str
    settings: Settings
    upstream: Upstream
    messages: tuple[Message, ...]
    """Each message once and in order."""
    timeline: tuple[Sent, ...]
    slices: tuple[Slice, ...]

    def __repr__(self) -> str:
        ddl = [type(event.statement).__name__ for event in self.upstream.events if isinstance(event, Ddl)]
        return f"<History {self.name}: {self.settings}, {ddl}, {len(self.upstream.events)} events>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Prints the settings only. Called by Hypothesis."""
        printer.text(repr(self))

    @property
    def mode(self) -> str:
        return self.settings.mode

    @property
    def records(self) -> list[Record]:
        """All records of the files."""
        return [record for part in self.slices for record in part.records]

    @cached_property
    def _resolved(self) -> list[int | None]:
        found: list[int | None] = []
        for number in range(len(self.slices)):
            records = chain.from_iterable(part.records for part in self.slices[: number + 1])
            found.append(resolved_tso(records, found[-1] if found else None))
        return found

    def files(self) -> list[list[str]]:
        """The lines of each file."""
        return [[record.line() for record in part.records] for part in self.slices]

    def resolved_after(self, slice_index: int) -> int | None:
        """The TSO of the mirrors after this file. None for modes without watermarks."""
        return self._resolved[slice_index] if has_watermarks(self.mode) else None

    def truth_after(self, slice_index: int) -> State | None:
        """The tables after this file. None if no state is known to be reached."""
        if has_watermarks(self.mode):
            return self.upstream.state_at((self._resolved[slice_index] or 1) - 1)
        tso = END_TSO if slice_index == len(self.slices) - 1 else self.slices[slice_index].complete_tso
        return None if tso is None else self.upstream.state_at(tso)

    def final_truth(self) -> State:
        """The tables after all files."""
        truth = self.truth_after(len(self.slices) - 1)
        assert truth is not None
        return truth


def history_of(
    choices: Choices, settings: Settings, *, prefix: str, transactions: int, kinds: Sequence[str] | None = None
) -> History:
    """The history of these choices, on topic `prefix`, in databases `<prefix>_a` and `<prefix>_b`."""
    upstream = Upstream()
    tables = _tables(choices, prefix, kinds or _kinds(choices, settings))
    for number, table in enumerate(tables):
        # in seconds of their own, before the first transaction; no whole seconds, which would not be TiCDC's
        upstream.execute(CreateTable(table), START_TSO + (5 + number) * _SECOND + _SECOND // 8)
    _run(upstream, choices, settings, (f"{prefix}_a", f"{prefix}_b"), transactions)
    return history_of_upstream(upstream, choices, settings, prefix)


def history_of_upstream(upstream: Upstream, choices: Choices, settings: Settings, prefix: str) -> History:
    """The history of the events of `upstream`, on topic `prefix`."""
    mode = settings.mode
    encoder = encoder_of(
        mode,
        partition_of(settings.dispatcher, settings.partitions),
        choices,
        raw_changes=settings.raw_changes,
        markers=mode == "dataworks" and choices.chance(0.5),
        late=settings.together and not settings.disturbances.restarts,
        # redelivered records are recognized by times, which early encoders do not send
        early=mode == "default" and not settings.disturbances.restarts and choices.chance(0.5),
        recased=settings.recased,
        numbered=settings.numbered,
    )
    disturbances = settings.disturbances
    if not settings.numbered:
        # no message shows what such a service resends within one second with a new clock
        disturbances = replace(disturbances, kept_clocks=True, again=0)
    messages = encoded(encoder, upstream.logged_events())
    if settings.respelt:
        messages = [respelt(message, choices) for message in messages]
    if mode == "canal":
        messages = with_replays(with_omissions(messages, choices), upstream)
    timeline = with_false_watermarks(
        sent_by(encoder, mode, messages, disturbances, choices, together=settings.together),
        encoder,
        settings.partitions,
        choices,
    )
    return history_as_sent(prefix, settings, upstream, messages, timeline, choices)


def history_as_sent(
    name: str,
    settings: Settings,
    upstream: Upstream,
    messages: Sequence[Message],
    timeline: Sequence[Sent],
    choices: Choices,
) -> History:
    """The history whose messages are sent in the order of `timeline`. The choices divide it into files."""
    mode = settings.mode
    if settings.by_table:
        files = files_of_topics(timeline, upstream, name, settings, choices)
        return History(name, settings, upstream, tuple(messages), tuple(timeline), files)
    records = delivered(timeline, name, settings.partitions)
    complete = {}
    if settings.partitions == 1 or not has_watermarks(mode):
        # each message is one record
        complete = {
            (record.partition, record.offset): record.commit_ts
            for record, sent in zip(records, timeline, strict=True)
            if sent.complete_here
        }
    slices = sliced(
        records,
        complete,
        settings.slices,
        choices,
        in_step=settings.in_step,
        alone=settings.partitions == 1,
        repeats=settings.disturbances.repeats,
    )
    return History(name, settings, upstream, tuple(messages), tuple(timeline), tuple(slices))


def _run(
    upstream: Upstream, choices: Choices, settings: Settings, databases: tuple[str, str], transactions: int
) -> None:
    """Runs random transactions with DDL between them."""
    mode = settings.mode
    signed = mode == "dataworks"
    own_ms = mode == "default" and settings.dispatcher != "table"
    clock = Clock(choices, own_ms=own_ms, apart=settings.ddl_apart)
    rules = Rules(
        mysql=mode in ("canal", "dataworks"),
        keyless=mode != "delete_keys_only",
        signed=signed,
        partitions=settings.partition_ddl,
        plain=settings.plain_ddl,
    )
    workload = Workload(upstream, choices, clock, signed=signed)
    definitions = Definitions(upstream, choices, clock, databases, rules)
    # with decisions of their own, so that other seeds keep their histories
    replays = Seeded((settings.seed or 0) + 2 * 10**9)
    again = replays.integer(2, transactions) if settings.replayed and settings.numbered else 0
    for number in range(transactions):
        if settings.ddl and choices.chance(settings.ddl):
            definitions.change()
        workload.transaction()
        if number + 1 == again:
            play_again(upstream, clock, replays, resent=settings.disturbances.restarts > 0)


def _kinds(choices: Choices, settings: Settings) -> list[str]:
    """3 to 6 distinct kinds of tables."""
    kinds = KINDS if settings.ddl and settings.partition_ddl else PLAIN_KINDS
    left = list(keyed_kinds(kinds) if settings.mode == "delete_keys_only" else kinds)
    return [left.pop(choices.integer(0, len(left) - 1)) for _ in range(choices.integer(3, 6))]


def _tables(choices: Choices, prefix: str, kinds: Sequence[str]) -> list[Table]:
    """Tables of two databases. Now and then a name is in both."""
    found = [
        table_of(kind, f"{prefix}_{'ab'[number % 2]}", kind, clustered=not choices.chance(0.4))
        for number, kind in enumerate(kinds)
    ]
    if choices.chance(0.3):
        twin = found[0]
        found.append(table_of(kinds[-1], f"{prefix}_b", twin.name, clustered=twin.clustered))
    return found


__all__ = ["MODES", "History", "Settings", "drawn_settings", "history_as_sent", "history_of"]
