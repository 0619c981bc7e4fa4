"""Copies a version of a table without reading its rows: by hard links in a local folder, by the store itself on S3.

Files of a Delta table never change, so the copy shares them with the table until VACUUM removes them there.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.lake.delta_log import snapshot_at
from cdc_pipeline.lake.log_files import has_version
from cdc_pipeline.lake.store import copy_file, file_names

_OF_LOG = re.compile(r"(\d{20})\.(?:json|checkpoint\.)")
_DELETION_VECTOR = re.compile(r"deletion_vector_.*\.bin")


def copy_version(spark: SparkSession, source: str, target: str, version: int) -> None:
    """Makes `target` the table as it was at `version`, with its log up to there. Does nothing if it has this version."""
    if has_version(target, version):
        return
    files = DataFrame(snapshot_at(spark, source, version).allFiles().toDF(), spark).select("path").collect()
    names = {unquote(row["path"]) for row in files}
    for name in (*names, *filter(_DELETION_VECTOR.fullmatch, file_names(source))):
        copy_file(source, target, name)
    log = (
        name
        for name in file_names(f"{source}/_delta_log")
        if (found := _OF_LOG.match(name)) and int(found[1]) <= version
    )
    for name in sorted(log):  # the newest commit last: until then the copy lacks its version
        copy_file(f"{source}/_delta_log", f"{target}/_delta_log", name)
