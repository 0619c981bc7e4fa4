"""The position of an export: where a stream of changes goes on from its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cdc_pipeline.errors import SourceError

_STATUS = re.compile(
    r"^(?:#\s*)?SHOW (?:MASTER|BINARY LOG) STATUS:[^\n]*\n(.*?)(?:\n\s*\n|\Z)", re.MULTILINE | re.DOTALL
)
_TSO = re.compile(r"\s*Log:[ \t]*tidb-binlog\s+Pos:[ \t]*(\S*)")
_STARTED = re.compile(r"^(?:#\s*)?Started dump at:\s*(.+)$", re.MULTILINE)
_FINISHED = re.compile(r"^(?:#\s*)?Finished dump at:\s*(.+)$", re.MULTILINE)
_BINLOG = re.compile(
    r"\bCHANGE (?:MASTER|REPLICATION SOURCE) TO \w+_LOG_FILE='[^']*', \w+_LOG_POS=\d+"
    r"|gtid_slave_pos='[^']*'|GTID_PURGED=(?:/\*!80000 '\+'\*/ )?'[^']*'"
)


@dataclass(frozen=True)
class ExportPosition:
    tso: int | None = None
    """T of an export of TiDB."""
    binlog: str = ""
    """The position in the binary log of MySQL or MariaDB, as printed: files of one export have the same."""
    started: str | None = None
    """As printed: local time of the program, or of the server."""
    finished: str | None = None


@dataclass(frozen=True)
class ExportTimes:
    """When an export without a TSO ran, in ms since 1970 by upstream's clock. Its rows are of moments in between."""

    started: int
    finished: int | None = None
    """None: before it was loaded."""


def read_metadata(text: str, place: str) -> ExportPosition:
    """The position in the file `metadata` of Dumpling or mydumper. Raises SourceError if the export is not finished.

    Lines that are not known are ignored: newer versions write more.
    """
    started, finished = (
        None if found is None else found[1].strip() for found in (_STARTED.search(text), _FINISHED.search(text))
    )
    if finished is None:
        raise SourceError(f"{place}: no line 'Finished dump at': the export was cut short. Repeat it")
    status = _STATUS.search(text)
    binlog = "" if status is None else status[1]
    if (tso := _TSO.match(binlog)) is None:
        return ExportPosition(None, binlog, started, finished)
    if not tso[1].isdigit():
        raise SourceError(f"{place}: Pos is {tso[1]!r}. The TSO of the export is expected. Repeat the export")
    return ExportPosition(int(tso[1]), "", started, finished)


def with_statement(position: ExportPosition, statement: str) -> ExportPosition:
    """The position with what a comment or statement of mysqldump says of it."""
    found = _BINLOG.search(statement)
    return position if found is None else replace(position, binlog=f"{position.binlog}{found[0]}\n")
