from __future__ import annotations

import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.snapshots.position import ExportPosition, read_metadata

_TIMES = "Started dump at: 2026-11-28 00:28:10\n{}\nFinished dump at: 2026-11-28 00:28:11\n"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: 4707\n\tGTID:\n", (4707, None, None, None)),
        ("SHOW MASTER STATUS:\n\tLog: bin.1\n\tPos: 12\n\tGTID:0-1-68\n", (None, "bin.1", 12, "0-1-68")),
        ("SHOW BINARY LOG STATUS:\n\tLog: bin.1\n\tPos: 12\n\tGTID:\n", (None, "bin.1", 12, None)),
        ("SHOW MASTER STATUS:\n\tLog: b\n\tPos: 1\n\tGTID:a:1-2,\nb:3\n", (None, "b", 1, "a:1-2,\nb:3")),
        (
            "SHOW MASTER STATUS:\n\tLog: b\n\tPos: 1\n\nSHOW SLAVE STATUS:\n\tHost: h\n\tLog: c\n\tPos: 2\n\tGTID:x\n",
            (None, "b", 1, None),
        ),
        ("", (None, None, None, None)),  # MySQL 8.4 has no SHOW MASTER STATUS
    ],
)
def test_metadata(status: str, expected: tuple[object, ...]) -> None:
    found = read_metadata(_TIMES.format(status), "metadata")
    times = ("2026-11-28 00:28:10", "2026-11-28 00:28:11")
    assert found == ExportPosition(*expected, *times)  # type: ignore[arg-type]


def test_damaged_metadata_is_rejected() -> None:
    with pytest.raises(SourceError, match="'Finished dump at'"):
        read_metadata("Started dump at: 2026-11-28 00:28:10\n", "metadata")
    with pytest.raises(SourceError, match="The TSO of the export is expected"):
        read_metadata(_TIMES.format("SHOW MASTER STATUS:\n\tLog: tidb-binlog\n\tPos: x\n"), "metadata")
