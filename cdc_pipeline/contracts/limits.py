"""Limits of the upstream databases, which the contracts enforce: no server can send more.

A message beyond them would create tables of a million columns, or keep the parser busy for hours. Each limit is the
largest of MySQL 9, MariaDB and TiDB; for DataWorks also of the other databases that it reads.
"""

from __future__ import annotations

COLUMNS = 4096
"""Columns of a table: MySQL, MariaDB, and the maximum of TiDB's `table-column-count-limit`."""
NAME = 64
"""Characters of the name of a database, table or column."""
KEY_COLUMNS = 32
"""Columns of a key: 16 in MySQL and TiDB, 32 in MariaDB, SQL Server, PostgreSQL and Oracle."""
STATEMENT = 4 * 1024 * 1024
"""Characters of a DDL statement: `max_allowed_packet` before MySQL 8; TiDB stores up to 6 MB. A statement with 8,000
partitions, their names and comments has 2 million."""
NESTING = 1000
"""Nesting depth of a message's JSON. Today's messages have four levels."""
ANY_COLUMNS = 30_000
"""Columns of a table of any database that DataWorks reads: wide tables of SQL Server."""
ANY_NAME = 128
"""Characters of a name in any database that DataWorks reads: Oracle and SQL Server."""
MAX_CLOCK_SKEW_MS = 3_600_000
"""Allowed difference between the clocks of a database, its encoder and a broker, in ms.

A watermark is at least a second behind its database. One that is later than its own record by more than this is wrong.
"""
