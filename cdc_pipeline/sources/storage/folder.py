"""The sink's folder, wherever it is: its files with their sizes, and the checkpoint. No row is read here.

A local folder is listed by Python; any other URI by Hadoop, whose file systems and credentials Spark reads with too; and
where no Spark is running (a sensor's tick) by pyarrow.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from cdc_pipeline.contracts.canal_json import FIRST_TSO, LAST_TSO
from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.lake.paths import LakePaths, first_line, hadoop_path
from cdc_pipeline.sources.source import digest
from cdc_pipeline.sources.storage.layout import METADATA, StorageFile, storage_file
from cdc_pipeline.spark.jvm import jvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import SparkSession

_KEY = "checkpoint-ts"


@dataclass(frozen=True)
class Checkpoint:
    """What the file `metadata` says: all changes up to the TSO are in files that were written before it."""

    tso: int
    text: bytes
    modified_ms: int


@dataclass(frozen=True)
class Listing:
    """The checkpoint, and the files that were there after it was read, in the order in which they are read."""

    checkpoint: Checkpoint | None
    files: tuple[StorageFile, ...]

    @property
    def digest(self) -> str:
        """Equal for a folder in which nothing has come, grown, or moved on."""
        tso = "" if self.checkpoint is None else str(self.checkpoint.tso)
        return digest(tso, *(f"{file.path} {file.size}" for file in self.files))


class Folder(Protocol):
    """A folder to be listed. Each raises SourceError where there is none."""

    root: str

    def files(self) -> Iterable[tuple[str, int, int]]:
        """Path below the root, size and time (ms) of every file in it and in the folders below."""

    def metadata(self) -> tuple[bytes, int] | None:
        """The bytes of `metadata` and its time; None where it is not there."""


def listed(folder: Folder) -> Listing:
    """What is in the folder now. The checkpoint is read first: a file that comes meanwhile is then one too many, which waits
    above the watermark, never one too few."""
    checkpoint = _checkpoint(folder)
    found = (storage_file(*file) for file in folder.files())
    return Listing(checkpoint, tuple(sorted((file for file in found if file), key=lambda file: file.order)))


def _checkpoint(folder: Folder) -> Checkpoint | None:
    found = folder.metadata()
    if found is None or not found[0].rstrip().endswith(b"}"):
        return None  # not there yet, or just being written
    text, modified_ms = found
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    tso = content.get(_KEY) if isinstance(content, dict) else None
    if not isinstance(tso, int) or not FIRST_TSO <= tso <= LAST_TSO:
        raise SourceError(
            f"{METADATA} in {folder.root!r} is {text[:100]!r}: TiCDC's checkpoint is expected, such as "
            f'{{"{_KEY}":{FIRST_TSO}}}. Is this the folder of another storage sink?'
        )
    return Checkpoint(tso, text, modified_ms)


def is_local(path: str) -> bool:
    return LakePaths(path, "").is_local


def local_or_hadoop(spark: SparkSession, path: str) -> Folder:
    return LocalFolder(path) if is_local(path) else HadoopFolder(spark, path)


class LocalFolder:
    """A folder of this machine, or one that is mounted."""

    def __init__(self, path: str) -> None:
        self.root = os.path.abspath(path)  # noqa: PTH100  # a symbolic link is the user's word for the place
        place = Path(self.root)
        if not place.exists():
            raise SourceError(f"the storage folder {path!r} does not exist")
        if not place.is_dir():
            raise SourceError(f"{path!r} is a file; the folder of a TiCDC storage sink is expected")

    def files(self) -> Iterator[tuple[str, int, int]]:
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                entries = list(os.scandir(f"{self.root}/{folder}"))
            except FileNotFoundError:
                continue  # TiCDC removes folders that have become empty
            except OSError as error:
                raise SourceError(f"{error.filename!r} cannot be listed: {error.strerror}") from error
            for entry in entries:
                path = f"{folder}{entry.name}"
                if entry.is_dir():
                    waiting.append(f"{path}/")
                    continue
                try:
                    stat = entry.stat()
                except FileNotFoundError:
                    continue  # expired, or renamed by its writer
                yield path, stat.st_size, stat.st_mtime_ns // 1_000_000

    def metadata(self) -> tuple[bytes, int] | None:
        path = Path(self.root) / METADATA
        try:
            return path.read_bytes(), path.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return None


class HadoopFolder:
    """Any place that Spark can read."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        try:
            self._files, place = hadoop_path(spark, path.rstrip("/"))
            self._place = self._files.makeQualified(place)
            there = self._files.exists(self._place) and self._files.getFileStatus(self._place).isDirectory()
        except Exception as error:
            raise TransientError(f"the storage folder {path!r} cannot be read: {first_line(error)}") from error
        self.root = str(self._place.toString())
        if not there:
            raise SourceError(f"the storage folder {path!r} does not exist")

    def files(self) -> Iterator[tuple[str, int, int]]:
        try:
            found = self._files.listFiles(self._place, True)
            while found.hasNext():
                status = found.next()
                path = str(status.getPath().toString())
                yield path[len(self.root) + 1 :], int(status.getLen()), int(status.getModificationTime())
        except Py4JJavaError as error:
            raise TransientError(f"the storage folder {self.root!r} cannot be listed: {first_line(error)}") from error

    def metadata(self) -> tuple[bytes, int] | None:
        path = jvm(self._spark).org.apache.hadoop.fs.Path(self._place, METADATA)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            text = bytes(jvm(self._spark).org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
        return text, int(self._files.getFileStatus(path).getModificationTime())


class ArrowFolder:
    """A place that pyarrow can list: file, s3, gs, hdfs and abfs URIs, with the credentials that the environment gives it.

    Raises TransientError where pyarrow cannot.
    """

    def __init__(self, path: str) -> None:
        from pyarrow import fs  # type: ignore[import-untyped]

        self.root = path
        try:
            self._files, place = fs.FileSystem.from_uri(re.sub(r"^s3[an]:", "s3:", path.rstrip("/")))
        except Exception as error:
            raise self._cannot(error) from error
        self._place = place

    def files(self) -> Iterator[tuple[str, int, int]]:
        from pyarrow import fs

        try:
            found = self._files.get_file_info(fs.FileSelector(self._place, recursive=True))
        except FileNotFoundError as error:
            raise SourceError(f"the storage folder {self.root!r} does not exist") from error
        except Exception as error:
            raise self._cannot(error) from error
        for info in found:
            if info.is_file:
                yield info.path[len(self._place) :].lstrip("/"), info.size, _ms(info)

    def metadata(self) -> tuple[bytes, int] | None:
        path = f"{self._place}/{METADATA}"
        try:
            info = self._files.get_file_info(path)
            if not info.is_file:
                return None
            with self._files.open_input_file(path) as stream:
                return stream.readall(), _ms(info)
        except Exception as error:
            raise self._cannot(error) from error

    def _cannot(self, error: Exception) -> TransientError:
        return TransientError(f"the storage folder {self.root!r} cannot be listed by pyarrow: {first_line(error)}")


def _ms(info: Any) -> int:
    return 0 if info.mtime_ns is None else int(info.mtime_ns) // 1_000_000
