"""The paths of a pipeline's tables, and file system operations on them.

The layout is a public contract: `<lake>/<pipeline>/raw_topic_snapshot`, …, `mirror/<database>/<table>`. In a lake that is
not local, a mirror is at `mirrors/<mirror id>`: a rename moves no files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline.spark.stores import S3

# Characters that are invalid or special in a file name (Linux, macOS, Windows, object stores) or a Hadoop path or glob.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f%/\\:*?\"<>|{}\[\]^#]")
# Bytes. Common file systems allow 255, and the folder of a dropped mirror appends a suffix. The 64 characters of a MySQL
# identifier take 192 at most, encoded or not.
_MAX_SEGMENT_BYTES = 200
_KEPT_PREFIX_BYTES = 160
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")
# delta-rs 1.6 makes a URL of a path: it decodes %XX, takes a backslash for a slash, and fails at a bracket or a tab
_SAME_IN_DELTA_RS = re.compile(r"[\w/ .,@+=~-]*")


def path_segment(identifier: str) -> str:
    """The identifier as one path segment, unsafe characters percent-encoded as UTF-8. Injective.

    The empty name becomes `%`. A leading dot or underscore is encoded, because Hadoop hides such files. A segment of more
    than 200 bytes, longer than any MySQL name, is cut and ends in a hash of the identifier.
    """
    if not identifier:
        return "%"
    encoded = _UNSAFE.sub(lambda match: "".join(f"%{byte:02X}" for byte in match.group().encode()), identifier)
    if encoded[0] in "._":
        encoded = f"%{ord(encoded[0]):02X}{encoded[1:]}"
    content = encoded.encode(errors="surrogatepass")
    if len(content) <= _MAX_SEGMENT_BYTES:
        return encoded
    # `%~` occurs in no other segment; an escape that the cut leaves without its digits is removed
    parts = content[:_KEPT_PREFIX_BYTES].decode(errors="ignore").rsplit("%", 1)
    prefix = "%".join(parts) if len(parts[-1]) >= 2 or len(parts) == 1 else parts[0]
    return f"{prefix}%~{hashlib.sha256(identifier.encode(errors='surrogatepass')).hexdigest()[:32]}"


CONTROL_TABLES = (
    *("watermarks", "batches", "consistent_cuts", "cut_plans", "cut_failures"),
    *("kept_cuts", "verifications"),
)
"""The tables that `lake/control_tables.py` writes."""
BASELINE_ROWS = "baseline_rows"
"""The folder of the rows of baselines, one folder each."""
KEPT_MIRRORS = "kept_mirrors"
"""The folder of the mirrors of kept cuts: a folder for each mirror id, and in it one for each version."""
OWN_TABLES = (
    *("raw_topic_snapshot", "claims", "change_log", "dead_letters", "ddl_history", "dead_letter_releases"),
    *CONTROL_TABLES,
)
"""All tables of a pipeline except its mirrors."""


@dataclass(frozen=True)
class LakePaths:
    """The paths of one pipeline in a lake."""

    root: str
    """The lake: a folder or any Hadoop URI."""
    pipeline: str
    table_paths: Mapping[str, str] = field(default_factory=dict)
    """Table name → path of a table outside this lake. A rebuild writes to a temporary lake but reads the
    pipeline's own raw records."""

    @property
    def home(self) -> str:
        # not resolve(): paths in messages keep the user's symbolic links
        root = os.path.abspath(self.root) if self.is_local else self.root.rstrip("/")  # noqa: PTH100
        return f"{root}/{path_segment(self.pipeline)}"

    @property
    def is_local(self) -> bool:
        return is_local_path(self.root)

    @property
    def is_s3(self) -> bool:
        return is_s3_path(self.root)

    @property
    def has_files(self) -> bool:
        """Whether `lake.store` reads and writes its files: a local folder, or S3."""
        return has_files(self.root)

    def table(self, name: str) -> str:
        """The path of one of `OWN_TABLES`."""
        return self.table_paths.get(name, f"{self.home}/{name}")

    @property
    def own_tables(self) -> tuple[str, ...]:
        """The paths of `OWN_TABLES`."""
        return tuple(map(self.table, OWN_TABLES))

    def app_id(self, table: str) -> str:
        """The application id of the commits that carry the table's progress: their version is the batch or cut id."""
        return f"cdc:{self.pipeline}:{table}"

    def mirror(self, name: TableName) -> str:
        """The path of a mirror in a local lake."""
        assert self.is_local, f"{self.root}: mirrors have no paths by name"
        return f"{self.home}/mirror/{path_segment(name.database)}/{path_segment(name.table)}"

    def mirror_folder(self, name: TableName, mirror_id: str) -> str:
        """The path of a mirror: by its name in a local lake, by its id in others, where a folder cannot be moved."""
        return self.mirror(name) if self.is_local else f"{self.home}/mirrors/{path_segment(mirror_id)}"

    def baseline(self, baseline: str, name: TableName) -> str:
        """The path of a table of a baseline (`snapshots`). delta-rs writes it, so other names are a hash."""
        path = f"{path_segment(name.database)}/{path_segment(name.table)}"
        if not _SAME_IN_DELTA_RS.fullmatch(path):
            path = hashlib.sha256(path.encode(errors="surrogatepass")).hexdigest()[:32]
        return f"{self.table(BASELINE_ROWS)}/{baseline}/{path}"

    def kept_mirror(self, mirror_id: str, version: int) -> str:
        """The path of a mirror as a kept cut has it (`tables.kept_cuts`)."""
        return f"{self.table(KEPT_MIRRORS)}/{path_segment(mirror_id)}/{version}"

    @property
    def running(self) -> str:
        """The folder of the marks of running steps (`StepRunner`)."""
        return f"{self.home}/.running"

    def dropped_mirror(self, name: TableName, suffix: str) -> str:
        """The path of a dropped mirror in a local lake; `suffix` distinguishes several of the same name."""
        assert self.is_local, f"{self.root}: dropped mirrors stay where they are"
        return f"{self.home}/dropped/{path_segment(name.database)}/{path_segment(name.table)}@{path_segment(suffix)}"

    def require_writable(self, spark: SparkSession) -> None:
        """Raises LakeError if the pipeline's folder cannot be created or written."""
        if self.is_local:
            self.require_writable_folder()
        if self.has_files:
            return  # on S3 the run has written its lease
        try:
            filesystem, home = hadoop_path(spark, self.home)
            filesystem.mkdirs(home)
        except Exception as error:
            raise LakeError(f"the lake {self.root!r} cannot be written: {first_line(error)}") from error

    def require_writable_folder(self) -> None:
        """`require_writable` for a local lake. Leaves nothing behind."""
        probe = Path(self.home) / f".writable-{uuid.uuid4().hex}"
        with self.remove_empty_folders():
            try:
                probe.parent.mkdir(parents=True, exist_ok=True)
                probe.touch()
                probe.unlink()
            except OSError as error:
                raise self.write_error(error) from error

    @contextlib.contextmanager
    def remove_empty_folders(self) -> Iterator[None]:
        """On exit removes those folders on the pipeline's path that did not exist before and are empty. Local lakes only.

        A run that fails before its first write thus leaves nothing behind.
        """
        home = Path(self.home)
        # os.path, because pathlib raises for a name that is too long
        missing = [folder for folder in (home, *home.parents) if not os.path.exists(folder)]  # noqa: PTH110
        try:
            yield
        finally:
            for folder in missing:
                with contextlib.suppress(OSError):  # never created, or no longer empty
                    folder.rmdir()

    def write_error(self, error: OSError) -> LakeError:
        reason = error.strerror or str(error)
        return LakeError(f"the lake {self.root!r} cannot be written: {reason} ({error.filename})")


