"""Decompresses message values (`large-message-handle-compression`, ticdc-facts §7).

Spark SQL reads neither LZ4 frames nor Snappy blocks, so one Arrow UDF decompresses these values, and only these.

Nothing marks a value as compressed. A value counts as plain JSON if it begins with `{` followed by `"` or `}`, with
optional white space. No compressed message begins so:

- An LZ4 frame begins with other bytes.
- A Snappy block begins with its decompressed size; `{` means 123 bytes. Its first element must be a literal, whose tag has
  0 in its two lowest bits. `"` and `}` are not such tags. Of JSON's white space only the space is one.
- With a space as tag, the literal is the text that follows. If the value then still counts as plain JSON, the decompressed
  text begins with white space, `"` or `}`, which no encoder writes.
"""

# No `from __future__ import annotations`: Spark reads the UDF's annotations, which must be types and not strings.
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_pipeline.sources import codecs
from cdc_pipeline.spark.jvm import built_once

_SPACE = " \t\r\n"
_PREFIX = 64
"""Bytes that are searched for the JSON's beginning if a value begins with white space."""
_MAX_SERIES = 32 * 1024 * 1024
"""Decompressed bytes per series that a worker returns. An Arrow array holds 2 GiB, which one batch may exceed."""


def may_be_compressed(value: Column) -> Column:
    """Whether a binary value is not empty and does not begin as a JSON object does. Never null."""
    first_two = F.substring(value, F.lit(1), F.lit(2))
    is_compact_json = first_two.isin(F.lit(b'{"'), F.lit(b"{}"))
    start = F.ltrim(F.substring(value, F.lit(1), F.lit(_PREFIX)).cast("string"), F.lit(_SPACE)).cast("binary")
    inside = F.ltrim(F.substring(start, F.lit(2), F.lit(_PREFIX)).cast("string"), F.lit(_SPACE)).cast("binary")
    second = F.substring(inside, F.lit(1), F.lit(1))
    is_spaced_json = (F.substring(start, F.lit(1), F.lit(1)) == F.lit(b"{")) & second.isin(F.lit(b'"'), F.lit(b"}"))
    return F.coalesce(F.length(value) > 0, F.lit(False)) & ~F.coalesce(is_compact_json | is_spaced_json, F.lit(False))


def decompressed(value: Column) -> Column:
    """The decompressed value; the value itself if it is not compressed or cannot be decompressed."""
    return F.coalesce(_decompression_udf()(F.when(may_be_compressed(value), value)), value)


@built_once
def _decompression_udf() -> Callable[[Column], Column]:
    """The UDF. Plain values reach the worker as null."""
    import pandas as pd  # type: ignore[import-untyped]
    from pyspark import cloudpickle
    from pyspark.sql.pandas.functions import pandas_udf

    # by value: an executor may not have this package, and importing it would import Dagster
    pickle: Any = cloudpickle
    pickle.register_pickle_by_value(sys.modules[codecs.__name__])
    decompress_value, max_series = codecs.decompress_value, _MAX_SERIES

    def decompress_all(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for batch in batches:
            values: list[bytes | None] = []
            size = 0
            for compressed in batch:
                value = None if compressed is None else decompress_value(compressed)
                values.append(value)
                size += len(value or b"")
                if size > max_series:
                    yield pd.Series(values, dtype=object)
                    values, size = [], 0
            if values:
                yield pd.Series(values, dtype=object)

    as_udf: Any = pandas_udf
    udf: Callable[[Column], Column] = as_udf(decompress_all, "binary")
    return udf
