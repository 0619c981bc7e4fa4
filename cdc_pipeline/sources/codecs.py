"""Decompresses a message value: an LZ4 frame or a Snappy block, as TiCDC writes them (ticdc-facts §7).

Runs in Spark's Python workers. `compressed_values` pickles this module by value, so it must not import this package:
executors need only pyarrow and pandas.
"""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

LZ4_MAGIC = b"\x04\x22\x4d\x18"
MAX_VALUE_BYTES = 256 * 1024 * 1024
"""Maximum size of a decompressed value, in bytes. TiDB rejects rows of more than 120 MiB
(`performance.txn-entry-size-limit`), which JSON escapes may double. Spark holds each value in one array."""
_CHUNK = 1024 * 1024
# A copy element of three bytes yields at most 64 bytes, so a block expands to at most 64/3 of its size.
_MAX_SNAPPY_RATIO = 22
_JSON_SPACE = b" \t\r\n"


def decompress_value(compressed: bytes, max_bytes: int = MAX_VALUE_BYTES) -> bytes | None:
    """The decompressed value; None if it is neither format, larger than `max_bytes`, or not a JSON object.

    Raises nothing.
    """
    try:
        if compressed.startswith(LZ4_MAGIC):
            value = _decompress_lz4(compressed, max_bytes)
        else:
            value = _decompress_snappy(compressed, max_bytes)
    except Exception:  # the bytes are not trusted: whatever a codec raises, they are not a message
        return None
    return value if value is not None and value.lstrip(_JSON_SPACE).startswith(b"{") else None


def _decompress_lz4(compressed: bytes, max_bytes: int) -> bytes | None:
    chunks, size = [], 0
    with pa.CompressedInputStream(pa.BufferReader(compressed), "lz4") as stream:
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > max_bytes:
                return None
            chunks.append(chunk)
    return b"".join(chunks)


def _decompress_snappy(compressed: bytes, max_bytes: int) -> bytes | None:
    size = _snappy_size(compressed)
    if size is None or not 0 < size <= min(max_bytes, _MAX_SNAPPY_RATIO * len(compressed)):
        return None
    return bytes(pa.Codec("snappy").decompress(compressed, size, asbytes=True))


def _snappy_size(compressed: bytes) -> int | None:
    """The decompressed size in a block's header: a varint of at most 32 bits. None if the varint does not end."""
    size = 0
    for index, byte in enumerate(compressed[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size
    return None
