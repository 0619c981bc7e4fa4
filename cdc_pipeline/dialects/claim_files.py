"""Files of a claim store: messages of TiCDC that are too large for the topic (ticdc-facts §7).

The URI in a reference comes from a record, so it is not trusted. Only its last segment is used, only if it is a plain file
name, and only in the store that the pipeline configures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.lake.paths import LakePaths, hadoop_path
from cdc_pipeline.sources.codecs import MAX_VALUE_BYTES
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline.spark.threads import map_in_threads

FILE_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\.json"
"""Accepted file names. TiCDC writes `<uuid>.json`."""
LONGEST_LOCATION = 4096
"""Most characters of a reference. TiCDC writes a URI and a UUID."""
_MOST_FILE_BYTES = 2 * MAX_VALUE_BYTES
"""Twice the limit of a message, because of Base64. Spark reads a file into one array."""
_THREADS = 8
_GLOB_CHARACTERS = re.compile(r"[\\\[\]{}*?^]")
_MAY_HAVE_CREDENTIALS = re.compile(r"[@?#]|%40")


def file_name(location: str) -> str | None:
    """The file name in a reference; None if it is not an accepted one."""
    name = location.rsplit("/", 1)[-1]
    return name if len(location) <= LONGEST_LOCATION and re.fullmatch(FILE_NAME, name) else None


@dataclass(frozen=True)
class ClaimStore:
    """A claim store."""

    spark: SparkSession
    uri: str
    """A folder or Hadoop URI."""

    @property
    def shown(self) -> str:
        """The store's URI for messages. Only the scheme if the URI may contain credentials (before an `@` or in a query)."""
        if LakePaths(self.uri, "").is_local or not _MAY_HAVE_CREDENTIALS.search(self.uri):
            return self.uri
        return f"{self.uri.split(':', 1)[0]}://…"

    def problems(self, names: Collection[str]) -> dict[str, str]:
        """File name → why the file cannot be read. Readable files are not in the result."""
        try:
            files, root = hadoop_path(self.spark, self._root)
        except Exception as error:  # such as an unknown file system, host or wrong credentials
            return dict.fromkeys(names, f"the store cannot be opened ({_error_name(error)})")

        def problem(name: str) -> str | None:
            path = jvm(self.spark).org.apache.hadoop.fs.Path(root, name)
            try:
                status = files.getFileStatus(path)
                if not status.isFile():
                    return "it is a folder"
                if status.getLen() == 0:
                    return "it is empty"
                if status.getLen() > _MOST_FILE_BYTES:
                    return f"it has {status.getLen()} bytes, more than {_MOST_FILE_BYTES}"
                files.open(path).close()
            except Exception as error:  # its message may contain the URI
                name_of_error = _error_name(error)
                is_missing = name_of_error == "FileNotFoundException"
                return "it does not exist" if is_missing else f"it cannot be read ({name_of_error})"
            return None

        ordered = sorted(names)
        found = zip(ordered, map_in_threads(self.spark, problem, ordered, _THREADS), strict=True)
        return {name: reason for name, reason in found if reason is not None}

    def contents(self, names: Collection[str]) -> DataFrame:
        """`path` and `content` of these files. Skips files that vanish or fail while they are read."""
        root = jvm(self.spark).org.apache.hadoop.fs.Path(self._root)
        paths = [jvm(self.spark).org.apache.hadoop.fs.Path(root, name).toString() for name in sorted(names)]
        # the store's path may contain glob characters
        paths = [_GLOB_CHARACTERS.sub(r"\\\g<0>", path) for path in paths]
        return (
            self.spark.read.format("binaryFile")
            .option("ignoreMissingFiles", "true")
            .option("ignoreCorruptFiles", "true")
            .load(paths)
            .select("path", "content")
            .coalesce(2 * self.spark.sparkContext.defaultParallelism)  # without it Spark runs one task per file
        )

    @property
    def _root(self) -> str:
        return os.path.abspath(self.uri) if LakePaths(self.uri, "").is_local else self.uri  # noqa: PTH100


def _error_name(error: Exception) -> str:
    return str(error.java_exception.getClass().getSimpleName()) if isinstance(error, Py4JJavaError) else "error"
