"""Converts ordinary messages into the forms that TiCDC uses for large ones (ticdc-facts §7)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa


def lz4(value: bytes) -> bytes:
    """An lz4 frame without the content size, as TiCDC writes it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(value)
    return bytes(sink.getvalue())


def snappy(value: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(value, asbytes=True))


def plain(value: bytes) -> bytes:
    return value


CODECS: tuple[Callable[[bytes], bytes], ...] = (lz4, snappy, plain)


def with_value(record: dict[str, Any], value: bytes) -> dict[str, Any]:
    """The record of a capture file with its value replaced."""
    rest = {name: field for name, field in record.items() if name not in ("payload", "payload_base64")}
    return {**rest, "payload_base64": base64.b64encode(value).decode()}


def write_records(folder: Path, records: Iterable[dict[str, Any]], name: str = "1.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


def handle_key_message(message: str, key: Iterable[str], **extension: Any) -> str:
    """The message reduced to its handle key columns, as TiCDC does, with these fields added to `_tidb`."""
    whole = json.loads(message)
    names = set(key)

    def cut(row: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else {name: value for name, value in row.items() if name in names}

    return json.dumps(
        {
            **whole,
            "sqlType": cut(whole["sqlType"]),
            "mysqlType": cut(whole["mysqlType"]),
            "data": [cut(row) for row in whole["data"]],
            "old": None if whole["old"] is None else [cut(row) for row in whole["old"]],
            "_tidb": {**whole["_tidb"], **extension},
        },
        ensure_ascii=False,
    )


def only_handle_key(message: str, key: Iterable[str]) -> str:
    return handle_key_message(message, key, onlyHandleKey=True)


def in_json(value: bytes) -> bytes:
    """A claim-check file in the JSON form: key and value as base64."""
    return json.dumps({"key": None, "value": base64.b64encode(value).decode()}, separators=(",", ":")).encode()
