"""Folder moves that survive a crash.

Object stores rename a folder by copying and deleting its files, so a killed process can leave it half moved. Each move is
therefore recorded in a note first. Each run finishes the recorded moves before it does anything else.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.faults import to_lake_error
from cdc_pipeline.lake.paths import first_line, hadoop_path, has_files
from cdc_pipeline.lake.store import file_names
from cdc_pipeline.spark.jvm import jvm


def move_folder(spark: SparkSession, source: str, target: str, moves: str) -> None:
    """Renames a folder and creates the target's parents. `moves`: the folder of the notes (`LakePaths.moves`).

    Raises LakeError if the target exists or the file system fails, TransientError if the disk is full.
    """
    filesystem, old = hadoop_path(spark, source)
    _, new = hadoop_path(spark, target)
    try:
        filesystem.mkdirs(new.getParent())
        moved = not filesystem.exists(new) and filesystem.exists(old)
        if moved:
            note = _record_move(spark, source, target, moves)
            moved = filesystem.rename(old, new)
            filesystem.delete(note, False)
    except Exception as error:
        raise to_lake_error(error) or LakeError(f"cannot move {source} to {target}: {first_line(error)}") from error
    if not moved:
        raise LakeError(f"cannot move {source} to {target}: the target exists or the file system refused")


def finish_moves(spark: SparkSession, moves: str) -> list[str]:
    """Finishes the moves that a killed process left unfinished, and returns their target paths.

    Raises LakeError if the file system fails, TransientError if the disk is full.
    """
    if has_files(moves) and not file_names(moves):
        return []
    filesystem, folder = hadoop_path(spark, moves)
    targets = []
    try:
        if filesystem.exists(folder):
            for note in [status.getPath() for status in filesystem.listStatus(folder)]:
                # an incomplete note belongs to a move that had not started
                if (move := _read_move(spark, note, moves)) is not None:
                    _finish_move(spark, *move)
                    targets.append(move[1])
                filesystem.delete(note, False)
    except Exception as error:
        raise to_lake_error(error) or LakeError(
            f"cannot finish a folder move recorded in {moves}: {first_line(error)}"
        ) from error
    return targets


def _finish_move(spark: SparkSession, source: str, target: str) -> None:
    """Moves the files that are still in `source`. A file that `target` has in the same size is already copied."""
    filesystem, old = hadoop_path(spark, source)
    _, new = hadoop_path(spark, target)
    if not filesystem.exists(old):
        return
    if not filesystem.exists(new):
        filesystem.mkdirs(new.getParent())
        if not filesystem.rename(old, new):
            raise LakeError(f"cannot move {source} to {target}: the file system refused the rename")
        return
    base = old.toUri().getPath()
    files = filesystem.listFiles(old, True)
    while files.hasNext():
        status = files.next()
        name = status.getPath().toUri().getPath().removeprefix(base).lstrip("/")
        _, copy = hadoop_path(spark, f"{target}/{name}")
        if filesystem.exists(copy) and filesystem.getFileStatus(copy).getLen() == status.getLen():
            continue
        filesystem.delete(copy, False)
        filesystem.mkdirs(copy.getParent())
        if not filesystem.rename(status.getPath(), copy):
            raise LakeError(f"cannot move {name} of {source} to {target}: the file system refused the rename")
    filesystem.delete(old, True)


def _record_move(spark: SparkSession, source: str, target: str, moves: str) -> Any:
    """Writes the note of a move and returns its Hadoop path. Paths in it are relative, as the lake itself may be moved."""
    home = moves.rsplit("/", 1)[0]
    text = json.dumps([path.removeprefix(f"{home}/") for path in (source, target)])
    filesystem, note = hadoop_path(spark, f"{moves}/{hashlib.sha256(text.encode()).hexdigest()[:32]}")
    stream = filesystem.create(note, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    return note


def _read_move(spark: SparkSession, note: Any, moves: str) -> tuple[str, str] | None:
    """(source, target) of a note; None if the note is incomplete."""
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
    return _resolve(home, source), _resolve(home, target)


def _resolve(home: str, path: str) -> str:
    return path if "://" in path or path.startswith("/") else f"{home}/{path}"
