"""The files of a claim store: TiCDC puts a message there that is too large for the topic, and sends a reference to it.

A reference is a URI that some record brings, so that it may be anything: only its last segment counts, only where it is
a plain file name, and it is looked for in the pipeline's own store and nowhere else (ticdc-facts §7).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from cdc_pipeline.lake.paths import LakePaths, hadoop_path
from cdc_pipeline.sources.codecs import MOST_BYTES
from cdc_pipeline.spark.jvm import jvm
from cdc_pipeline.spark.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

FILE_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}\.json"
"""What a file of the store may be called: TiCDC names them `<uuid>.json`."""
LONGEST_LOCATION = 4096
"""Characters of a reference; TiCDC's are a URI and a UUID."""
_MOST_FILE_BYTES = 2 * MOST_BYTES
"""Base64 makes four bytes of three, and Spark holds the file in one array."""
_THREADS = 8
_PATTERN = re.compile(r"[\\\[\]{}*?^]")
_TELLING = re.compile(r"[@?#]|%40")


def file_name(location: str) -> str | None:
    """The name of the file that a reference means; None where it is no name that is looked up."""
    name = location.rsplit("/", 1)[-1]
    return name if len(location) <= LONGEST_LOCATION and re.fullmatch(FILE_NAME, name) else None


@dataclass(frozen=True)
class ClaimStore:
    """The folder, or Hadoop URI, where the pipeline's claims are."""

    spark: SparkSession
    uri: str

    @property
    def shown(self) -> str:
        """The store in words. A URI may hold credentials before an `@` or in its query: of such a one only the scheme."""
        if LakePaths(self.uri, "").is_local or not _TELLING.search(self.uri):
            return self.uri
        return f"{self.uri.split(':', 1)[0]}://…"

    def problems(self, names: Collection[str]) -> dict[str, str]:
        """Why files of these names cannot be had, by name; the others can."""
        try:
            files, root = hadoop_path(self.spark, self._root)
        except Exception as error:  # no such file system, wrong credentials, a name that no host has
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
            except Exception as error:  # its words may hold the URI
                name_of_error = _error_name(error)
                missing = name_of_error == "FileNotFoundException"
                return "there is no such file" if missing else f"it cannot be read ({name_of_error})"
            return None

        asked = sorted(names)
        found = zip(asked, side_by_side(self.spark, problem, asked, _THREADS), strict=True)
        return {name: reason for name, reason in found if reason is not None}

    def contents(self, names: Collection[str]) -> DataFrame:
        """`path` and `content` of these files. Those that vanish or break while they are read are left out."""
        root = jvm(self.spark).org.apache.hadoop.fs.Path(self._root)
        paths = [jvm(self.spark).org.apache.hadoop.fs.Path(root, name).toString() for name in sorted(names)]
        # the store's own name may have characters of a pattern
        paths = [_PATTERN.sub(r"\\\g<0>", path) for path in paths]
        return (
            self.spark.read.format("binaryFile")
            .option("ignoreMissingFiles", "true")
            .option("ignoreCorruptFiles", "true")
            .load(paths)
            .select("path", "content")
            .coalesce(2 * self.spark.sparkContext.defaultParallelism)  # Spark would make a task of each file
        )

    @property
    def _root(self) -> str:
        return os.path.abspath(self.uri) if LakePaths(self.uri, "").is_local else self.uri  # noqa: PTH100


def _error_name(error: Exception) -> str:
    return str(error.java_exception.getClass().getSimpleName()) if isinstance(error, Py4JJavaError) else "error"
