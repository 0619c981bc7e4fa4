"""What older versions of Canal omit: columns that are NULL, `pkNames`, entries of `old`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.message import Body, Message
from cdc_pipeline_tests.histories.upstream import UPDATE

_SHARE = 0.15
"""The share of histories with each kind of omission."""


def with_omissions(messages: Sequence[Message], choices: Choices) -> list[Message]:
    """The messages of Canal as one of its versions sends them; most histories are unchanged."""
    found, short_old = list(messages), choices.chance(_SHARE)
    if short_old:
        found = [_with_short_old(message, choices) for message in found]
    if choices.chance(_SHARE) and all(map(_may_lack_nulls, found)):
        # the versions without `pkNames` send whole `old`
        key_names = short_old or choices.chance(0.5)
        found = [replace(message, body=_without_nulls(message.body, key_names=key_names)) for message in found]
    return found


def _with_short_old(message: Message, choices: Choices) -> Message:
    """An UPDATE with some entries of `old`, or none, as if only columns that are not sent had changed in the other rows.

    Not if `old` has a column of the key, or if the message names no key: then such an UPDATE identifies no row.
    """
    key, old = message.body.get("pkNames"), message.body.get("old")
    if message.kind != "row" or message.op != UPDATE or not key or any(set(key) & set(row) for row in old):
        return message
    kept = [row for row in old if choices.chance(0.6)]
    return replace(message, body={**message.body, "old": kept or choices.pick((None, []))})


def _may_lack_nulls(message: Message) -> bool:
    """Without NULLs, an UPDATE of a keyless table does not show its former row, and a row of NULLs is empty."""
    if message.kind != "row" or message.table is None:
        return True
    has_values = all(any(value is not None for value in row.values()) for row in message.body["data"])
    return has_values and not (message.table.keyless and message.op == UPDATE)


def _without_nulls(body: Body, *, key_names: bool) -> Body:
    """The fields and columns that are not NULL. `key_names`: the version has `pkNames`."""
    rows = {
        side: [{name: value for name, value in row.items() if value is not None} for row in body[side]]
        for side in ("data", "old")
        if body[side] is not None
    }
    fields = {name: value for name, value in body.items() if value is not None and (key_names or name != "pkNames")}
    return {**fields, **rows}
