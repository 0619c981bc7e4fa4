"""Messages of TiCDC v4.0.16 and v5.0 to v5.3.4, which have `ts` 0 (ticdc-canal-json "Changes in TiCDC Canal-JSON").

Their BINARY and VARBINARY values are no ISO-8859-1, as all later ones are: the encoder took their bytes for UTF-8, and gave
them the Java type of CHAR or VARCHAR. Bytes that are UTF-8 are known; in place of others stands U+FFFD, and they are lost:
such a value is none that the column can have, so that the record is set aside by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

_BYTES = ("binary", "varbinary")
_TEXT_CODES = (1, 12)
_LOST = "\ufffd"


def with_bytes(row: Column) -> Column:
    """A row of such a message with its bytes as later versions write them; any other row as it is. Types are looked at in
    these messages only."""
    types = F.from_json(
        F.col("value").cast("string"), "mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>", OPTIONS
    )
    # in a list of one, so that the types are parsed once and not for each column
    rows = F.transform(F.array(types), lambda told: F.transform_values(row, _latin1(told)))
    return F.when(F.col("ts") == 0, F.get(rows, F.lit(0))).otherwise(row)


def _latin1(types: Column) -> Callable[[Column, Column], Column]:
    def of_column(name: Column, text: Column) -> Column:
        kind = F.lower(F.trim(types["mysqlType"][name]))
        is_bytes = F.coalesce(kind.isin(*_BYTES) & types["sqlType"][name].isin(*_TEXT_CODES), F.lit(False))
        known = is_bytes & ~text.contains(_LOST)
        return F.when(known, F.decode(F.encode(text, "UTF-8"), "ISO-8859-1")).otherwise(text)

    return of_column
