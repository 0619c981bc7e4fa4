"""Which topics of a source have records that the lake lacks, a second after its newest batch."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.sources.raw_batches import newest_note, newest_note_by_spark
from cdc_pipeline.sources.source import NoNewRecords

if TYPE_CHECKING:
    from collections.abc import Collection

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.sources.source import Source

SETTLED_AFTER = 1.0
"""Seconds within which the records of one moment arrive in all partitions of a topic."""


def unread_topics(source: Source, lake: Lake) -> Collection[str] | None:
    """The topics with new records; None if that is unknown."""
    note = newest_note(lake.paths) or newest_note_by_spark(lake)
    if note is None:
        return None
    time.sleep(min(max(note["committed_ms"] / 1000 + SETTLED_AFTER - time.time(), 0), SETTLED_AFTER))
    try:
        found = source.find_new_records(note)
    except (SourceError, TransientError):
        return None  # the run that reads them reports it
    return () if isinstance(found, NoNewRecords) else found.topics
