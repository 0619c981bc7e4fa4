"""Detection and decompression of compressed values, including arbitrary bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.sources.codecs import MAX_VALUE_BYTES, decompress_value
from cdc_pipeline.sources.compressed_values import decompressed, may_be_compressed
from cdc_pipeline_tests.support.large_messages import CODECS, lz4, plain, snappy
from cdc_pipeline_tests.support.messages import row, watermark

_MESSAGES = [row("INSERT", "t", 1, {"id": "1", "v": "x" * size}).encode() for size in (0, 1, 100, 5000, 300_000)] + [
    watermark(2).encode()
]
# a message of 123 bytes, whose Snappy block begins with `{`
_OF_123 = (row("INSERT", "t", 1, {"id": "1"})[:90] + '"').encode().ljust(122) + b"}"
_PLAIN: list[bytes | None] = [
    *_MESSAGES,
    *(b"{" + space + end for space in (b"", b" ", b"\n\t ", b" " * 30) for end in (b"}", b'"a":1}')),
    b" \r\n\t{}",
    b"",
    None,
]
_GARBAGE = [
    *(
        b"x",
        b"[]",
        b'"text"',
        b"{x",
        b"{ x",
        b"{",
        b"\x00",
        b"\xff" * 9,
        bytes(range(256)),
        b"\x04\x22\x4d\x18",
        b" " * 99,
    ),
    *(codec(_MESSAGES[0])[:-3] for codec in (lz4, snappy)),
    *(codec(_MESSAGES[0]) + b"x" for codec in (lz4, snappy)),
    *(codec(b"[1]") for codec in (lz4, snappy)),
    *(codec(b"") for codec in (lz4, snappy)),
    # sizes that no block can have
    *(size + b"abcdefgh" for size in (b"\xff\xff\xff\xff\x0f", b"\xff" * 8, b"\x80\x80\x80\x80\x01", b"\x90\x4e")),
]


@pytest.mark.parametrize("codec", [lz4, snappy])
@pytest.mark.parametrize("message", [*_MESSAGES, _OF_123], ids=len)
def test_what_was_compressed_opens(message: bytes, codec: Callable[[bytes], bytes]) -> None:
    assert decompress_value(codec(message)) == message


@pytest.mark.parametrize("value", _GARBAGE)
def test_garbage_opens_to_nothing(value: bytes) -> None:
    assert decompress_value(value) is None


def test_any_bytes_open_to_nothing_without_an_error() -> None:
    source = random.Random(7)
    good = [codec(_MESSAGES[2]) for codec in (lz4, snappy)]
    for _ in range(3000):
        base = source.choice(good)
        cut = bytearray(base[: source.randint(1, len(base))])
        for _ in range(source.randint(0, 3)):
            cut[source.randrange(len(cut))] = source.randrange(256)
        found = decompress_value(bytes(cut))
        assert found is None or found.startswith(b"{")


def test_a_bomb_stays_closed() -> None:
    bomb = lz4(b'{"' + b"x" * (3 << 20) + b'":1}')
    assert len(bomb) < 1 << 20
    assert decompress_value(bomb, max_bytes=1 << 20) is None
    assert decompress_value(bomb) is not None
    # the size in a block's header is checked against the limit before decompression
    said = (MAX_VALUE_BYTES + 1).to_bytes(4, "little")
    assert said == b"\x01\x00\x00\x10"
    assert decompress_value(b"\x81\x80\x80\x80\x01" + b"\x00" * 100) is None


def test_no_snappy_block_begins_as_plain_json_does() -> None:
    """A block that begins with `{` has 123 decompressed bytes, and its second byte is the tag of a literal.

    Of the bytes that can follow `{` in plain JSON, only the space is such a tag. The decompressed text then begins with the
    third byte, unlike a message.
    """
    assert snappy(_OF_123)[:1] == b"{"
    source = random.Random(3)
    tails = [source.randbytes(source.randint(0, 140)) for _ in range(500)]
    # a literal of 9 bytes, then one of 114
    tails.append(b"abcdefgh" + bytes([60 << 2, 113]) + b"x" * 114)
    opened_blocks = []
    for second in (b'"', b"}", b"\t", b"\n", b"\r", b" "):
        for third in (b'"', b"}", b" ", b"\t", b"\n", b"\r"):
            for tail in tails:
                block = b"{" + second + third + tail
                assert decompress_value(block) is None, block
                try:
                    text = bytes(pa.Codec("snappy").decompress(block, 123, asbytes=True))
                except OSError:
                    continue
                opened_blocks.append(block)
                assert second == b" "
                assert text.startswith(third)
    assert len(opened_blocks) == 6


def test_the_rule_tells_plain_from_packed(spark: SparkSession) -> None:
    """Decompression also leaves every value unchanged that is not a compressed message."""
    packed = [codec(message) for codec in (lz4, snappy) for message in (*_MESSAGES, _OF_123)]
    values = [*_PLAIN, *_GARBAGE, *packed]
    frame = spark.createDataFrame(
        [(place, None if value is None else bytearray(value)) for place, value in enumerate(values)],
        "place INT, value BINARY",
    )
    rows = frame.select(
        "place", may_be_compressed(F.col("value")).alias("packed"), decompressed(F.col("value")).alias("opened")
    )
    found = {row["place"]: (row["packed"], row["opened"]) for row in rows.collect()}
    messages = [*_MESSAGES, _OF_123] * 2
    wanted: list[tuple[bool, bytes | None]] = [(False, value) for value in _PLAIN]
    wanted += [(not value.startswith(b'{"'), value) for value in _GARBAGE]
    wanted += [(True, message) for message in messages]
    assert [found[place] for place in range(len(values))] == wanted
    assert CODECS[-1] is plain
