"""Opens an export: its tables with their files, its position, and the rows of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args
from urllib.parse import unquote as percent_decoded

from cdc_pipeline.errors import SourceError
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.cell_texts import OF_COLUMN, UTF8
from cdc_pipeline.snapshots.csv_files import csv_batches, outfile_batches, read_header
from cdc_pipeline.snapshots.definitions import ExportedTable, created_table, is_sequence
from cdc_pipeline.snapshots.dump_file import DumpFile, SessionSettings
from cdc_pipeline.snapshots.files import DataFile, ExportFiles
from cdc_pipeline.snapshots.insert_statements import insert_batches
from cdc_pipeline.snapshots.position import ExportPosition, ExportTimes, read_metadata
from cdc_pipeline.snapshots.row_text import Text
from cdc_pipeline.snapshots.table_rows import RowBatch

ExportType = Literal["dumpling", "mydumper", "mysqldump"]
PART_BYTES = 128 << 20
# the values of a batch fit into the cache of a core
_PARSED_BYTES = 128 << 10
_ROWS_PER_BATCH = 512
_KNOWN = re.compile(r"(?P<stem>.+)\.(?P<kind>sql|csv|txt)(?P<packed>\.gz|\.zst)?", re.DOTALL)
_UNKNOWN = re.compile(r".+\.(?:sql|csv|txt|dat|parquet|xml)(?:\.\w+)?", re.DOTALL)
_NO_TABLE = re.compile(r"-schema-(?:create|view|triggers|post|sequence)\Z|-placement-policy-create\Z")
_CREATE = re.compile(r"^CREATE\s.*", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Export:
    files: ExportFiles
    tables: tuple[ExportedTable, ...]
    """In the order of their names, without views and sequences."""
    position: ExportPosition
    time_zone: str | None
    """In which TIMESTAMPs are printed; None: in that of the server."""
    hashes: Mapping[str, str]
    """File → SHA-256, of files that were read whole to find their tables."""
    times: ExportTimes | None = None
    """When it ran, if the user says it."""


def open_export(kind: ExportType, path: str) -> Export:
    """Finds the tables of an export. A file of mysqldump is read whole, folders only by their names and definitions.

    Raises SourceError for an export that is cut short, for rows without a definition, for files of unknown formats and for
    an unknown `kind`; TransientError if the store does not answer.
    """
    files = ExportFiles(path)
    if kind not in get_args(ExportType):
        raise SourceError(
            f"the type of the export {path!r} is {kind!r}. One of {', '.join(get_args(ExportType))} is expected"
        )
    if kind == "mysqldump":
        return _open_dumps(files)
    if not files.is_folder:
        raise SourceError(f"the export {path!r} is a file. The folder that {kind} has written is expected")
    return _open_folder(files, is_encoded=kind == "dumpling")


def _open_folder(files: ExportFiles, is_encoded: bool) -> Export:
    """A folder of Dumpling, which percent-encodes names and writes UTF-8, or of mydumper, which does neither."""
    if "metadata" not in files.sizes:
        found = "metadata.partial in place of" if "metadata.partial" in files.sizes else "no file"
        raise SourceError(f"{files.path}: {found} metadata, which is written last: the export was cut short. Repeat it")
    position = read_metadata(files.read("metadata").decode(errors="replace"), f"{files.path}/metadata")
    stems, data = _split_names(files)
    settings = SessionSettings()
    views = {
        stem.removesuffix("-schema-view")
        for name in files.sizes
        if (stem := _stem(name) or "").endswith("-schema-view")
    }
    tables: dict[str, ExportedTable | None] = {}
    """By the beginning of the names of their files. None: a view or sequence."""
    for stem, name in stems.items():
        text = _utf8(files, name)
        settings.read(text)
        create = _CREATE.search(text)
        if create is None and re.search(r"^(?:INSERT|REPLACE)\s", text, re.MULTILINE):
            data.append(name)  # of the table `…-schema`
            continue
        if create is None or not create[0].rstrip().endswith(";"):
            raise SourceError(f"{name}: CREATE TABLE … ; is expected: the file is cut short. Copy it again")
        table = created_table(create[0])
        if table is None or stem in views or is_sequence(create[0]):
            tables[stem] = None
            continue
        found_name = _encoded_name(stem) if is_encoded else TableName(stem.removesuffix(f".{table}"), table)
        if found_name.table != table or (not is_encoded and not stem.endswith(f".{table}")):
            raise SourceError(f"{name}: defines {table!r}, which is not the table of its name")
        quotings = (Quoting.MYSQL, Quoting.TIDB) if position.tso is not None else (Quoting.MYSQL,)
        charset = UTF8 if is_encoded else settings.charset
        tables[stem] = ExportedTable(found_name, create[0].rstrip().rstrip(";"), name, charset, quotings=quotings)
    return Export(files, _with_files(files, tables, data), position, settings.time_zone, {})


def _split_names(files: ExportFiles) -> tuple[dict[str, str], list[str]]:
    """The files of definitions by their table's stem, and those with rows. Raises SourceError for other formats."""
    stems, data = {}, []
    for name in files.sizes:
        stem = _stem(name)
        if stem is None:
            if _UNKNOWN.fullmatch(name):
                raise SourceError(f"{name}: a format that is not read. SQL or CSV is expected, plain, .gz or .zst")
        elif stem.endswith("-schema"):
            if stem.removesuffix("-schema") in stems:
                raise SourceError(f"{name}: the definition is in the folder twice. One export a folder is expected")
            stems[stem.removesuffix("-schema")] = name
        elif not _NO_TABLE.search(stem):
            data.append(name)
    return stems, data


