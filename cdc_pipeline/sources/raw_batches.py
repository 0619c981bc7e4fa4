"""The notes that the commits of `raw_topic_snapshot` carry: which batch, by which run, from where to where.

A note is the one record of how far a source was read, because it is committed with the records themselves. The newest
one is read here from Delta's log as files, without Spark, so that a sensor's tick costs milliseconds.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import progress, table_state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths

_COMMIT = re.compile(r"\d{20}\.json")


def newest_note(paths: LakePaths) -> dict[str, Any] | None:
    """The note of the newest commit of `raw_topic_snapshot` that has one; None where none is found, and for lakes that are
    no local folder.

    Commits that have no note of ours (OPTIMIZE) are passed over. Delta removes old commits after a month, so that a table
    to which nothing came for so long may have none: whoever asks must then do without.
    """
    return next(_newest_first(paths), None)


def batch_note(spark: SparkSession, paths: LakePaths, batch_id: int) -> dict[str, Any] | None:
    """The note of the commit that took the batch in; None where Delta has removed it."""
    for note in _newest_first(paths):
        if note.get("batch") == batch_id:
            return note
    history = DeltaTable.forPath(spark, paths.table("raw_topic_snapshot")).history()
    noted = history.where(F.get_json_object("userMetadata", "$.batch") == str(batch_id)).select("userMetadata").first()
    return None if noted is None else _read(noted[0])


def _newest_first(paths: LakePaths) -> Iterator[dict[str, Any]]:
    """The notes that a local lake's commits have, read from their files."""
    if not paths.is_local:
        return
    log = Path(paths.table("raw_topic_snapshot")) / "_delta_log"
    try:
        names = sorted((path.name for path in log.iterdir() if _COMMIT.fullmatch(path.name)), reverse=True)
    except OSError:
        return
    yield from (note for name in names if (note := _note(log / name)) is not None)


def _note(commit: Path) -> dict[str, Any] | None:
    """The note in one commit's file. It stands in `commitInfo`, one of the first lines."""
    try:
        for action in _actions(commit):
            if "commitInfo" in action:
                return _read(action["commitInfo"].get("userMetadata"))
    except (OSError, ValueError, AttributeError):
        return None
    return None


def _actions(commit: Path) -> Iterator[dict[str, Any]]:
    with commit.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def newest_note_by_spark(spark: SparkSession, paths: LakePaths) -> dict[str, Any] | None:
    """`newest_note` for any kind of lake."""
    path = paths.table("raw_topic_snapshot")
    if table_state(spark, path) is None:
        return None
    noted = DeltaTable.forPath(spark, path).history().where("userMetadata IS NOT NULL").select("userMetadata").limit(20)
    return next((note for row in noted.collect() if (note := _read(row["userMetadata"])) is not None), None)


def _read(text: str | None) -> dict[str, Any] | None:
    """A note of ours; None for anything else that a commit may say."""
    note = json.loads(text or "null")
    return note if isinstance(note, dict) and "run_id" in note else None


def raw_app_id(paths: LakePaths) -> str:
    """The writer whose progress in `raw_topic_snapshot` is the newest batch."""
    return f"cdc:{paths.pipeline}:raw"


def newest_batch(spark: SparkSession, paths: LakePaths) -> int:
    """The newest batch in the raw snapshot, 0 before the first."""
    return progress(spark, paths.table("raw_topic_snapshot"), raw_app_id(paths)) or 0
