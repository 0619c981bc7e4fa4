"""A whole history: the database, what was sent of it, the files that hold it, and the truth after each file."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from cdc_pipeline_tests.histories.alterations import Rules
from cdc_pipeline_tests.histories.clock import Clock
from cdc_pipeline_tests.histories.ddl import CreateTable
from cdc_pipeline_tests.histories.definitions import Definitions
from cdc_pipeline_tests.histories.delivery import Record, Slice, delivered, resolved_tso, sliced
from cdc_pipeline_tests.histories.encoders import (
    MODES,
    dispatchers,
    encoded,
    encoder_of,
    has_watermarks,
    partition_of,
)
from cdc_pipeline_tests.histories.false_watermarks import with_false_watermarks
from cdc_pipeline_tests.histories.sender import Disturbances, sent_by
from cdc_pipeline_tests.histories.spelling import respelt
from cdc_pipeline_tests.histories.tables import KINDS, PLAIN_KINDS, keyed_kinds, table_of
from cdc_pipeline_tests.histories.upstream import END_TSO, START_TSO, TSO_SHIFT, Ddl, Upstream
from cdc_pipeline_tests.histories.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline_tests.histories.choices import Choices
    from cdc_pipeline_tests.histories.message import Message
    from cdc_pipeline_tests.histories.sender import Sent
    from cdc_pipeline_tests.histories.shapes import State, Table

_SECOND = 1000 << TSO_SHIFT


@dataclass(frozen=True)
class Settings:
    """How a history is encoded and delivered; `seed` where it comes from one.

    `in_step`: files are cuts of the order of sending, where rows of one key may travel in several partitions and there
    are no watermarks to wait for. `ddl`: the chance of DDL before a transaction; `partition_ddl`: also that of partitions;
    `plain_ddl`: only CREATE, TRUNCATE and DROP TABLE. `together`: DDL shares its moment with rows, where only time orders.
    `apart`: partitions need not advance alike all the same, so that only the end can be compared. `respelt`: some values are
    spelt in two ways.
    """

    mode: str
    partitions: int = 1
    dispatcher: str = "table"
    raw_changes: bool = False
    disturbances: Disturbances = field(default_factory=Disturbances)
    slices: int = 1
    seed: int | None = None
    ddl: float = 0
    partition_ddl: bool = True
    plain_ddl: bool = False
    together: bool = False
    apart: bool = False
    respelt: bool = False

    @property
    def in_step(self) -> bool:
        """Without watermarks DDL in partition 0 is not parted from the rows around it, but for what says that a table is
        empty, unless partitions go `apart`."""
        return (
            not has_watermarks(self.mode)
            and not self.apart
            and (
                self.dispatcher in ("ts", "key")
                or (self.dispatcher == "index_value" and self.raw_changes)
                or (self.ddl > 0 and not self.plain_ddl)
            )
        )

    @property
    def ddl_apart(self) -> int:
        """For how many ms a DDL stands alone, where only its `es` tells what lies before it."""
        return 0 if self.together else {"default": 1, "canal": 1000}.get(self.mode, 0)


@dataclass(frozen=True, repr=False)
class History:
    """A history on one topic."""

    name: str
    settings: Settings
    upstream: Upstream
    messages: tuple[Message, ...]
    """Each message, sent once and in order."""
    timeline: tuple[Sent, ...]
    slices: tuple[Slice, ...]

    def __repr__(self) -> str:
        ddl = [type(event.statement).__name__ for event in self.upstream.events if isinstance(event, Ddl)]
        return f"<History {self.name}: {self.settings}, {ddl}, {len(self.upstream.events)} events>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints it: by its settings."""
        printer.text(repr(self))

    @property
    def mode(self) -> str:
        return self.settings.mode

    @property
    def records(self) -> list[Record]:
        """All records, as the files hold them."""
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
        """Up to which TSO the mirrors are after this file; None for modes without watermarks."""
        return self._resolved[slice_index] if has_watermarks(self.mode) else None

    def truth_after(self, slice_index: int) -> State | None:
        """The tables after this file; None where no state can be said to be reached."""
        if has_watermarks(self.mode):
            resolved = self._resolved[slice_index] or 0
            return None if self.ddl_comes_after(slice_index, resolved) else self.upstream.state_at(resolved)
        settled = END_TSO if slice_index == len(self.slices) - 1 else self.slices[slice_index].settled
        return None if settled is None else self.upstream.state_at(settled)

    def ddl_comes_after(self, slice_index: int, resolved: int) -> bool:
        """Whether DDL at or below that TSO is only in later files: at the TSO of a watermark that came before it."""
        told, later = (
            {
                (record.commit_ts, json.loads(record.payload)["sql"])
                for part in parts
                for record in part.records
                if record.kind == "ddl"
            }
            for parts in (self.slices[: slice_index + 1], self.slices[slice_index + 1 :])
        )
        return any(tso <= resolved for tso, _ in later - told)

    def final_truth(self) -> State:
        """The tables after all files."""
        truth = self.truth_after(len(self.slices) - 1)
        assert truth is not None
        return truth


