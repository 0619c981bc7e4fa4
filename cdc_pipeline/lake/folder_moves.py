"""Folders that are moved. Where the file system copies and deletes, as object stores do, a process may die in between: what
is on its way is written down, and is taken the rest of the way before anything else is done.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.faults import lake_fault
from cdc_pipeline.lake.paths import first_line, hadoop_path
from cdc_pipeline.spark.jvm import jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def move_folder(spark: SparkSession, source: str, target: str, moves: str) -> None:
    """Renames a folder, making the target's parents; `moves` is the folder of `finish_moves`. Raises LakeError where the
    target exists, or the file system refuses."""
    filesystem, old = hadoop_path(spark, source)
    _, new = hadoop_path(spark, target)
    try:
        filesystem.mkdirs(new.getParent())
        moved = not filesystem.exists(new) and filesystem.exists(old)
        if moved:
            note = _noted(spark, source, target, moves)
            moved = filesystem.rename(old, new)
            filesystem.delete(note, False)
    except Exception as error:
        raise lake_fault(error) or LakeError(f"cannot move {source} to {target}: {first_line(error)}") from error
    if not moved:
        raise LakeError(f"cannot move {source} to {target}: the target exists or the file system refused")


def finish_moves(spark: SparkSession, moves: str) -> list[str]:
    """Takes what a process that died has left on its way the rest of it. Returns where to. Raises LakeError where the file
    system refuses."""
    filesystem, folder = hadoop_path(spark, moves)
    found = []
    try:
        if filesystem.exists(folder):
            for note in [status.getPath() for status in filesystem.listStatus(folder)]:
                # one that was not written to its end tells of a move that had not begun
                if (told := _told(spark, note, moves)) is not None:
                    _finish(spark, *told)
                    found.append(told[1])
                filesystem.delete(note, False)
    except Exception as error:
        raise lake_fault(error) or LakeError(
            f"cannot finish a move that {moves} tells of: {first_line(error)}"
        ) from error
    return found


def _finish(spark: SparkSession, source: str, target: str) -> None:
    """All files that are still at the source go to the target. One that is there in the same size has been copied whole."""
    filesystem, old = hadoop_path(spark, source)
    _, new = hadoop_path(spark, target)
    if not filesystem.exists(old):
        return
    if not filesystem.exists(new):
        filesystem.mkdirs(new.getParent())
        if not filesystem.rename(old, new):
            raise LakeError(f"cannot move {source} to {target}")
        return
    base = old.toUri().getPath()
    files = filesystem.listFiles(old, True)
    while files.hasNext():
        status = files.next()
        place = status.getPath().toUri().getPath().removeprefix(base).lstrip("/")
        _, there = hadoop_path(spark, f"{target}/{place}")
        if filesystem.exists(there) and filesystem.getFileStatus(there).getLen() == status.getLen():
            continue
        filesystem.delete(there, False)
        filesystem.mkdirs(there.getParent())
        if not filesystem.rename(status.getPath(), there):
            raise LakeError(f"cannot move {place} of {source} to {target}")
    filesystem.delete(old, True)


def _noted(spark: SparkSession, source: str, target: str, moves: str) -> Any:
    """The file that tells of the move. A lake may be moved as a whole: folders are told as they lie in it."""
    home = moves.rsplit("/", 1)[0]
    text = json.dumps([path.removeprefix(f"{home}/") for path in (source, target)])
    filesystem, note = hadoop_path(spark, f"{moves}/{hashlib.sha256(text.encode()).hexdigest()[:32]}")
    stream = filesystem.create(note, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    return note


def _told(spark: SparkSession, note: Any, moves: str) -> tuple[str, str] | None:
    filesystem, _ = hadoop_path(spark, moves)
    stream = filesystem.open(note)
    try:
        text = bytes(jvm(spark).org.apache.commons.io.IOUtils.toByteArray(stream)).decode()
    finally:
        stream.close()
    try:
        source, target = json.loads(text)
    except ValueError:
        return None
    home = moves.rsplit("/", 1)[0]
    return _in(home, source), _in(home, target)


def _in(home: str, path: str) -> str:
    return path if "://" in path or path.startswith("/") else f"{home}/{path}"