def _stem(name: str) -> str | None:
    found = _KNOWN.fullmatch(name)
    return None if found is None else found["stem"]


def _utf8(files: ExportFiles, name: str) -> str:
    try:
        return files.read(name).decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"{name}: the definition is not UTF-8: {error}") from error


def _encoded_name(stem: str) -> TableName:
    database, _, table = stem.partition(".")
    return TableName(percent_decoded(database), percent_decoded(table))


def _with_files(
    files: ExportFiles, tables: Mapping[str, ExportedTable | None], data: list[str]
) -> tuple[ExportedTable, ...]:
    """The tables with their files. Raises SourceError for rows without a definition."""
    chunks: dict[str, list[tuple[list[int], DataFile]]] = {stem: [] for stem in tables}
    for name in data:
        stem, numbers = _stem(name) or "", list[int]()
        while stem not in tables:
            stem, dot, number = stem.rpartition(".")
            if not dot or not number.isdigit():
                raise SourceError(
                    f"{name}: rows without a definition: the file …-schema.sql of the table is missing. Copy it again"
                )
            numbers.insert(0, int(number))
        if any(numbers == others for others, _ in chunks[stem]):
            raise SourceError(f"{name}: these rows are in the folder twice. One export a folder is expected")
        chunks[stem].append((numbers, DataFile(name, files.sizes[name])))
    found = [
        replace(table, files=tuple(file for _, file in sorted(chunks[stem], key=lambda chunk: chunk[0])))
        for stem, table in tables.items()
        if table is not None
    ]
    return tuple(sorted(found, key=lambda table: table.name))


def _open_dumps(files: ExportFiles) -> Export:
    """A file of mysqldump, or a folder: of such files, or of definitions and .txt that --tab has written."""
    outfiles = {
        _stem(name): name for name in files.sizes if name.removesuffix(".gz").removesuffix(".zst").endswith(".txt")
    }
    tables: dict[TableName, ExportedTable] = {}
    hashes: dict[str, str] = {}
    said: set[tuple[ExportPosition, str | None]] = set()
    position, time_zone, has_outfiles = ExportPosition(), None, bool(outfiles)
    for name in [
        name for name in files.sizes if not files.is_folder or (_stem(name) and name not in outfiles.values())
    ]:
        dump = DumpFile(DataFile(name, files.sizes[name]), PART_BYTES)
        with files.open(name) as stream:
            dump.read(Text(stream, dump.file))
            hashes[name] = stream.sha256
        position, time_zone = dump.position, dump.settings.time_zone
        said.add((replace(position, finished=None), time_zone))
        for table in dump.tables.values():
            if table.name in tables:
                raise SourceError(
                    f"{name}: {table.name} is in {tables[table.name].place}, too. Each table is expected once"
                )
            tables[table.name] = (
                table if not has_outfiles else _with_outfile(files, table, outfiles.pop(_stem(name), None))
            )
    if outfiles:
        raise SourceError(
            f"{min(outfiles.values())}: rows without a definition: its .sql is missing. Copy the export again"
        )
    if len(said) > 1:
        raise SourceError(f"{files.path}: files of different positions or time zones. Files of one export are expected")
    return Export(files, tuple(sorted(tables.values(), key=lambda table: table.name)), position, time_zone, hashes)


def _with_outfile(files: ExportFiles, table: ExportedTable, name: str | None) -> ExportedTable:
    """A table of --tab. Its rows are in the character set of each column, if no other was chosen."""
    if name is None:
        raise SourceError(
            f"{table.place}: the file .txt with the rows of {table.name} is missing. Copy the export again"
        )
    charset = OF_COLUMN if table.charset == UTF8 else table.charset
    return replace(table, charset=charset, files=(*table.files, DataFile(name, files.sizes[name])))


class FileReading:
    """Iterates over the rows of a file, or of a part of it. Then `rows` and `sha256` are known.

    Raises SourceError at the first row that is damaged, and at the end if the part has another number of rows than expected.
    """

    def __init__(
        self,
        files: ExportFiles,
        table: ExportedTable,
        file: DataFile,
        *,
        block: int = _PARSED_BYTES,
        rows_per_batch: int = _ROWS_PER_BATCH,
    ) -> None:
        self._files, self._table, self._file = files, table, file
        self._block, self._rows_per_batch = block, rows_per_batch
        self.rows = 0
        self.sha256: str | None = None
        """Of the file as stored; None for a part."""

    def __iter__(self) -> Iterator[RowBatch]:
        file = self._file
        with self._files.open(file.path, file.start, file.end) as stream:
            text = Text(stream, file, self._block)
            text.fill()
            for batch in self._batches(text):
                self.rows += batch.texts.num_rows
                yield batch
            self.sha256 = stream.sha256 if file.start == 0 and file.end is None else None
        if file.rows is not None and self.rows != file.rows:
            raise file.error(
                f"{self.rows:,} rows from row {file.first_row:,}, where {file.rows:,} were counted: it has changed"
            )

    def _batches(self, text: Text) -> Iterator[RowBatch]:
        path, cells = self._file.path.removesuffix(".gz").removesuffix(".zst"), self._table.cells
        if path.endswith(".csv"):
            return csv_batches(text, cells(self._file.columns or read_header(text)), self._rows_per_batch)
        if path.endswith(".txt"):
            return outfile_batches(text, cells(()), self._rows_per_batch)
        return insert_batches(text, self._table.name.table, cells, self._rows_per_batch)
