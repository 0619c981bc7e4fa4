"""Parses the paths in the folder of a TiCDC storage sink (ticdc-facts §6).

    metadata                                                         the checkpoint
    <schema>/meta/schema_<version>_<checksum>.json                   DDL of a database
    <schema>/<table>/meta/schema_<version>_<checksum>.json           DDL of a table, or its definition
    <schema>/<table>/<version>/[<physical table id>/][<date>/]CDC000001.json      row changes, one message per line
    …/meta/CDC.index                                                 the newest file of a folder: not read

With `use-table-id-as-path`, `<table id>` replaces `<schema>/<table>`. With `enable-table-across-nodes`, a data file is named
`CDC_<dispatcher>_000001.json`. TiCDC does not encode names in paths, so a slash in a name adds a folder. The table is
therefore taken from the content of a file and not from its path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO
from cdc_pipeline.errors import SourceError

FILE, LINE, CLOSES_MS = "ticdc.file", "ticdc.line", "ticdc.closes_ms"
"""Record headers: the file's path relative to the root, the line number (from 1), and a flag of a checkpoint that resolves
only changes before its millisecond, because rows without a commit TSO were read."""

METADATA = "metadata"
_DATA = re.compile(r"CDC(?:_(?P<dispatcher>.+)_)?(?P<index>\d{6,})\.json")
_SCHEMA = re.compile(r"schema_(?P<version>\d+)_\d{10}\.json")
_INDEX = re.compile(r"CDC(?:_.+)?\.index")
# TiCDC's name of a local file while it writes it
_UNFINISHED = re.compile(r"\.tmp(\.[^/]+)?")
_DATE = re.compile(r"\d{4}(-\d{2}){0,2}")
_MAX_DEPTH_BELOW_VERSION = 2


@dataclass(frozen=True)
class StorageFile:
    """A data file or a schema file."""

    path: str
    """Relative to the root."""
    size: int
    modified_ms: int
    is_schema: bool
    order: tuple[int, int, int, str, str, str, int] = field(compare=False)
    """The reading order, that of TiCDC's reference consumer: table version, 0 for a schema file or 1 for a data file,
    physical table id, date, folder (of a schema file: its path), dispatcher, index."""

    @property
    def folder(self) -> tuple[str, str]:
        """Folder and dispatcher, within which indexes are consecutive."""
        return self.order[4], self.order[5]

    @property
    def index(self) -> int:
        return self.order[6]


def storage_file(path: str, size: int, modified_ms: int) -> StorageFile | None:
    """The file at `path`; None if files of this name have no records. Raises SourceError for an unknown name."""
    *folders, name = path.split("/")
    if name.startswith(".") or _UNFINISHED.search(name) or path == METADATA:
        return None
    in_meta = bool(folders) and folders[-1] == "meta"
    if in_meta and _INDEX.fullmatch(name):
        return None
    if in_meta and (found := _SCHEMA.fullmatch(name)) and _is_tso(found["version"]):
        return StorageFile(path, size, modified_ms, True, (int(found["version"]), 0, 0, "", path, "", 0))
    if (found := _DATA.fullmatch(name)) and (parsed := _parse_folders(folders)) is not None:
        version, physical, date = parsed
        order = (version, 1, physical, date, "/".join(folders), found["dispatcher"] or "", int(found["index"]))
        return StorageFile(path, size, modified_ms, False, order)
    raise SourceError(f"{path!r} is not a file of a TiCDC storage sink with protocol=canal-json: {_expected(name)}")


def _parse_folders(folders: list[str]) -> tuple[int, int, str] | None:
    """Table version, physical table id (0 without one) and date ("" without one); None if no folder is a version.

    A version is a TSO of this century, which distinguishes it from ids, years and numeric table names.
    """
    for depth in range(_MAX_DEPTH_BELOW_VERSION + 1):
        rest = folders[len(folders) - depth :]
        index = len(folders) - depth - 1
        if index < 1 or not _is_tso(folders[index]):
            continue
        date = rest[-1] if rest and _DATE.fullmatch(rest[-1]) else ""
        ids = rest[:-1] if date else rest
        if len(ids) > 1 or not all(map(_is_number, ids)):
            return None
        return int(folders[index]), int(ids[0]) if ids else 0, date
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_tso(text: str) -> bool:
    return _is_number(text) and FIRST_TSO <= int(text) <= LAST_TSO


def _expected(name: str) -> str:
    if name.endswith(".csv"):
        return "protocol=csv has no before images and is not supported; set protocol=canal-json in the sink URI"
    return (
        "<schema>/<table>/<version>/[<id>/][<date>/]CDC<number>.json, meta/CDC.index, meta/schema_<version>_<checksum>.json "
        f"and {METADATA} are expected. Remove other files from the folder"
    )
