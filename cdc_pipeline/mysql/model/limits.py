"""Limits of MySQL, of TiDB and of the parser. The parser rejects larger input with its size and the limit."""

from __future__ import annotations

MOST_CHARACTERS = 2**20
"""Per statement. `max_allowed_packet` allows more (64 MB by default); 65,535 labels of ten letters fit."""
MOST_COLUMNS = 4096
"""Per table: the limit of MySQL and the maximum of TiDB's `table-column-count-limit`."""
MOST_INDEXES = 512
"""Per table: the maximum of TiDB's `index-limit`; MySQL allows 64."""
MOST_KEY_COLUMNS = 64
"""Per index; MySQL allows 16, MariaDB 32."""
MOST_PARTITIONS = 8192
"""Per table, in MySQL and TiDB."""
MOST_NAME_CHARACTERS = 64
"""Per identifier."""
MOST_EXPRESSION_CHARACTERS = 65_535
"""Per expression of a generated column, a default or a partitioning."""
MOST_TRANSLATED_CHARACTERS = 100_000
"""Per Spark SQL translation of an expression."""
MOST_NESTING = 100
"""Nesting depth of an expression. MySQL has no limit but its stack; Spark's parser has a stack too."""
MOST_QUOTED = 200
"""Characters of a statement or value that a gap or an error quotes. `ddl_history` has the full statements."""


def short(text: str) -> str:
    """The text cut to `MOST_QUOTED` characters. A cut text ends with its original size."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}… ({len(text):,} characters)"


def beyond(what: str, size: int, limit: int) -> str:
    """The message for a size above its limit."""
    return f"{what} {size:,}: at most {limit:,}"
