from __future__ import annotations

import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.snapshots.position import read_metadata

_TIMES = "Started dump at: 2026-11-28 00:28:10\n{}\nFinished dump at: 2026-11-28 00:28:11\n"


@pytest.mark.parametrize(
    ("status", "tso", "binlog"),
    [
        ("SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 4707\n\tGTID:\n", 4707, ""),
        ("SHOW MASTER STATUS:\n\tLog: bin.1\n\tPos: 12\n\tGTID:0-1\n", None, "\tLog: bin.1\n\tPos: 12\n\tGTID:0-1"),
        ("SHOW BINARY LOG STATUS:\n\tLog: bin.1\n\tPos: 12\n", None, "\tLog: bin.1\n\tPos: 12"),
        (
            "SHOW MASTER STATUS:\n\tLog: b\n\tPos: 1\n\nSHOW SLAVE STATUS:\n\tHost: h\n\tLog: tidb-binlog\n\tPos: 2\n",
            None,
            "\tLog: b\n\tPos: 1",
        ),
        ("", None, ""),  # MySQL 8.4 has no SHOW MASTER STATUS
    ],
)
def test_metadata(status: str, tso: int | None, binlog: str) -> None:
    found = read_metadata(_TIMES.format(status), "metadata")
    assert (found.tso, found.started, found.finished) == (tso, "2026-11-28 00:28:10", "2026-11-28 00:28:11")
    assert found.binlog.startswith(binlog)


def test_damaged_metadata_is_rejected() -> None:
    with pytest.raises(SourceError, match="'Finished dump at'"):
        read_metadata("Started dump at: 2026-11-28 00:28:10\n", "metadata")
    with pytest.raises(SourceError, match="The TSO of the export is expected"):
        read_metadata(_TIMES.format("SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: x\n"), "metadata")