def is_local_path(path: str) -> bool:
    """Whether it is a path of this machine, and no URI."""
    return not _REMOTE.match(path)


def is_s3_path(path: str) -> bool:
    return path.startswith("s3a://")


def has_files(path: str) -> bool:
    """Whether `lake.store` reads and writes the files at the path."""
    return is_local_path(path) or is_s3_path(path)


def stores_of(*paths: str) -> tuple[str, ...]:
    """The object stores of these folders and URIs, as `SparkLakehouse.stores`."""
    return (S3,) if any(map(is_s3_path, paths)) else ()


def is_for_delta_rs(path: str) -> bool:
    """Whether delta-rs finds the table at this path: a local one or on S3, without some special characters."""
    known = path.removeprefix("s3a://")
    return is_local_path(known) and _SAME_IN_DELTA_RS.fullmatch(known) is not None


def escape_glob(path: str) -> str:
    """The path with glob characters escaped, so that Spark's readers read exactly this file."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", path)


def hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's (FileSystem, Path) of a path, for local and remote lakes."""
    target = jvm(spark).org.apache.hadoop.fs.Path(path)
    return target.getFileSystem(spark._jsc.hadoopConfiguration()), target


def remove_folder(spark: SparkSession, path: str) -> None:
    """Deletes a folder recursively, if it exists. Raises LakeError if the file system fails."""
    filesystem, target = hadoop_path(spark, path)
    try:
        if filesystem.exists(target):
            filesystem.delete(target, True)
    except Exception as error:
        raise LakeError(f"cannot remove {path}: {first_line(error)}") from error


def subfolders(spark: SparkSession, path: str) -> list[str]:
    """The paths of the folders in a folder, sorted; empty if the folder does not exist."""
    filesystem, target = hadoop_path(spark, path)
    if not filesystem.exists(target):
        return []
    folders = [status.getPath() for status in filesystem.listStatus(target) if status.isDirectory()]
    return sorted(f"{path}/{folder.getName()}" for folder in folders)


def table_folders(spark: SparkSession, path: str) -> list[str]:
    """The paths of the folders `<database>/<table>` in a folder, sorted; empty if the folder does not exist."""
    return [table for database in subfolders(spark, path) for table in subfolders(spark, database)]


def mirror_folders(spark: SparkSession, paths: LakePaths) -> list[str]:
    """The paths of all mirrors in the lake; where they are by id, of dropped ones too."""
    if paths.is_local:
        return table_folders(spark, f"{paths.home}/mirror")
    return subfolders(spark, f"{paths.home}/mirrors")


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, or its class name if it has none. For py4j errors: of the Java exception."""
    java = getattr(error, "java_exception", None)  # py4j's own text contains only the failed call
    text = str(error) if java is None else str(java.toString())
    return (text.strip().splitlines() or [type(error).__name__])[0]
