"""Whether the bytes of a stream tell a re-sent row of a keyless table from one more equal row.

Equal rows of a keyless table are equal messages. A re-sent one shows in that its table's rows step back: commitTs (`es`
in TiCDC's default mode, `id` in Canal) is smaller than that of the row of the table before it in the partition, or the
row lies at or below a watermark that its partition has had. A stretch between two such steps holds each change as often
as upstream made it, or (cut short by a restart) less often; so the true number of equal changes is the largest of any
stretch. DataWorks numbers its changes.

A history in which this does not give the truth is not generated, since nothing tells a reader what happened: an
immediately adjacent re-send of a keyless row (adjacent among the rows of its table), a re-send in between the rows of
one transaction, a restart of Canal inside a second that rows of a keyless table share.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline_tests.histories.upstream import START_TSO

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from cdc_pipeline_tests.histories.message import Message
    from cdc_pipeline_tests.histories.sender import Sent
    from cdc_pipeline_tests.histories.shapes import Name

Counts: TypeAlias = "Counter[tuple[object, ...]]"


def is_tellable(mode: str, timeline: Sequence[Sent], messages: Sequence[Message]) -> bool:
    """Whether the largest stretch of `timeline` holds each keyless change as often as `messages`, sent once, do."""
    if mode == "dataworks":
        return True
    wanted: Counts = Counter()
    for message in messages:
        wanted.update(_changes(message))
    names = {message.table.full_name for message in messages if message.table is not None and message.table.keyless}
    return not wanted or _largest(mode, timeline, names) == wanted


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


def _largest(mode: str, timeline: Iterable[Sent], names: Collection[Name]) -> Counts:
    largest: Counts = Counter()
    stretches: dict[object, Counts] = {}
    steps: dict[object, int] = {}
    watermark = START_TSO
    for sent in timeline:
        message = sent.message
        if message.kind == "watermark":
            watermark = max(watermark, message.commit_ts)
        # rows of a keyed table count too where a keyless one has had the same name
        if message.kind != "row" or message.table is None or message.table.full_name not in names:
            continue
        if mode not in ("canal", "default") and message.commit_ts <= watermark:
            continue
        place = (message.partition, message.table.full_name)
        step = sent.batch if mode == "canal" else message.order
        if step < steps.get(place, step):
            largest |= stretches.pop(place, Counter())
        steps[place] = step
        stretches.setdefault(place, Counter()).update(_changes(message))
    for stretch in stretches.values():
        largest |= stretch
    return largest
