"""Watermarks from the future, as a broken or hostile sender sends them. They must neither delay nor advance mirrors."""

from __future__ import annotations

from dataclasses import replace

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.encoders import Encoder
from cdc_pipeline_tests.histories.sender import Sent
from cdc_pipeline_tests.histories.ticdc import TiCdc
from cdc_pipeline_tests.histories.upstream import END_TSO, TSO_SHIFT

_HOUR = 3_600_000
# ms ahead, more than clocks may differ: two hours, a year, the last time of 13 digits
_AHEAD = (2 * _HOUR, 365 * 24 * _HOUR, 10**13 - 1 - (END_TSO >> TSO_SHIFT))


def with_false_watermarks(timeline: list[Sent], encoder: Encoder, partitions: int, choices: Choices) -> list[Sent]:
    """The timeline with some false watermarks, if the mode has watermarks.

    Each is sent to one partition, and its record is no later than the records around it.
    """
    if not isinstance(encoder, TiCdc) or not encoder.extension or not choices.chance(0.4):
        return timeline
    found = list(timeline)
    for _ in range(choices.integer(1, 3)):
        at = choices.integer(1, len(found))
        around = found[at - 1]
        mark = encoder.watermark(END_TSO + (choices.pick(_AHEAD) << TSO_SHIFT))
        note = replace(
            mark, kind="note", commit_ts=around.message.commit_ts, partition=choices.integer(0, partitions - 1)
        )
        found.insert(at, replace(around, message=note, complete_here=False))
    return found
