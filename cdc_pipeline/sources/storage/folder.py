"""Lists the sink's folder: the checkpoint, and files with their sizes. Reads no rows.

pyarrow lists a local folder, and in a sensor, where no Spark is running, any other. In a run, Hadoop lists other URIs, with
the file systems and credentials of Spark.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO
from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.paths import first_line, hadoop_path, is_local_path
from cdc_pipeline.lake.store import open_arrow
from cdc_pipeline.sources.source import digest
from cdc_pipeline.sources.storage.layout import METADATA, StorageFile, storage_file
from cdc_pipeline.spark.jvm import jvm

_KEY = "checkpoint-ts"
_REFUSED = re.compile(
    r"(?i)permission denied|not permitted|AccessControlException|access.?denied|forbidden|HTTP status 40[13]"
    r"|No FileSystem for scheme|unrecognized filesystem|ClassNotFoundException"
)
"""Errors of a file system for which a retry cannot succeed."""


@dataclass(frozen=True)
class Checkpoint:
    """The file `metadata`."""

    tso: int
    """All changes up to this TSO are in files that were written earlier."""
    text: bytes
    """Content of the file."""
    modified_ms: int


@dataclass(frozen=True)
class Listing:
    """The checkpoint, and the files listed after it was read."""

    checkpoint: Checkpoint | None
    files: tuple[StorageFile, ...]
    """In the order in which they are read."""

    @property
    def digest(self) -> str:
        """A hash of the checkpoint and of the files' paths and sizes: equal while the folder is unchanged."""
        tso = "" if self.checkpoint is None else str(self.checkpoint.tso)
        return digest(tso, *(f"{file.path} {file.size}" for file in self.files))


class Folder(Protocol):
    """A folder. Implementations raise SourceError if it does not exist, and `read_error` if it cannot be read."""

    root: str

    def files(self) -> Iterable[tuple[str, int, int]]:
        """Path relative to the root, size in bytes and modification time in ms of each file, recursively."""

    def metadata(self) -> tuple[bytes, int] | None:
        """Content and modification time (ms) of the file `metadata`; None if it does not exist."""


def list_folder(folder: Folder) -> Listing:
    """Lists the folder. Raises SourceError if a file does not belong to a storage sink.

    Reads the checkpoint before the files, so that no file with changes up to the checkpoint is missed. Changes of a file
    that appears in between may be above the watermark, where they stay pending.
    """
    checkpoint = _checkpoint(folder)
    found = (storage_file(*file) for file in folder.files())
    return Listing(checkpoint, tuple(sorted((file for file in found if file), key=lambda file: file.order)))


def _checkpoint(folder: Folder) -> Checkpoint | None:
    found = folder.metadata()
    if found is None or not found[0].rstrip().endswith(b"}"):
        return None  # does not exist, or is being written
    text, modified_ms = found
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    tso = content.get(_KEY) if isinstance(content, dict) else None
    if not isinstance(tso, int) or not FIRST_TSO <= tso <= LAST_TSO:
        raise SourceError(
            f"{METADATA} in {folder.root!r} is {text[:100]!r}. A checkpoint of TiCDC is expected, for example "
            f'{{"{_KEY}":{FIRST_TSO}}}. Check that this is the folder of a TiCDC storage sink'
        )
    return Checkpoint(tso, text, modified_ms)


def local_or_hadoop(spark: SparkSession, path: str) -> Folder:
    return ArrowFolder(path) if is_local_path(path) else HadoopFolder(spark, path)


def read_error(folder: str, error: BaseException) -> SourceError | TransientError:
    """The error to raise if the file system cannot list or read the folder: terminal if it refuses access."""
    text = f"the storage folder {folder!r} cannot be read: {first_line(error)}"
    if isinstance(error, PermissionError) or any(map(_REFUSED.search, (text, str(error)))):
        return SourceError(
            f"{text}. Check the path, and that the user of the pipeline may list the folder and read its files"
        )
    return TransientError(f"{text}. Check that its file system is available; the next run continues")


@contextlib.contextmanager
def named_errors(folder: str) -> Iterator[None]:
    """Converts errors of a file system, also those of Spark's tasks, by `read_error`."""
    try:
        yield
    except (OSError, UnicodeError, pa.ArrowException, Py4JJavaError, PySparkException) as error:
        raise read_error(folder, error) from error


class HadoopFolder:
    """A folder at any URI that Spark can read."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        with named_errors(path):
            self._files, unqualified = hadoop_path(spark, path.rstrip("/"))
            self._root = self._files.makeQualified(unqualified)
            exists = self._files.exists(self._root) and self._files.getFileStatus(self._root).isDirectory()
        self.root = str(self._root.toString())
        if not exists:
            raise SourceError(f"the storage folder {path!r} does not exist")

    def files(self) -> Iterator[tuple[str, int, int]]:
        with named_errors(self.root):
            found = self._files.listFiles(self._root, True)
            while found.hasNext():
                status = found.next()
                path = str(status.getPath().toString())
                yield path[len(self.root) + 1 :], int(status.getLen()), int(status.getModificationTime())

    def metadata(self) -> tuple[bytes, int] | None:
        path = jvm(self._spark).org.apache.hadoop.fs.Path(self._root, METADATA)
        with named_errors(self.root):
            if not self._files.exists(path):
                return None
            with contextlib.closing(self._files.open(path)) as stream:
                text = bytes(jvm(self._spark).org.apache.commons.io.IOUtils.toByteArray(stream))
            return text, int(self._files.getFileStatus(path).getModificationTime())


class ArrowFolder:
    """A local or mounted folder, or one at a file, s3, gs, hdfs or abfs URI with credentials from the environment."""

    def __init__(self, path: str) -> None:
        self._is_local = is_local_path(path)
        self.root = os.path.abspath(path) if self._is_local else path  # noqa: PTH100  # keeps symbolic links as written
        if self._is_local and not Path(self.root).is_dir():
            if Path(self.root).exists():
                raise SourceError(f"{path!r} is a file; the folder of a TiCDC storage sink is expected")
            raise SourceError(f"the storage folder {path!r} does not exist")
        with named_errors(path):
            self._files, self._root = open_arrow(self.root.rstrip("/"))

    def files(self) -> Iterator[tuple[str, int, int]]:
        with named_errors(self.root):
            try:
                # TiCDC removes empty local folders, also while they are listed
                chosen = fs.FileSelector(self._root, recursive=True, allow_not_found=self._is_local)
                found = self._files.get_file_info(chosen)
            except FileNotFoundError as error:
                raise SourceError(f"the storage folder {self.root!r} does not exist") from error
        for info in found:
            if info.is_file:
                yield info.path[len(self._root) :].lstrip("/"), info.size, modified_ms(info)

    def metadata(self) -> tuple[bytes, int] | None:
        path = "/".join(filter(None, (self._root, METADATA)))
        with named_errors(self.root):
            info = self._files.get_file_info(path)
            # in a store, the name may be that of a database
            if not info.is_file and not (self._is_local and info.type == fs.FileType.Directory):
                return None
            with self._files.open_input_file(path) as stream:
                return stream.readall(), modified_ms(info)


def modified_ms(info: fs.FileInfo) -> int:
    """When the file was written, in ms since 1970; 0 if the store does not say it."""
    return 0 if info.mtime_ns is None else int(info.mtime_ns) // 1_000_000
