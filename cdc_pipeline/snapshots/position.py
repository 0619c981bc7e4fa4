"""The position of an export: where a stream of changes goes on from its rows."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cdc_pipeline.errors import SourceError

_TIDB = "tidb-binlog"
_STATUS = re.compile(
    r"^(?:#\s*)?SHOW (?:MASTER|BINARY LOG) STATUS:[^\n]*\n(.*?)(?:\n\s*\n|\Z)", re.MULTILINE | re.DOTALL
)
_FIELD = re.compile(
    r"^\s*(Log|Pos|GTID):[ \t]*((?:[^\s,]+,\s*)*[^\s,]*)", re.MULTILINE
)  # a set of GTIDs may have several lines
_STARTED = re.compile(r"^(?:#\s*)?Started dump at:\s*(.+)$", re.MULTILINE)
_FINISHED = re.compile(r"^(?:#\s*)?Finished dump at:\s*(.+)$", re.MULTILINE)
_SOURCE = re.compile(r"\bCHANGE (?:MASTER|REPLICATION SOURCE) TO \w+_LOG_FILE='([^']*)', \w+_LOG_POS=(\d+)")
_GTIDS = re.compile(r"gtid_slave_pos='([^']*)'|GTID_PURGED=(?:/\*!80000 '\+'\*/ )?'([^']*)'")


@dataclass(frozen=True)
class ExportPosition:
    tso: int | None = None
    """T of an export of TiDB."""
    log_file: str | None = None
    """The binary log of MySQL or MariaDB, and the position in it."""
    log_position: int | None = None
    gtids: str | None = None
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
    fields = dict(_FIELD.findall(status[1])) if status else {}
    log, position = fields.get("Log"), fields.get("Pos", "")
    if log == _TIDB:
        if not position.isdigit():
            raise SourceError(f"{place}: Pos is {position!r}. The TSO of the export is expected. Repeat the export")
        return ExportPosition(int(position), started=started, finished=finished)
    at = int(position) if position.isdigit() else None
    return ExportPosition(None, log or None, at, fields.get("GTID") or None, started, finished)


def with_statement(position: ExportPosition, statement: str) -> ExportPosition:
    """The position with what a comment or statement of mysqldump says of it."""
    if (found := _SOURCE.search(statement)) is not None:
        return replace(position, log_file=found[1], log_position=int(found[2]))
    if (found := _GTIDS.search(statement)) is not None:
        return replace(position, gtids=found[1] or found[2] or None)
    return position
