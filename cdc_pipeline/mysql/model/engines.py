"""Storage engines whose rows change without row events in the binlog, or the reverse."""

from __future__ import annotations

UNLOGGED = {
    "blackhole": "the binlog has INSERTs of rows that the table does not store",
    **dict.fromkeys(("memory", "heap"), "it is empty after a restart of the server, which the binlog may not show"),
    **dict.fromkeys(
        ("merge", "mrg_myisam"), "its rows are those of other tables, and the binlog has each change under one name"
    ),
    **dict.fromkeys(("ndb", "ndbcluster"), "its changes are in the binlog of a server with ndb_log_bin only"),
    **dict.fromkeys(("federated", "connect", "spider"), "other servers and programs change its rows too"),
}
"""Engine in lower case → why a mirror of its table may differ (docs/ddl.md names the documents)."""
