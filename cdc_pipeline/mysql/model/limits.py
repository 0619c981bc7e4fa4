"""Limits of MySQL, of TiDB and of the parser. The parser rejects larger input with its size and the limit."""

from __future__ import annotations

MAX_STATEMENT_CHARACTERS = 2**20
"""Per statement. `max_allowed_packet` allows more (64 MB by default); 65,535 labels of ten letters fit."""
MAX_COLUMNS = 4096
"""Per table: the limit of MySQL and the maximum of TiDB's `table-column-count-limit`."""
MAX_INDEXES = 512
"""Per table: the maximum of TiDB's `index-limit`; MySQL allows 64."""
MAX_KEY_COLUMNS = 64
"""Per index; MySQL allows 16, MariaDB 32."""
MAX_PARTITIONS = 8192
"""Per table, in MySQL and TiDB."""
MAX_NAME_CHARACTERS = 64
"""Per identifier."""
MAX_EXPRESSION_CHARACTERS = 65_535
"""Per expression of a generated column, a default or a partitioning."""
MAX_TRANSLATED_CHARACTERS = 100_000
"""Per Spark SQL translation of an expression."""
MAX_NESTING = 100
"""Nesting depth of an expression. MySQL has no limit but its stack; Spark's parser has a stack too."""
MAX_QUOTED = 200
"""Characters of a statement or value that a gap or an error quotes. `ddl_history` has the full statements."""


def shortened(text: str) -> str:
    """The text cut to `MAX_QUOTED` characters. A cut text ends with its original size."""
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}… ({len(text):,} characters)"


def limit_message(what: str, size: int, limit: int) -> str:
    """The message for a size above its limit."""
    return f"{what} {size:,}: at most {limit:,}"
