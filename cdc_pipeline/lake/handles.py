"""Handles of the Delta tables that delta-rs has opened, kept between calls: a table's log is read once.

On S3 each look for newer commits is three requests. A handle is used without it while only this process can have committed
(`delta_log.only_writer_since`), and has not.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from cdc_pipeline.lake.delta_log import only_writer_since, require_intact_logs
from cdc_pipeline.lake.paths import is_s3_path
from cdc_pipeline.lake.store import S3Folder, storage_options

_HANDLES = threading.local()
"""Of each thread: path → handle of a table, and what identifies the file of its newest commit."""
_MOST_HANDLES = 64
_NEWEST: dict[str, tuple[int, int]] = {}
"""Path → `only_writer_since`, and the newest version that a thread has seen since then; -1 without a table."""
_NEWEST_LOCK = threading.Lock()


def open_table(path: str) -> DeltaTable | None:
    """The table's newest version; None if there is no table. Raises LakeError if its log is damaged.

    The handle is that of the thread's last call for this table, which then has this version too: to read the commits since
    then takes a tenth of the time.
    """
    require_intact_logs([path])
    table, commit = _handles().pop(path, (None, None))
    since = only_writer_since(path)
    if since is not None and _NEWEST.get(path) == (since, -1 if table is None else table.version()):
        if table is not None:
            _keep(table, path, commit)
        return table
    try:
        # another table may have taken its place
        if table is not None and commit == _newest_commit(table, path):
            table.update_incremental()
        else:
            table = DeltaTable(path, storage_options=storage_options(path))
    except TableNotFoundError:
        note_version(path, -1)
        return None
    note_handle(table, path)
    return table


def note_handle(table: DeltaTable, path: str) -> None:
    """Keeps the handle, which has read the newest version or committed it."""
    if (commit := _newest_commit(table, path)) is not None:
        _keep(table, path, commit)
    note_version(path, table.version())


def note_version(path: str, version: int) -> None:
    """Call it when this process has read or committed the version."""
    if (since := only_writer_since(path)) is not None:
        with _NEWEST_LOCK:
            _NEWEST[path] = max(_NEWEST.get(path, (0, 0)), (since, version))


def forget_version(path: str) -> None:
    """Call it after a commit that `note_version` does not report."""
    with _NEWEST_LOCK:
        _NEWEST.pop(path, None)


def _handles() -> dict[str, tuple[DeltaTable, Hashable]]:
    found: dict[str, tuple[DeltaTable, Hashable]] = vars(_HANDLES).setdefault("tables", {})
    return found


def _keep(table: DeltaTable, path: str, commit: Hashable) -> None:
    handles = _handles()
    handles[path] = table, commit
    if len(handles) > _MOST_HANDLES:
        del handles[next(iter(handles))]


def _newest_commit(table: DeltaTable, path: str) -> Hashable | None:
    """Identifies the file of the commit; None if it has left the log."""
    log, name = f"{path}/_delta_log", f"{table.version():020}.json"
    if is_s3_path(path):
        return S3Folder(log).e_tag(name)
    try:
        found = Path(log, name).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
