"""A changefeed that sends messages: their order, their watermarks, and what it sends again.

A watermark goes to all partitions at once, after all changes at or below it. Only DDL at its very TSO may follow it, and
changes above it may precede it. Watermarks may repeat, and regress after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from cdc_pipeline_tests.histories.message import physical_ms
from cdc_pipeline_tests.histories.resends import is_distinguishable
from cdc_pipeline_tests.histories.ticdc import TiCdc
from cdc_pipeline_tests.histories.upstream import END_TSO, START_TSO

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.choices import Choices
    from cdc_pipeline_tests.histories.encoders import Encoder
    from cdc_pipeline_tests.histories.message import Message


@dataclass(frozen=True)
class Disturbances:
    """Disturbances of delivery. Interleaving, retries and swaps apply to modes with watermarks only."""

    watermarks: float = 0.1
    """The chance of a watermark after a message."""
    interleave: bool = False
    """Tables may overtake each other."""
    restarts: int = 0
    """How often the changefeed (or Canal) restarts from an earlier point and sends everything from there again."""
    retries: int = 0
    """Single messages, DDL with `ddl`, that are sent again later in their partition."""
    swaps: int = 0
    """Pairs of messages of one keyed table that swap their places between two watermarks."""
    repeats: int = 0
    """Records that two files hold."""
    complete: bool = True
    """The last watermark is above all changes."""
    ddl: bool = False
    """Retries include DDL."""
    again: int = 0
    """Batches that Canal sends again with new numbers."""
    kept_clocks: bool = False
    """Canal resends messages with the clock time of their first sending."""


@dataclass(frozen=True)
class Sent:
    """A sent message. Watermarks go to all partitions.

    `complete_here`: all messages up to this one have been sent, none of them is pending again after a restart, and its
    transaction is complete. `restarted`: the first message after a restart.
    """

    message: Message
    ts: int = 0
    batch: int = 0
    complete_here: bool = False
    restarted: bool = False


def sent_by(
    encoder: Encoder,
    mode: str,
    messages: list[Message],
    disturbances: Disturbances,
    choices: Choices,
    *,
    together: bool = False,
) -> list[Sent]:
    """The messages in sending order, without restarts and retries that the bytes do not show.

    `together`: Canal builds many messages in one ms.
    """
    for restarts in (disturbances.restarts, *range(disturbances.restarts, -1, -1)):
        sender = _Sender(encoder, messages, replace(disturbances, restarts=restarts), choices)
        timeline = _stamped(sender.run(), choices)
        if together and mode == "canal":
            timeline = _built_together(timeline, choices)
        if disturbances.kept_clocks:
            timeline = _with_kept_clocks(timeline)
        if is_distinguishable(mode, timeline, messages):
            break
    for _ in range(disturbances.again):
        timeline = _with_batch_again(timeline, choices)
    if isinstance(encoder, TiCdc) and encoder.extension:
        for _ in range(disturbances.retries):
            retried = _with_retry(timeline, choices, ddl=disturbances.ddl)
            if is_distinguishable(mode, retried, messages):
                timeline = retried
        timeline = _growing(timeline)
        for _ in range(disturbances.swaps):
            timeline = _with_swap(timeline, choices)
    return timeline


class _Sender:
    """Sends from one queue per table if tables interleave, else from a single queue."""

    def __init__(self, encoder: Encoder, messages: list[Message], disturbances: Disturbances, choices: Choices) -> None:
        self._watermark_of = encoder.watermark if isinstance(encoder, TiCdc) and encoder.extension else None
        self._by_time = isinstance(encoder, TiCdc)
        self._messages = messages
        self._choices = choices
        self._plan = disturbances
        self._queues: dict[object, list[int]] = {}
        for index, message in enumerate(messages):
            separate = self._watermark_of is not None and message.kind == "row"
            self._queues.setdefault(message.table if separate else None, []).append(index)
        self._next = dict.fromkeys(self._queues, 0)
        self._watermark = START_TSO
        self._furthest = 0
        self._restarted = False
        self._timeline: list[Sent] = []

    def run(self) -> list[Sent]:
        choices, count = self._choices, len(self._messages)
        stops = sorted((choices.integer(1, count) for _ in range(self._plan.restarts)), reverse=True)
        soon = 0
        self._send_watermark(START_TSO)
        while heads := self._heads():
            self._send(self._picked(self._ready(heads)))
            if self._watermark_of is not None and choices.chance(self._plan.watermarks):
                self._advance()
            if soon:
                soon -= 1
                if not soon:
                    self._restart()
            elif stops and self._furthest >= stops[-1]:
                stops.pop()
                self._restart()
                if stops and choices.chance(0.4):  # restarts again while it resends
                    stops.pop()
                    soon = choices.integer(1, 5)
        if self._plan.complete:
            self._send_watermark(END_TSO)
        return self._timeline

    def _heads(self) -> dict[int, object]:
        """Next message of each queue → the queue."""
        return {queue[self._next[name]]: name for name, queue in self._queues.items() if self._next[name] < len(queue)}

    def _ready(self, heads: dict[int, object]) -> dict[int, object]:
        """The heads that may be sent. DDL follows the earlier rows of its tables, and precedes the later ones."""
        found = {}
        ddl = [
            index for index in self._queues.get(None, ())[self._next.get(None, 0) :] if self._messages[index].touched
        ]
        for index, queue in heads.items():
            message = self._messages[index]
            if message.kind == "row" and message.table is not None:
                name = message.table.full_name
                blocked = any(place < index and name in self._messages[place].touched for place in ddl)
            else:
                blocked = any(place < index and self._touches(message, place) for place in heads)
            if not blocked:
                found[index] = queue
        return found

    def _touches(self, ddl: Message, place: int) -> bool:
        table = self._messages[place].table
        return table is not None and table.full_name in ddl.touched

    def _picked(self, heads: dict[int, object]) -> object:
        first = min(heads)
        ahead = self._plan.interleave and self._messages[first].kind == "row" and self._choices.chance(0.4)
        return heads[self._choices.pick(sorted(heads))] if ahead else heads[first]

    def _send(self, name: object) -> None:
        index = self._queues[name][self._next[name]]
        self._next[name] += 1
        self._furthest = max(self._furthest, index + 1)
        message = self._messages[index]
        following = self._messages[index + 1 : index + 2]
        ends = not following or following[0].commit_ts != message.commit_ts
        self._append(message, complete_here=ends and index + 1 == self._furthest)

    def _append(self, message: Message, *, complete_here: bool = False) -> None:
        self._timeline.append(Sent(message, complete_here=complete_here, restarted=self._restarted))
        self._restarted = False

    def _send_watermark(self, tso: int) -> None:
        if self._watermark_of is not None:
            self._watermark = tso
            self._append(self._watermark_of(tso))

    def _low(self) -> int:
        """The smallest TSO that has unsent messages."""
        return min((self._messages[index].commit_ts for index in self._heads()), default=self._last_tso() + 1)

    def _only_ddl_at(self, tso: int) -> bool:
        """Whether all rows up to the TSO have been sent, and only its DDL has not. Its watermark may precede that DDL."""
        left = [self._messages[index] for name, queue in self._queues.items() for index in queue[self._next[name] :]]
        kinds = {message.kind for message in left if message.commit_ts == tso}
        return kinds == {"ddl"} and not any(message.commit_ts < tso for message in left)

    def _last_tso(self) -> int:
        return self._messages[-1].commit_ts

    def _advance(self) -> None:
        """Sends the highest possible watermark, a lower one, or the previous one again."""
        highest = self._low() - (not self._only_ddl_at(self._low()))
        passed = [m.commit_ts for m in self._messages if self._watermark <= m.commit_ts <= highest]
        candidates = [highest, highest, *passed[-2:], self._watermark]
        self._send_watermark(max(self._watermark, self._choices.pick(candidates)))

    def _restart(self) -> None:
        """Restarts at a checkpoint: a sent watermark, or the time just before a change."""
        low = self._low()
        if self._by_time:
            marks = [sent.message.commit_ts for sent in self._timeline if sent.message.kind == "watermark"]
            before = [message.commit_ts - 1 for message in self._messages if message.commit_ts <= low]
            tso = self._choices.pick(sorted({START_TSO, *marks, *before}))
            start = next(
                (index for index, message in enumerate(self._messages) if message.commit_ts > tso), len(self._messages)
            )
            self._restarted = True
            if self._choices.chance(0.5):
                self._send_watermark(tso)
            self._watermark = tso
        else:
            self._restarted = True
            start = self._choices.integer(0, self._furthest - 1)
            if any(message.table is not None and message.table.keyless for message in self._messages):
                while start and self._messages[start - 1].order == self._messages[start].order:
                    start -= 1
        for name, queue in self._queues.items():
            self._next[name] = min(self._next[name], sum(index < start for index in queue))


def _stamped(timeline: list[Sent], choices: Choices) -> list[Sent]:
    """The timeline with increasing clock times, and with Canal's batch numbers, which restart at 1 with Canal."""
    found: list[Sent] = []
    ts, batch, group = physical_ms(START_TSO), 1, 0
    for sent in timeline:
        if sent.restarted:
            batch, group, ts = 1, 0, ts + 1500
        message = sent.message
        if not group or message.group != group:
            ts = max(ts + 1, physical_ms(message.commit_ts if message.commit_ts < END_TSO else 0) + 5)
            batch += _waited(found, sent, timeline) or bool(group and message.group and choices.chance(0.6))
        group = message.group
        found.append(replace(sent, ts=ts, batch=batch))
    return found


