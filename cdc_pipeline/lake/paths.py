"""Where a pipeline's tables are: names to paths, and the check that the place can be written.

The layout is the public contract of DESIGN §3: `<lake>/<pipeline>/raw_topic_snapshot`, …, `mirror/<database>/<table>`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.spark.jvm import jvm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from cdc_pipeline.mysql.model.table import TableName

# What a file name on Linux, macOS, Windows or an object store, or a Hadoop path or glob, cannot hold as it is.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%/\\:*?\"<>|{}\[\]^#]")
# Bytes: 255 are the most for a file's name on common systems, of which a dropped mirror's folder uses some more. The 64
# characters of a MySQL identifier are 192 at most, encoded or not.
_LONGEST_SEGMENT = 200
_KEPT_OF_LONG = 160
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")


def path_segment(identifier: str) -> str:
    """The identifier as one path segment: unsafe characters percent-encoded as UTF-8, all others kept.

    Different identifiers give different segments; `.`, `..`, the empty name and names that begin with a dot or an
    underscore (which Hadoop takes for hidden files) are encoded too. What is longer than any name of MySQL's, and than
    file systems take, ends in a hash of the whole.
    """
    if not identifier:
        return "%"
    encoded = _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found.group().encode()), identifier)
    if encoded[0] in "._":
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    whole = encoded.encode(errors="surrogatepass")
    if len(whole) <= _LONGEST_SEGMENT:
        return encoded
    # a tilde follows no other per cent sign; one that is cut off from its digits would be followed by it too
    begin = whole[:_KEPT_OF_LONG].decode(errors="ignore").rsplit("%", 1)
    kept = "%".join(begin) if len(begin[-1]) >= 2 or len(begin) == 1 else begin[0]
    return f"{kept}%~{hashlib.sha256(identifier.encode(errors='surrogatepass')).hexdigest()[:32]}"


OWN_TABLES = (
    *(
        "raw_topic_snapshot",
        "claims",
        "change_log",
        "watermarks",
        "dead_letters",
        "ddl_history",
        "dead_letter_releases",
    ),
    *("batches", "consistent_cuts", "cut_plans", "cut_failures"),
)
"""The tables of a pipeline beside its mirrors."""


@dataclass(frozen=True)
class LakePaths:
    """The paths of one pipeline. `root` is a folder or any Hadoop URI. `borrowed` are tables that stand elsewhere, by name:
    a rebuild and a read between two cuts work on the real raw snapshot, and write to a place of their own."""

    root: str
    pipeline: str
    borrowed: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> str:
        return f"{self._absolute_root}/{path_segment(self.pipeline)}"

    @property
    def is_local(self) -> bool:
        return not _REMOTE.match(self.root)

    @property
    def _absolute_root(self) -> str:
        # not resolve(): a symbolic link is the user's word for the place
        return os.path.abspath(self.root) if self.is_local else self.root.rstrip("/")  # noqa: PTH100

    def table(self, name: str) -> str:
        """A table of the pipeline itself: raw_topic_snapshot, change_log, batches, …"""
        return self.borrowed.get(name, f"{self.home}/{name}")

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The paths of `OWN_TABLES`."""
        return tuple(map(self.table, OWN_TABLES))

    def writer(self, table: str) -> str:
        """The application id of those commits to the table that carry its progress: the batch or the cut, as version."""
        return f"cdc:{self.pipeline}:{table}"

    def mirror(self, name: TableName) -> str:
        return f"{self.home}/mirror/{path_segment(name.database)}/{path_segment(name.table)}"

    @property
    def moves(self) -> str:
        """Where it is written which folders are on their way (`folder_moves`)."""
        return f"{self.home}/.moves"

    def dropped(self, name: TableName, mark: str) -> str:
        """Where a dropped mirror is kept, out of the way of a table made anew under the same name."""
        return f"{self.home}/dropped/{path_segment(name.database)}/{path_segment(name.table)}@{path_segment(mark)}"

    def require_writable(self, spark: SparkSession) -> None:
        """Raises LakeError, before anything is written, where the pipeline's folder cannot be made or written."""
        if self.is_local:
            self._require_writable_folder()
            return
        try:
            filesystem, home = hadoop_path(spark, self.home)
            filesystem.mkdirs(home)
        except Exception as error:
            raise LakeError(f"the lake {self.root!r} cannot be written: {first_line(error)}") from error

    def _require_writable_folder(self) -> None:
        probe = Path(self.home) / f".writable-{uuid.uuid4().hex}"
        with self.without_trace():
            try:
                probe.parent.mkdir(parents=True, exist_ok=True)
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise self.cannot_be_written(error) from error

    @contextlib.contextmanager
    def without_trace(self) -> Iterator[None]:
        """Folders that are made for the pipeline meanwhile, and in which nothing is left, are gone at the end: a run that
        fails before it has written anything leaves the lake as it was. For local lakes."""
        home = Path(self.home)
        # os.path: to pathlib a name that is too long is an error, not a folder that is missing
        missing = [folder for folder in (home, *home.parents) if not os.path.exists(folder)]  # noqa: PTH110
        try:
            yield
        finally:
            for folder in missing:
                with contextlib.suppress(OSError):  # not made at all, or others have written there by now
                    folder.rmdir()

    def cannot_be_written(self, error: OSError) -> LakeError:
        reason = error.strerror or str(error)
        return LakeError(f"the lake {self.root!r} cannot be written: {reason} ({error.filename})")


def no_pattern(path: str) -> str:
    """The path as Spark's readers take it for this one file: a bracket or a star in a name would make it a pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """(file system, path) as Hadoop has them, for renames and existence checks on any kind of lake."""
    target = jvm(spark).org.apache.hadoop.fs.Path(path)
    return target.getFileSystem(spark._jsc.hadoopConfiguration()), target


def remove_folder(spark: SparkSession, path: str) -> None:
    """Deletes a folder with all that is in it, where there is one. Raises LakeError where the file system refuses."""
    filesystem, target = hadoop_path(spark, path)
    try:
        if filesystem.exists(target):
            filesystem.delete(target, True)
    except Exception as error:
        raise LakeError(f"cannot remove {path}: {first_line(error)}") from error


def subfolders(spark: SparkSession, path: str) -> list[str]:
    """The paths of the folders in a folder, in order; none where there is no such folder."""
    filesystem, target = hadoop_path(spark, path)
    if not filesystem.exists(target):
        return []
    found = [status.getPath() for status in filesystem.listStatus(target) if status.isDirectory()]
    return sorted(f"{path}/{folder.getName()}" for folder in found)


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, without the JVM's stack."""
    java = getattr(error, "java_exception", None)  # py4j's own text says only which call failed
    text = str(error) if java is None else str(java.toString())
    return (text.strip().splitlines() or [type(error).__name__])[0]
