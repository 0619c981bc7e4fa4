"""Message values that the encoder compressed (`large-message-handle-compression`, ticdc-facts §7).

Spark SQL opens neither LZ4 frames nor Snappy blocks: such values, and only they, go through one Arrow UDF.

No mark says that a value is compressed. Plain JSON is told by its first characters, `{` and then `"` or `}`, white space
aside. An LZ4 frame begins otherwise. A Snappy block begins with the size that it opens to, and `{` would be that of 123
bytes; its first element must be a literal, of which the two lowest bits of the tag are 0, and those of `"` and `}` are
not. Of JSON's white space only the blank could be such a tag, the literal being what follows: where that is again what
plain JSON goes on with, the block opens to text that begins with a blank, `"` or `}`, which no encoder writes.
"""

# No `from __future__ import annotations` here: Spark reads the annotations of the UDF, which are values.
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.sources import codecs
from cdc_pipeline.spark.built_once import built_once

_SPACE = " \t\r\n"
_BEGINNING = 64
"""Bytes that are looked at where a value does not begin as all encoders' do."""
_PIECE = 32 * 1024 * 1024
"""Opened bytes that a worker sends back at a time: an Arrow array ends at 2 GiB, and a batch of records may open to more."""


def may_be_packed(value: Column) -> Column:
    """Whether a binary value may be compressed: it is there, and does not begin as a JSON object does. Never null."""
    first = F.substring(value, F.lit(1), F.lit(2))
    as_written = first.isin(F.lit(b'{"'), F.lit(b"{}"))
    start = F.ltrim(F.substring(value, F.lit(1), F.lit(_BEGINNING)).cast("string"), F.lit(_SPACE)).cast("binary")
    inside = F.ltrim(F.substring(start, F.lit(2), F.lit(_BEGINNING)).cast("string"), F.lit(_SPACE)).cast("binary")
    second = F.substring(inside, F.lit(1), F.lit(1))
    loosely = (F.substring(start, F.lit(1), F.lit(1)) == F.lit(b"{")) & second.isin(F.lit(b'"'), F.lit(b"}"))
    return F.coalesce(F.length(value) > 0, F.lit(False)) & ~F.coalesce(as_written | loosely, F.lit(False))


def opened(value: Column) -> Column:
    """The value as its encoder had it before it was compressed; as it is where it is not compressed, or does not open."""
    return F.coalesce(_opening()(F.when(may_be_packed(value), value)), value)


@built_once
def _opening() -> Callable[[Column], Column]:
    """The UDF. Values that need no opening reach the worker as null."""
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark import cloudpickle
    from pyspark.sql.pandas.functions import pandas_udf

    # by value: a worker that imported this package would import Dagster with it, or not find it at all
    pickle: Any = cloudpickle
    pickle.register_pickle_by_value(sys.modules[codecs.__name__])
    open_one, most = codecs.opened_value, _PIECE

    def open_all(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            piece: list[bytes | None] = []
            size = 0
            for packed in batch:
                found = None if packed is None else open_one(packed)
                piece.append(found)
                size += len(found or b"")
                if size > most:
                    yield pd.Series(piece, dtype=object)
                    piece, size = [], 0
            if piece:
                yield pd.Series(piece, dtype=object)

    as_udf: Any = pandas_udf
    udf: Callable[[Column], Column] = as_udf(open_all, "binary")
    return udf