def _built_together(timeline: list[Sent], choices: Choices) -> list[Sent]:
    """The timeline as Canal builds it: batches of what has been logged so far, with some messages in the same ms."""
    found: list[Sent] = []
    batch, built = 0, 0
    for place, sent in enumerate(timeline):
        begins = not found or sent.message.group != found[-1].message.group
        if sent.restarted:
            batch = 0
        if not batch or _waited(found, sent, timeline) or (begins and choices.chance(0.25)):
            batch += 1
            end = choices.integer(place, min(place + 8, len(timeline) - 1))
            same_run = takewhile(lambda later: not later.restarted, timeline[place + 1 : end + 1])
            built = max(built + 1, sent.ts, *(later.ts for later in same_run))
        elif begins:
            built = max(built + choices.chance(0.4), sent.ts)
        found.append(replace(sent, ts=built, batch=batch))
    return found


def _waited(before: list[Sent], sent: Sent, timeline: list[Sent]) -> bool:
    """Whether a batch ended before the message because nothing came for a second. If no binlog is played again, batches may
    last longer, which looks like a restart."""
    if not before or not any(one.message.first for one in timeline):
        return False
    return physical_ms(sent.message.commit_ts) - physical_ms(before[-1].message.commit_ts) >= 1000


def _with_kept_clocks(timeline: list[Sent]) -> list[Sent]:
    """The timeline with each message at the clock time of its first sending."""
    first: dict[int, int] = {}
    return [replace(sent, ts=first.setdefault(id(sent.message), sent.ts)) for sent in timeline]


