"""SQL that lets a MySQL or MariaDB server print a value as the readers of exports do (`snapshots.cell_texts`).

A driver would convert some values: a date that no calendar has, a TIME above 24 hours, a FLOAT.
"""

from __future__ import annotations

from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import Column
from cdc_pipeline.snapshots.cell_texts import is_bytes

SESSION = "SET SESSION time_zone = '+00:00', SESSION sql_mode = '{}', SESSION net_write_timeout = 3600"
"""TIMESTAMPs are printed in UTC, and no mode changes values (such as PAD_CHAR_TO_FULL_LENGTH)."""
_DIGITS_PER_BYTE = 2


def text_sql(column: Column) -> str:
    """The expression of the column's text: FLOAT with all digits, bytes and BIT as hexadecimal digits."""
    name, base = quoted(column.name), column.type.base
    if base == "bit":
        size = (int(column.type.params[0]) + 7) // 8 if column.type.params else 1
        return f"LPAD(HEX({name} + 0), {size * _DIGITS_PER_BYTE}, '0')"
    if is_bytes(column.type):
        return f"HEX({name})"
    # FLOAT alone is printed with six digits; CAST … AS DOUBLE needs MySQL 8
    value = f"({name} + 0e0)" if base == "float" else name
    return f"CONVERT({value} USING utf8mb4)"
