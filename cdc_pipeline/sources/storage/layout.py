"""The folder that TiCDC's storage sink writes, file by file: what a path below its root says (ticdc-facts §6).

    metadata                                                         the checkpoint
    <schema>/meta/schema_<version>_<checksum>.json                   DDL of a database
    <schema>/<table>/meta/schema_<version>_<checksum>.json           DDL of a table, or its definition
    <schema>/<table>/<version>/[<physical table id>/][<date>/]CDC000001.json      rows, a message a line
    …/meta/CDC.index                                                 the newest file of a folder: not needed

With `use-table-id-as-path` `<table id>` stands for `<schema>/<table>`, with `enable-table-across-nodes` a file is called
`CDC_<dispatcher>_000001.json`. Names stand in the path as they are, so that one with a slash makes a folder more: which
table a file is about is therefore never read from its path, only from what stands in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO
from cdc_pipeline.errors import SourceError

FILE, LINE, CLOSES_MS = "ticdc.file", "ticdc.line", "ticdc.closes_ms"
"""Headers of a record: the path of its file below the root, its line there (from 1), and the mark of a checkpoint that
closes only the ms before its own."""

METADATA = "metadata"
_DATA = re.compile(r"CDC(?:_(?P<dispatcher>.+)_)?(?P<index>\d{6,})\.json")
_SCHEMA = re.compile(r"schema_(?P<version>\d+)_\d{10}\.json")
_INDEX = re.compile(r"CDC(?:_.+)?\.index")
# what a local folder has while TiCDC writes a file, before it gives it its name
_UNFINISHED = re.compile(r"\.tmp(\.[^/]+)?")
_DATE = re.compile(r"\d{4}(-\d{2}){0,2}")
_MOST_BELOW_VERSION = 2


@dataclass(frozen=True)
class StorageFile:
    """A file that has records. `path` is below the root; `order` is that of the reference consumer: table version, the
    schema file before the rows, physical table, date, table, index."""

    path: str
    size: int
    modified_ms: int
    is_schema: bool
    order: tuple[int, int, int, str, str, str, int] = field(compare=False)

    @property
    def folder(self) -> tuple[str, str]:
        """Where its index counts: the folder, and the dispatcher that wrote it."""
        return self.order[4], self.order[5]

    @property
    def index(self) -> int:
        return self.order[6]


def storage_file(path: str, size: int, modified_ms: int) -> StorageFile | None:
    """The file at `path`; None for one that has no records by its name. Raises SourceError for one that is of no kind."""
    *folders, name = path.split("/")
    if name.startswith(".") or _UNFINISHED.search(name) or path == METADATA:
        return None
    in_meta = bool(folders) and folders[-1] == "meta"
    if in_meta and _INDEX.fullmatch(name):
        return None
    if in_meta and (found := _SCHEMA.fullmatch(name)) and _is_tso(found["version"]):
        return StorageFile(path, size, modified_ms, True, (int(found["version"]), 0, 0, "", path, "", 0))
    if (found := _DATA.fullmatch(name)) and (place := _place(folders)) is not None:
        version, physical, date = place
        order = (version, 1, physical, date, "/".join(folders), found["dispatcher"] or "", int(found["index"]))
        return StorageFile(path, size, modified_ms, False, order)
    raise SourceError(f"{path!r} is no file of TiCDC's storage sink with protocol=canal-json: {_expected(name)}")


def _place(folders: list[str]) -> tuple[int, int, str] | None:
    """Table version, physical table id and date of a data file's folders; None where none is a version.

    The version is told from ids, years and tables that are called by a number by being a TSO of this century.
    """
    for below in range(_MOST_BELOW_VERSION + 1):
        rest = folders[len(folders) - below :]
        at = len(folders) - below - 1
        if at < 1 or not _is_tso(folders[at]):
            continue
        date = rest[-1] if rest and _DATE.fullmatch(rest[-1]) else ""
        ids = rest[:-1] if date else rest
        if len(ids) > 1 or not all(map(_is_number, ids)):
            return None
        return int(folders[at]), int(ids[0]) if ids else 0, date
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_tso(text: str) -> bool:
    return _is_number(text) and FIRST_TSO <= int(text) <= LAST_TSO


def _expected(name: str) -> str:
    if name.endswith(".csv"):
        return "files of protocol=csv have no before images and are not read; set protocol=canal-json in the sink URI"
    return (
        "<schema>/<table>/<version>/[<id>/][<date>/]CDC<number>.json, meta/CDC.index, meta/schema_<version>_<checksum>.json "
        f"and {METADATA} are expected. Take other files out of it"
    )
