"""Whether a stream shows the difference between a resent row of a keyless table and one more equal row.

Equal rows of a keyless table are equal messages. A resent row is recognized in two ways: the order of its table's rows in
the partition (commitTs, `es` in TiCDC's default mode, `id` in Canal, `ts` without batch numbers) decreases, or the row is
at or below a watermark of its partition. A segment between two decreases holds each change as often as upstream made it, or
less often if a restart cut it off. So the true number of equal changes is the largest in any segment. DataWorks numbers its
changes.

Histories in which this count is wrong are not generated, because no reader could know the truth. Examples: a keyless row
resent right after itself (among the rows of its table), a row resent between the rows of its transaction, a restart of
Canal within a second that contains several rows of a keyless table.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline_tests.histories.replays import shows_replays
from cdc_pipeline_tests.histories.upstream import START_TSO

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cdc_pipeline_tests.histories.message import Message
    from cdc_pipeline_tests.histories.sender import Sent
    from cdc_pipeline_tests.histories.shapes import Name

Counts: TypeAlias = "Counter[tuple[object, ...]]"


def is_distinguishable(mode: str, timeline: Sequence[Sent], messages: Sequence[Message]) -> bool:
    """Whether the largest segment of `timeline` holds each keyless change as often as `messages`, each sent once."""
    if mode == "dataworks":
        return True
    if not shows_replays(timeline):
        return False
    expected: Counts = Counter()
    for message in messages:
        expected.update(_changes(message))
    names = {message.table.full_name for message in messages if message.table is not None and message.table.keyless}
    return not expected or _largest_counts(mode, timeline, names) == expected


def _changes(message: Message) -> list[tuple[object, ...]]:
    table = message.table
    if message.kind != "row" or table is None or not table.keyless:
        return []
    return [
        (message.partition, table.full_name, message.order, change.op, *_images(change.before, change.after))
        for change in message.rows
    ]


def _images(*rows: dict[str, str | None] | None) -> list[object]:
    return [None if row is None else tuple(row.values()) for row in rows]


def _largest_counts(mode: str, timeline: Iterable[Sent], names: Collection[Name]) -> Counts:
    largest: Counts = Counter()
    segments: dict[object, Counts] = {}
    steps: dict[object, int] = {}
    watermark = START_TSO
    for sent in timeline:
        message = sent.message
        if message.kind == "watermark":
            watermark = max(watermark, message.commit_ts)
        # rows of a keyed table count too if a keyless table has had the same name
        if message.kind != "row" or message.table is None or message.table.full_name not in names:
            continue
        if mode not in ("canal", "default") and message.commit_ts <= watermark:
            continue
        stream = (message.partition, message.table.full_name)
        step = message.order if mode != "canal" else sent.batch if message.body["id"] else sent.ts
        if step < steps.get(stream, step):
            largest |= segments.pop(stream, Counter())
        steps[stream] = step
        segments.setdefault(stream, Counter()).update(_changes(message))
    for segment in segments.values():
        largest |= segment
    return largest
