"""Opening one compressed message value: LZ4 frames and Snappy blocks, as TiCDC writes them (ticdc-facts §7).

It runs in Spark's Python workers and is sent there by value (`packed`): nothing here may need this package, so that an
executor needs pyarrow and pandas alone.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

LZ4_MAGIC = b"\x04\x22\x4d\x18"
MOST_BYTES = 256 * 1024 * 1024
"""What a value may open to. TiCDC's largest message is `max-message-bytes`, 10 MiB unless it is set otherwise, and TiDB lets
no row of more than 120 MiB in (`performance.txn-entry-size-limit`), which JSON's escapes may double; Spark holds a value
in one array, some of them at a time."""
_CHUNK = 1024 * 1024
# A copy of three bytes gives at most 64: no block opens to more than 64/3 of its size.
_MOST_SNAPPY_RATIO = 22
_JSON_SPACE = b" \t\r\n"


def opened_value(packed: bytes, most: int = MOST_BYTES) -> bytes | None:
    """The value that was compressed; None for bytes that are neither, that open to more than `most` bytes, or to what is
    no JSON object. Raises nothing."""
    try:
        found = _lz4(packed, most) if packed.startswith(LZ4_MAGIC) else _snappy(packed, most)
    except Exception:  # bytes from outside may be anything; whatever a codec makes of them, they are no message
        return None
    return found if found is not None and found.lstrip(_JSON_SPACE).startswith(b"{") else None


def _lz4(packed: bytes, most: int) -> bytes | None:
    chunks, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(packed), "lz4") as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > most:
                return None
            chunks.append(chunk)
    return b"".join(chunks)


def _snappy(packed: bytes, most: int) -> bytes | None:
    size = _snappy_size(packed)
    if size is None or not 0 < size <= min(most, _MOST_SNAPPY_RATIO * len(packed)):
        return None
    return bytes(pa.Codec("snappy").decompress(packed, size, asbytes=True))


def _snappy_size(packed: bytes) -> int | None:
    """The size that a block says it opens to: a varint of at most 32 bits."""
    size = 0
    for place, byte in enumerate(packed[:5]):
        size |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return size
    return None