def _with_batch_again(timeline: list[Sent], choices: Choices) -> list[Sent]:
    """Canal fails to send a batch, and sends it with the next number 0.1 s later (canal-facts 50)."""
    at = choices.integer(0, len(timeline) - 1)
    first, end = at, at + 1
    while first and not timeline[first].restarted and timeline[first - 1].batch == timeline[at].batch:
        first -= 1
    while end < len(timeline) and not timeline[end].restarted and timeline[end].batch == timeline[at].batch:
        end += 1
    batch = timeline[first:end]
    wait = batch[-1].ts - batch[0].ts + choices.integer(100, 140)
    again = [replace(sent, ts=sent.ts + wait, batch=sent.batch + 1, restarted=False) for sent in batch]
    later, same_run = [], True
    for sent in timeline[end:]:
        same_run = same_run and not sent.restarted
        later.append(replace(sent, ts=sent.ts + wait, batch=sent.batch + same_run))
    return [*timeline[:first], *(replace(sent, complete_here=False) for sent in batch), *again, *later]


def _growing(timeline: list[Sent]) -> list[Sent]:
    """The timeline with increasing clock times around inserted messages."""
    found: list[Sent] = []
    for sent in timeline:
        found.append(replace(sent, ts=max(sent.ts, found[-1].ts + 1)) if found else sent)
    return found


def _with_retry(timeline: list[Sent], choices: Choices, *, ddl: bool) -> list[Sent]:
    """Sends a row again after a later change of its table's name in the same partition, or DDL after any later message."""
    at = choices.integer(0, len(timeline) - 1)
    message = timeline[at].message
    if message.kind != "row" and not (ddl and message.kind == "ddl"):
        return timeline
    later = [
        place
        for place in range(at + 1, len(timeline))
        if _follows(timeline[place].message, message) and timeline[place].message.commit_ts > message.commit_ts
    ]
    if not later:
        return timeline
    place = choices.integer(later[0], len(timeline) - 1)
    again = replace(timeline[at], ts=timeline[place].ts + 1, complete_here=False)
    return [*timeline[: place + 1], again, *timeline[place + 1 :]]


def _with_swap(timeline: list[Sent], choices: Choices) -> list[Sent]:
    at = choices.integer(0, len(timeline) - 1)
    message = timeline[at].message
    if message.kind != "row" or message.table is None or message.table.keyless:
        return timeline
    partners = []
    for place in range(at + 1, len(timeline)):
        other = timeline[place].message
        if other.kind == "watermark":
            break
        if _same_stream(other, message):
            partners.append(place)
    if partners:
        place = choices.pick(partners)
        timeline = list(timeline)
        timeline[at], timeline[place] = timeline[place], timeline[at]
    return timeline


def _follows(later: Message, message: Message) -> bool:
    """Whether `message` may be sent again after `later`."""
    if message.kind == "ddl":
        return later.kind != "watermark"
    names = [None if item.table is None else item.table.full_name for item in (later, message)]
    return later.kind == "row" and names[0] == names[1] and later.partition == message.partition


def _same_stream(one: Message, other: Message) -> bool:
    return one.kind == "row" and one.table is other.table and one.partition == other.partition
