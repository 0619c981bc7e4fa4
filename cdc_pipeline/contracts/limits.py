"""The limits of the databases themselves: what is beyond them no server has said, however well it is written.

A limit of a message is a rule of its contract, so that one message cannot make tables of a million columns, or keep a
parser busy for hours. They are those of MySQL 9, MariaDB and TiDB, whichever is largest; for DataWorks also those of the
other databases that it reads.
"""

from __future__ import annotations

COLUMNS = 4096
"""Columns of a table: MySQL and MariaDB; TiDB's `table-column-count-limit` at its most."""
NAME = 64
"""Characters of the name of a database, a table or a column."""
KEY_COLUMNS = 32
"""Columns of a key: 16 in MySQL and TiDB, 32 in MariaDB, SQL Server, PostgreSQL and Oracle."""
STATEMENT = 4 * 1024 * 1024
"""Characters of a DDL statement: `max_allowed_packet` before MySQL 8; TiDB keeps a statement in 6 MB. Eight thousand
partitions with their names and comments need two."""
NESTING = 1000
"""Levels of objects and lists in a message. It has four, and what fields of later versions have."""
ANY_COLUMNS = 30_000
"""Columns of a table of any database that DataWorks reads: SQL Server's wide tables."""
ANY_NAME = 128
"""Characters of a name in any of them: Oracle and SQL Server."""
SKEW_MS = 3_600_000
"""How far the clocks of a database, of its encoder and of a broker may be apart. A watermark is the past of its database
by a second or more; where it is later than its own record by more than this, it is wrong."""
