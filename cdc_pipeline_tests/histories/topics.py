"""A topic per table, as TiCDC's rule `topic = "{schema}_{table}"` makes them: topics begin and end with their tables.

A statement is in the topic of its table, a RENAME in that of the old name, and a statement about a database in the default
topic. Watermarks go to the default topic and to those of the tables that exist (capture `world-ticdc-topic-ends`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.ddl import RenameTables
from cdc_pipeline_tests.histories.delivery import Record, Slice
from cdc_pipeline_tests.histories.message import Message
from cdc_pipeline_tests.histories.sender import Sent
from cdc_pipeline_tests.histories.settings import Settings
from cdc_pipeline_tests.histories.shapes import Name
from cdc_pipeline_tests.histories.upstream import Ddl, Upstream


def files_of_topics(
    timeline: Sequence[Sent], upstream: Upstream, topic: str, settings: Settings, choices: Choices
) -> tuple[Slice, ...]:
    """The records in files in sending order, and a last file with the last watermark once more: topics that ended have no
    records there. `topic`: the default one.
    """
    last = next(sent for sent in reversed(timeline) if sent.message.kind == "watermark")
    *parts, closing = _delivered([*timeline, last], upstream, topic, settings.partitions, once_more=choices.chance(0.5))
    records = list(chain(*parts))
    found = []
    ends = sorted(choices.integer(1, len(records)) for _ in range(settings.slices - 1))
    for start, end in pairwise((0, *ends, len(records))):
        again = [records[choices.integer(0, start - 1)] for _ in range(settings.disturbances.repeats if start else 0)]
        found.append(Slice((*records[start:end], *again)))
    return (*found, Slice(tuple(closing)))


def _delivered(
    timeline: Sequence[Sent], upstream: Upstream, topic: str, partitions: int, *, once_more: bool
) -> list[list[Record]]:
    """The records of each message. `once_more`: a topic that ends gets one more watermark (new architecture), else none."""
    renames = _former_names(upstream)
    offsets: Counter[tuple[str, int]] = Counter()
    removed: dict[Name, int] = {}
    found = []
    for sent in timeline:
        message = sent.message
        places = [(topic, message.partition)]
        if message.kind == "watermark":
            tso = message.commit_ts
            ended = {name for name, commit_ts in removed.items() if commit_ts <= tso}
            names = {*upstream.state_at(tso), *(ended if once_more else ())}
            removed = {name: removed[name] for name in removed.keys() - ended}
            topics = (topic, *("_".join(name) for name in sorted(names)))
            places = [(one, partition) for one in topics for partition in range(partitions)]
        elif message.kind != "note" and message.body["table"]:
            name = message.body["database"], message.body["table"]
            places = [("_".join(renames.get((message.commit_ts, name), name)), message.partition)]
        if message.kind == "ddl":
            removed |= dict.fromkeys(_removed(message, upstream), message.commit_ts)
        payload = message.payload(sent.ts, sent.batch)
        found.append([])
        for place in places:
            found[-1].append(Record(*place, offsets[place], payload, message.commit_ts, message.kind))
            offsets[place] += 1
    return found


def _former_names(upstream: Upstream) -> dict[tuple[int, Name], Name]:
    """The commit TSO and new name of each renamed table → the old name."""
    return {
        (event.commit_ts, new.full_name): old.full_name
        for event in upstream.events
        if isinstance(event, Ddl) and isinstance(event.statement, RenameTables)
        for old, new in event.statement.pairs
    }


def _removed(message: Message, upstream: Upstream) -> set[Name]:
    """The names that the statement of the message has removed."""
    return upstream.state_at(message.commit_ts - 1).keys() - upstream.state_at(message.commit_ts).keys()
