"""How much a statement may say: MySQL's and TiDB's own limits, and ours of what is read.

What lies beyond a limit is refused by name, with its size and the limit, before anything grows with it.
"""

from __future__ import annotations

MOST_CHARACTERS = 2**20
"""Of a statement that is read. `max_allowed_packet` allows more (64 MB by default); 65,535 labels of ten letters fit."""
MOST_COLUMNS = 4096
"""Of a table: MySQL's, and TiDB's `table-column-count-limit` at most."""
MOST_INDEXES = 512
"""Of a table: TiDB's `index-limit` at most; MySQL has 64."""
MOST_KEY_COLUMNS = 64
"""Of an index; MySQL has 16, MariaDB 32."""
MOST_PARTITIONS = 8192
"""Of a table, in MySQL and TiDB."""
MOST_NAME_CHARACTERS = 64
"""Of an identifier."""
MOST_EXPRESSION_CHARACTERS = 65_535
"""Of a generated column, a default or a partition function."""
MOST_TRANSLATED_CHARACTERS = 100_000
"""Of the Spark SQL that an expression becomes."""
MOST_NESTING = 100
"""How deep an expression may be. MySQL goes on until its stack ends; Spark's own parser has a stack too."""
MOST_QUOTED = 200
"""Characters of a statement or value that a gap or an error quotes; `ddl_history` has statements whole."""


def short(text: str) -> str:
    """The text, cut to `MOST_QUOTED` characters, with its size where it was longer."""
    return text if len(text) <= MOST_QUOTED else f"{text[:MOST_QUOTED]}… ({len(text):,} characters)"


def beyond(what: str, size: int, limit: int) -> str:
    """The words for a size above its limit."""
    return f"{what} {size:,}: at most {limit:,}"
