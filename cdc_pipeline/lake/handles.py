"""Handles of the Delta tables that delta-rs has opened, kept between calls: a table's log is read once.

On S3 a look for newer commits is one request. A handle is used without it while only this process can have committed
(`delta_log.only_writer_since`), and has not.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from cdc_pipeline.lake.delta_log import only_writer_since, require_intact_logs
from cdc_pipeline.lake.paths import CONTROL_TABLES, is_s3_path
from cdc_pipeline.lake.store import S3Folder, storage_options

_HANDLES: dict[Hashable, tuple[DeltaTable, Hashable]] = {}
"""`_key` → handle of a table, and what identifies it: the file of its commit, or `only_writer_since`, within which no other
table takes its place."""
_COMMIT = re.compile(r"\d{20}\.json")
_MOST_HANDLES = 256
_NEWEST: dict[str, tuple[int, int]] = {}
"""Path → `only_writer_since`, and the newest version that a thread has seen since then; -1 without a table."""
_LOCK = threading.Lock()


def open_table(path: str) -> DeltaTable | None:
    """The table's newest version; None if there is no table. Raises LakeError if its log is damaged.

    The handle is that of the last call for this table, which then has this version too: to read the commits since then
    takes a tenth of the time.
    """
    require_intact_logs([path])
    table, identity = _HANDLES.pop(_key(path), (None, None))
    since = only_writer_since(path)
    if since is not None:
        if identity != since:  # of another context
            table = None
        if _NEWEST.get(path) == (since, -1 if table is None else table.version()):
            if table is not None:
                _keep(table, path, since)
            return table
    commits = {} if table is None or since is not None else _commits_from(table, path)
    try:
        # another table may have taken its place
        if table is None or (since is None and commits.get(table.version()) != identity):
            table, commits = DeltaTable(path, storage_options=storage_options(path)), {}
        elif since is not None or not is_s3_path(path) or len(commits) > 1:
            table.update_incremental()
    except TableNotFoundError:
        note_version(path, -1)
        return None
    note_handle(table, path, commits.get(table.version()))
    return table


def transaction_version(table: DeltaTable, app_id: str) -> int | None:
    """`DeltaTable.transaction_version`, which reads commits, once for each version of the table."""
    known = _transactions(table)
    if app_id not in known:
        known[app_id] = table.transaction_version(app_id)
    return known[app_id]


def note_transaction(table: DeltaTable, app_id: str, version: int) -> None:
    """Call it after a commit by the handle with this pair."""
    _transactions(table)[app_id] = version


def _transactions(table: DeltaTable) -> dict[str, int | None]:
    """Application id → `transaction_version` in the handle's version, as far as it is known."""
    version, known = vars(table).get("_transactions", (None, {}))
    if version != table.version():
        version, known = vars(table)["_transactions"] = table.version(), {}
    found: dict[str, int | None] = known
    return found


def note_handle(table: DeltaTable, path: str, commit: Hashable | None = None) -> None:
    """Keeps the handle, which has read the newest version or committed it. `commit`: identifies the version's file."""
    if (since := only_writer_since(path)) is not None:
        _keep(table, path, since)
        note_version(path, table.version())
    elif (identity := commit or _commits_from(table, path, only=True).get(table.version())) is not None:
        _keep(table, path, identity)


def note_version(path: str, version: int) -> None:
    """Call it when this process has read or committed the version."""
    if (since := only_writer_since(path)) is not None:
        with _LOCK:
            _NEWEST[path] = max(_NEWEST.get(path, (0, 0)), (since, version))


def forget_version(path: str) -> None:
    """Call it after a commit that `note_version` does not report."""
    with _LOCK:
        _NEWEST.pop(path, None)


def _key(path: str) -> Hashable:
    """Threads share the handles of tables that one of them at a time writes, but not of control tables: a handle that
    another thread has moved on would write a commit twice."""
    return (path, threading.get_ident()) if path.rpartition("/")[2] in CONTROL_TABLES else path


def _keep(table: DeltaTable, path: str, identity: Hashable) -> None:
    with _LOCK:
        _HANDLES[_key(path)] = table, identity
        if len(_HANDLES) > _MOST_HANDLES:
            del _HANDLES[next(iter(_HANDLES))]


def _commits_from(table: DeltaTable, path: str, *, only: bool = False) -> dict[int, Hashable]:
    """Version → what identifies the file of its commit, for the version of the handle and on S3 for later ones, too, unless
    `only`. Without versions that have left the log."""
    log, version = f"{path}/_delta_log", table.version()
    name = f"{version:020}.json"
    if is_s3_path(path):
        folder = S3Folder(log)
        found = {name: folder.e_tag(name)} if only else folder.e_tags(f"{version:020}")
        return {int(name[:20]): e_tag for name, e_tag in found.items() if e_tag and _COMMIT.fullmatch(name)}
    try:
        state = Path(log, name).stat()
    except FileNotFoundError:
        return {}
    return {version: (state.st_ino, state.st_mtime_ns, state.st_size)}
