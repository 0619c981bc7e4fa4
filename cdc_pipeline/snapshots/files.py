"""Files of an export: listed and read through Arrow's file systems, plain, gzip or zstd, in bounded memory."""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import fs

from cdc_pipeline.errors import SourceError
from cdc_pipeline.lake.store import open_arrow
from cdc_pipeline.sources.storage.folder import modified_ms, read_error

_DAMAGED = re.compile("(?:ZSTD decompress|zlib inflate) failed|Truncated compressed stream")
_COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
BLOCK_BYTES = 1 << 20
"""Bytes that are read at a time."""


@dataclass(frozen=True)
class DataFile:
    """A file with rows of one table, or a part of it that can be read on its own."""

    path: str
    """Relative to the export."""
    size: int
    """Bytes of the whole file as stored."""
    start: int = 0
    """The first byte of the part, in the decompressed text."""
    end: int | None = None
    """Exclusive, in the decompressed text. None: to the end."""
    first_row: int = 1
    """The number of its first row. The rows of a file, or of a table in a dump file, are numbered from 1."""
    rows: int | None = None
    """The number of its rows, if it is known."""
    columns: tuple[str, ...] = ()
    """The columns of a part of a CSV file, whose header is in the first part."""

    def error(self, found: str, row: int | None = None) -> SourceError:
        return SourceError(f"{self.path}{'' if row is None else f', row {row:,}'}: {found}")


class ExportFiles:
    """The files of an export: those directly in a folder, or one file. Local, s3a or another URI that Arrow can read.

    Raises SourceError if `path` does not exist, and `read_error` if it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")
        with self._named_errors():
            parent, _, name = self.path.rpartition("/")
            if not name or parent.endswith(("/", ":")):
                parent, name = self.path, ""  # the root of a bucket
            parent = parent or ("." if "/" not in self.path else "/")
            self._files, root = open_arrow(parent)
            self._folder = "/".join(filter(None, (root, name)))
            info = self._files.get_file_info(self._folder)
        if info.type == fs.FileType.NotFound:
            raise SourceError(f"the export {path!r} does not exist")
        self.is_folder = info.type == fs.FileType.Directory
        infos = self._list() if self.is_folder else [info]
        self.sizes: dict[str, int] = {info.base_name: info.size for info in infos}
        """Name → bytes, in the order of the names."""
        self.modified_ms = max(map(modified_ms, infos), default=0)
        """When the newest file was written, in ms since 1970; 0 if the store does not say it."""
        if not self.is_folder:
            self._folder = self._folder[: -len(name)].rstrip("/")

    def _list(self) -> list[Any]:
        """The files of the folder, sorted by name."""
        with self._named_errors():
            found = self._files.get_file_info(fs.FileSelector(self._folder))
        return sorted((info for info in found if info.is_file), key=lambda info: info.path)

    def read(self, name: str) -> bytes:
        """The whole text of a small file, decompressed."""
        with self.open(name) as stream:
            return b"".join(iter(lambda: stream.read(BLOCK_BYTES), b""))

    @contextlib.contextmanager
    def open(self, name: str, start: int = 0, end: int | None = None) -> Iterator[TextStream]:
        """The decompressed text of a file from byte `start` to byte `end`."""
        with self._named_errors(name), self._files.open_input_file("/".join(filter(None, (self._folder, name)))) as raw:
            yield TextStream(raw, name, start, end)

    @contextlib.contextmanager
    def _named_errors(self, name: str = "") -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if _DAMAGED.search(str(error)):
                raise SourceError(f"{name}: damaged or cut short: {error}. Copy the export again") from error
            if isinstance(error, FileNotFoundError):
                raise SourceError(f"{self.path}: the file {name!r} is missing. Copy the export again") from error
            raise read_error("/".join(filter(None, (self.path, name))), error) from error


class TextStream:
    """The decompressed text of an open file, read forward."""

    def __init__(self, raw: Any, name: str, start: int, end: int | None) -> None:
        self.name = name
        self._left = None if end is None else end - start
        self._hashed = _Hashed(raw)
        self._text: Any = io.BufferedReader(self._hashed, BLOCK_BYTES)
        if compression := _COMPRESSIONS.get(PurePath(name).suffix):
            self._text = pa.CompressedInputStream(pa.PythonFile(self._text, mode="r"), compression)
        elif start:
            raw.seek(start)
            start = 0
        while start > 0 and (skipped := self._text.read(min(start, BLOCK_BYTES))):
            start -= len(skipped)

    def read(self, size: int) -> bytes:
        """At most `size` bytes; empty at the end."""
        wanted = size if self._left is None else min(size, self._left)
        text = bytes(self._text.read(wanted)) if wanted else b""
        if self._left is not None:
            self._left -= len(text)
        return text

    @property
    def sha256(self) -> str:
        """The SHA-256 of the bytes of the file as stored that have been read."""
        return self._hashed.sha256.hexdigest()


class _Hashed(io.RawIOBase):
    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.sha256 = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._raw.read(len(buffer))
        buffer[: len(content)] = content
        self.sha256.update(content)
        return len(content)
