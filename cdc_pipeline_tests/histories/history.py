"""A whole history: the database, what was sent of it, the files that hold it, and the truth after each file."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from cdc_pipeline_tests.histories.delivery import Record, Slice, delivered, resolved_tso, sliced
from cdc_pipeline_tests.histories.encoders import (
    MODES,
    dispatchers,
    encoded,
    encoder_of,
    has_watermarks,
    partition_of,
)
from cdc_pipeline_tests.histories.sender import Disturbances, sent_by
from cdc_pipeline_tests.histories.tables import KEYED_KINDS, KINDS, table_of
from cdc_pipeline_tests.histories.upstream import END_TSO, START_TSO, TSO_SHIFT, Upstream
from cdc_pipeline_tests.histories.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline_tests.histories.choices import Choices
    from cdc_pipeline_tests.histories.message import Message
    from cdc_pipeline_tests.histories.sender import Sent
    from cdc_pipeline_tests.histories.upstream import State, Table

_SECOND = 1000 << TSO_SHIFT


@dataclass(frozen=True)
class Settings:
    """How a history is encoded and delivered; `seed` where it comes from one.

    `in_step`: files are cuts of the order of sending, where rows of one key may travel in several partitions and there
    are no watermarks to wait for.
    """

    mode: str
    partitions: int = 1
    dispatcher: str = "table"
    raw_changes: bool = False
    disturbances: Disturbances = field(default_factory=Disturbances)
    slices: int = 1
    seed: int | None = None

    @property
    def in_step(self) -> bool:
        return not has_watermarks(self.mode) and (
            self.dispatcher in ("ts", "key") or (self.dispatcher == "index_value" and self.raw_changes)
        )


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
        kinds = [table.kind for table in self.tables]
        return f"<History {self.name}: {self.settings}, {kinds}, {len(self.upstream.events)} events>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How Hypothesis prints it: by its settings."""
        printer.text(repr(self))

    @property
    def mode(self) -> str:
        return self.settings.mode

    @property
    def tables(self) -> list[Table]:
        return self.upstream.tables

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
        """The rows of each table after this file; None where no state can be said to be reached."""
        if has_watermarks(self.mode):
            return self.upstream.state_at(self._resolved[slice_index] or 0)
        settled = END_TSO if slice_index == len(self.slices) - 1 else self.slices[slice_index].settled
        return None if settled is None else self.upstream.state_at(settled)

    def final_truth(self) -> State:
        """The rows of each table after all files."""
        truth = self.truth_after(len(self.slices) - 1)
        assert truth is not None
        return truth


@dataclass(frozen=True, repr=False)
class Combined:
    """Histories, each with its own topic and databases, that go through one run of the pipeline.

    All must have watermarks or none: mirrors stop at the smallest resolved TSO of all topics.
    """

    histories: tuple[History, ...]

    def __post_init__(self) -> None:
        assert len({has_watermarks(history.mode) for history in self.histories}) == 1
        assert len({history.name for history in self.histories}) == len(self.histories)

    def __repr__(self) -> str:
        return f"<Combined {list(self.histories)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    @property
    def tables(self) -> list[Table]:
        return [table for history in self.histories for table in history.tables]

    @cached_property
    def slices(self) -> tuple[tuple[Record, ...], ...]:
        count = max(len(history.slices) for history in self.histories)
        return tuple(
            tuple(record for history in self.histories for part in history.slices[n : n + 1] for record in part.records)
            for n in range(count)
        )

    def files(self) -> list[list[str]]:
        return [[record.line() for record in part] for part in self.slices]

    def resolved_after(self, slice_index: int) -> int | None:
        found: int | None = None
        for number in range(slice_index + 1):
            found = resolved_tso(chain.from_iterable(self.slices[: number + 1]), found)
        return found if has_watermarks(self.histories[0].mode) else None

    def truth_after(self, slice_index: int) -> State | None:
        """The rows of each table of which something can be said; None where that is none."""
        found: State = {}
        resolved = self.resolved_after(slice_index)
        for history in self.histories:
            if has_watermarks(history.mode):
                found |= history.upstream.state_at(resolved or 0)
            else:
                found |= history.truth_after(min(slice_index, len(history.slices) - 1)) or {}
        return found if found or resolved is not None else None

    def final_truth(self) -> State:
        return self.truth_after(len(self.slices) - 1) or {}


def combined(histories: Sequence[History]) -> Combined:
    return Combined(tuple(histories))


def history_of(
    choices: Choices, settings: Settings, *, prefix: str, transactions: int, kinds: Sequence[str] | None = None
) -> History:
    """The history of these choices, on the topic `prefix`, in the databases `<prefix>_a` and `<prefix>_b`."""
    mode = settings.mode
    upstream = Upstream()
    tables = _tables(choices, prefix, kinds or _kinds(choices, mode))
    for number, table in enumerate(tables):
        # in seconds of their own, below that of the first transaction
        upstream.create(table, START_TSO + (5 + number) * _SECOND)
    own_ms = mode == "default" and settings.dispatcher != "table"
    Workload(upstream, choices, signed=mode == "dataworks", own_ms=own_ms).run(transactions)
    encoder = encoder_of(
        mode,
        partition_of(settings.dispatcher, settings.partitions),
        choices,
        raw_changes=settings.raw_changes,
        markers=mode == "dataworks" and choices.chance(0.5),
    )
    messages = encoded(encoder, upstream.events)
    timeline = sent_by(encoder, mode, messages, settings.disturbances, choices)
    records = delivered(timeline, prefix, settings.partitions)
    settled = {}
    if settings.partitions == 1:
        settled = {(0, offset): sent.message.commit_ts for offset, sent in enumerate(timeline) if sent.settled}
    slices = sliced(
        records,
        settled,
        settings.slices,
        choices,
        in_step=settings.in_step,
        repeats=settings.disturbances.repeats,
    )
    return History(prefix, settings, upstream, tuple(messages), tuple(timeline), tuple(slices))


def _kinds(choices: Choices, mode: str) -> list[str]:
    """3 to 6 distinct kinds of tables."""
    left = list(KEYED_KINDS if mode == "delete_keys_only" else KINDS)
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


def drawn_settings(choices: Choices, mode: str, *, seed: int | None = None, complete: bool = False) -> Settings:
    """Settings that fit the mode. `complete`: a last watermark above everything always comes."""
    watermarks = has_watermarks(mode)
    return Settings(
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


__all__ = ["MODES", "Combined", "History", "Settings", "combined", "drawn_settings", "history_of"]
