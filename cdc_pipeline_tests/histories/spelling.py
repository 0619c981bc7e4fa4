"""Other texts of the same values: a leading zero of a number, more or fewer trailing zeros of a fraction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.message import Message

_SHARE = 0.2


def respelt(message: Message, choices: Choices) -> Message:
    """A message of TiCDC or Canal with some numbers and times of its rows in another text form."""
    table = message.table
    if message.kind != "row" or table is None or "data" not in message.body:
        return message
    sides = {
        side: rows and [_row(row, table.types, choices) for row in rows]
        for side, rows in ((side, message.body[side]) for side in ("data", "old"))
    }
    if message.body["old"] == message.body["data"]:
        sides["old"] = sides["data"]  # early TiCDC sends the row of a DELETE twice, in the same form
    return replace(message, body={**message.body, **sides})


def _row(row: dict[str, Any] | None, types: dict[str, str], choices: Choices) -> dict[str, Any] | None:
    # early TiCDC has [null] in `old`
    return row and {
        name: value if value is None or not choices.chance(_SHARE) else _other(value, types[name])
        for name, value in row.items()
    }


def _other(value: str, mysql_type: str) -> str:
    base = mysql_type.split("(")[0].split(" ")[0]
    if base in ("int", "bigint"):
        return f"-0{value[1:]}" if value.startswith("-") else f"0{value}"
    if base == "decimal":
        return value.rstrip("0").rstrip(".") if "." in value else f"{value}.0"
    if base == "time" and "." in value:
        return value.rstrip("0").rstrip(".")
    return value
