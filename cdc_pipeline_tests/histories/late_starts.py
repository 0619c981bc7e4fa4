"""Changefeeds that start late: their stream has nothing of what was committed before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.history import History, history_as_sent
from cdc_pipeline_tests.histories.message import physical_ms
from cdc_pipeline_tests.histories.resends import is_distinguishable
from cdc_pipeline_tests.histories.sender import Sent


def started_at(history: History, tso: int, choices: Choices, *, shows_start: bool) -> History | None:
    """The history as a changefeed sends it that starts at the TSO: only what was committed after it.

    `shows_start`: the first message of each partition is a watermark at the start, if the mode has watermarks. None if the
    messages would not show which rows of keyless tables are sent again.
    """
    messages = [message for message in history.messages if message.commit_ts > tso]
    timeline = [sent for sent in history.timeline if sent.message.commit_ts > tso]
    first = history.timeline[0]
    if first.message.kind == "watermark" and shows_start:
        timeline = [_watermark(first, tso, timeline), *timeline]
    was_distinguishable = is_distinguishable(history.mode, history.timeline, history.messages)
    if not timeline or (was_distinguishable and not is_distinguishable(history.mode, timeline, messages)):
        return None
    return history_as_sent(history.name, history.settings, history.upstream, messages, timeline, choices)


def _watermark(first: Sent, tso: int, later: Sequence[Sent]) -> Sent:
    """The watermark `first` at the TSO, sent before the others."""
    body = {**first.message.body, "es": physical_ms(tso), "_tidb": {"watermarkTs": tso}}
    ts = later[0].ts - 1 if later else physical_ms(tso) + 5
    return replace(first, message=replace(first.message, body=body, commit_ts=tso, order=tso), ts=ts)
