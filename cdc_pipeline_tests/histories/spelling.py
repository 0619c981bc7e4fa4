"""Values spelt in another way that is the same value: a zero before a number, more or fewer zeros behind a point."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdc_pipeline_tests.histories.choices import Choices
    from cdc_pipeline_tests.histories.message import Message

_SHARE = 0.2


def respelt(message: Message, choices: Choices) -> Message:
    """The message of TiCDC or Canal with some numbers and times of its rows spelt in another way."""
    table = message.table
    if message.kind != "row" or table is None or "data" not in message.body:
        return message
    types = table.types
    body = {
        **message.body,
        **{
            side: None if rows is None else [_row(row, types, choices) for row in rows]
            for side, rows in ((side, message.body[side]) for side in ("data", "old"))
        },
    }
    return replace(message, body=body)


def _row(row: dict[str, Any], types: dict[str, str], choices: Choices) -> dict[str, Any]:
    return {
        name: value if value is None or not choices.chance(_SHARE) else _other(value, types[name])
        for name, value in row.items()
    }


def _other(value: str, words: str) -> str:
    base = words.split("(")[0].split(" ")[0]
    if base in ("int", "bigint"):
        return f"-0{value[1:]}" if value.startswith("-") else f"0{value}"
    if base == "decimal":
        return value.rstrip("0").rstrip(".") if "." in value else f"{value}.0"
    if base == "time" and "." in value:
        return value.rstrip("0").rstrip(".")
    return value