def history_of(
    choices: Choices, settings: Settings, *, prefix: str, transactions: int, kinds: Sequence[str] | None = None
) -> History:
    """The history of these choices, on the topic `prefix`, in the databases `<prefix>_a` and `<prefix>_b`."""
    mode = settings.mode
    upstream = Upstream()
    tables = _tables(choices, prefix, kinds or _kinds(choices, settings))
    for number, table in enumerate(tables):
        # in seconds of their own, below that of the first transaction
        upstream.execute(CreateTable(table), START_TSO + (5 + number) * _SECOND)
    _run(upstream, choices, settings, (f"{prefix}_a", f"{prefix}_b"), transactions)
    encoder = encoder_of(
        mode,
        partition_of(settings.dispatcher, settings.partitions),
        choices,
        raw_changes=settings.raw_changes,
        markers=mode == "dataworks" and choices.chance(0.5),
        late=settings.together and not settings.disturbances.restarts,
        # what was sent again is told by times, which early encoders do not have
        early=mode == "default" and not settings.disturbances.restarts and choices.chance(0.5),
    )
    messages = encoded(encoder, upstream.events)
    if settings.respelt:
        messages = [respelt(message, choices) for message in messages]
    timeline = with_false_watermarks(
        sent_by(encoder, mode, messages, settings.disturbances, choices, together=settings.together),
        encoder,
        settings.partitions,
        choices,
    )
    records = delivered(timeline, prefix, settings.partitions)
    settled = {}
    if settings.partitions == 1 or not has_watermarks(mode):
        # then each message is one record
        settled = {
            (record.partition, record.offset): record.commit_ts
            for record, sent in zip(records, timeline, strict=True)
            if sent.settled
        }
    slices = sliced(
        records,
        settled,
        settings.slices,
        choices,
        in_step=settings.in_step,
        alone=settings.partitions == 1,
        repeats=settings.disturbances.repeats,
    )
    return History(prefix, settings, upstream, tuple(messages), tuple(timeline), tuple(slices))


def _run(
    upstream: Upstream, choices: Choices, settings: Settings, databases: tuple[str, str], transactions: int
) -> None:
    """Random transactions, and DDL between them."""
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
    for _ in range(transactions):
        if settings.ddl and choices.chance(settings.ddl):
            definitions.change()
        workload.transaction()


def _kinds(choices: Choices, settings: Settings) -> list[str]:
    """3 to 6 distinct kinds of tables."""
    kinds = KINDS if settings.ddl and settings.partition_ddl else PLAIN_KINDS
    left = list(keyed_kinds(kinds) if settings.mode == "delete_keys_only" else kinds)
    return [left.pop(choices.integer(0, len(left) - 1)) for _ in range(choices.integer(3, 6))]


def _tables(choices: Choices, prefix: str, kinds: Sequence[str]) -> list[Table]:
    """Tables of two databases; now and then a name is in both."""
    found = [
        table_of(kind, f"{prefix}_{'ab'[number % 2]}", kind, clustered=not choices.chance(0.4))
        for number, kind in enumerate(kinds)
    ]
    if choices.chance(0.3):
        twin = found[0]
        found.append(table_of(kinds[-1], f"{prefix}_b", twin.name, clustered=twin.clustered))
    return found


def drawn_settings(
    choices: Choices,
    mode: str,
    *,
    seed: int | None = None,
    complete: bool = False,
    ddl: bool = True,
    partition_ddl: bool = True,
    untold: bool = True,
) -> Settings:
    """Settings that fit the mode. `complete`: a last watermark above everything always comes. `ddl`: there may be DDL.
    `untold`: also what a plain reader cannot tell (`fold`): DDL that shares its moment with rows, values spelt in two
    ways."""
    watermarks = has_watermarks(mode)
    settings = Settings(
        mode,
        partitions=choices.integer(1, 4),
        dispatcher=choices.pick(dispatchers(mode)),
        raw_changes=choices.chance(0.5),
        disturbances=Disturbances(
            watermarks=choices.pick((0.1, 0.05, 0.3)),
            interleave=watermarks and choices.chance(0.5),
            restarts=choices.integer(0, 2) if mode != "dataworks" else 0,
            retries=choices.integer(0, 3) if watermarks else 0,
            swaps=choices.integer(0, 3) if watermarks else 0,
            repeats=choices.integer(0, 3),
            complete=not choices.chance(0.15) or complete,
        ),
        slices=choices.integer(1, 3),
        seed=seed,
    )
    # drawn last, so that a seed without DDL means what it did before there was any
    share = choices.pick((0, 0.05, 0.15, 0.15, 0.3)) if ddl else 0
    if untold:
        settings = replace(settings, respelt=mode != "dataworks" and choices.chance(0.3))
    if not share:
        return settings
    together = untold and not watermarks and mode != "dataworks" and choices.chance(0.6)
    settings = replace(
        settings,
        ddl=share,
        partition_ddl=partition_ddl,
        plain_ddl=choices.chance(0.15),
        disturbances=replace(settings.disturbances, ddl=True),
        together=together,
        apart=together and settings.dispatcher in ("table", "key") and choices.chance(0.3),
    )
    again = choices.integer(0, 1) if together and mode == "canal" else 0
    return replace(settings, disturbances=replace(settings.disturbances, again=again))


__all__ = ["MODES", "History", "Settings", "drawn_settings", "history_of"]
