"""Applies ALTER TABLE to the partitioning of a table.

A clause that does not fit makes the partitioning unknown instead of failing, so that the columns stay usable.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from typing import TypeAlias

from typing_extensions import assert_never

from cdc_pipeline.mysql.ddl.partitioning import numbered_partitions
from cdc_pipeline.mysql.ddl.tokens import words_in
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.partitions import Partition, Partitioning, UnknownPartitionsError

_PartitionsClause: TypeAlias = ddl.DropPartition | ddl.AddPartitions | ddl.ReorganizePartition | ddl.CoalescePartition
"""Clauses that change the partitions but not the method of partitioning."""


def altered_partitioning(
    partitioning: Partitioning | None, clauses: tuple[ddl.Clause, ...], new_names: dict[str, str]
) -> Partitioning | None:
    """The partitioning after one ALTER TABLE with these clauses.

    `new_names`: the new name of each kept column by its old name in casefold.
    """
    if partitioning is not None:
        partitioning = _with_new_names(partitioning, new_names)
    for clause in clauses:
        if isinstance(clause, ddl.RemovePartitioning):
            partitioning = None
        elif isinstance(clause, ddl.PartitionBy):
            partitioning = clause.partitioning
        elif isinstance(clause, _PartitionsClause):
            try:
                partitioning = _with_partitions(partitioning, clause)
            except UnknownPartitionsError as error:
                partitioning = Partitioning.unknown(str(error), "" if partitioning is None else str(partitioning))
    return partitioning


def _with_partitions(partitioning: Partitioning | None, clause: _PartitionsClause) -> Partitioning:
    if partitioning is None:
        raise UnknownPartitionsError(f"{type(clause).__name__} on a table without partitions")
    if not partitioning.is_known:
        return partitioning
    partitions = _partitions_after(partitioning, clause)
    names = {part.name.casefold() for part in partitions}
    if len(names) < len(partitions) or not partitions:
        raise UnknownPartitionsError(
            f"{type(clause).__name__} results in {len(partitions)} partitions with {len(names)} names"
        )
    return replace(partitioning, partitions=partitions)


def _partitions_after(partitioning: Partitioning, clause: _PartitionsClause) -> tuple[Partition, ...]:
    old = partitioning.partitions
    by_hash = partitioning.method == "hash"
    match clause:
        case ddl.AddPartitions(count=int(count)):
            if not by_hash:
                raise UnknownPartitionsError(f"ADD PARTITION with a number of partitions by {partitioning.method}")
            return old + numbered_partitions(len(old), count)
        case ddl.AddPartitions():
            _check_values(partitioning, clause.partitions)
            is_new = [
                not clause.if_not_exists or partitioning.index_of(part.name) is None for part in clause.partitions
            ]
            return (*old, *compress(clause.partitions, is_new))
        case ddl.CoalescePartition():
            if not by_hash or clause.count >= len(old):
                raise UnknownPartitionsError(
                    f"cannot remove {clause.count} of {len(old)} partitions by {partitioning.method}"
                )
            return old[: len(old) - clause.count]
        case ddl.ReorganizePartition(names=()):
            return old
        case ddl.ReorganizePartition():
            _check_values(partitioning, clause.partitions)
            replaced = _indexes(partitioning, clause.names, missing_ok=False)
            first = min(replaced)
            after = (part for index, part in enumerate(old) if index > first and index not in replaced)
            return (*old[:first], *clause.partitions, *after)
        case ddl.DropPartition():
            dropped = _indexes(partitioning, clause.names, missing_ok=clause.if_exists)
            return tuple(part for index, part in enumerate(old) if index not in dropped)
        case _:
            assert_never(clause)


def _check_values(partitioning: Partitioning, partitions: tuple[Partition, ...]) -> None:
    """Raises UnknownPartitionsError for definitions of another partitioning method."""
    is_range, is_list = partitioning.method.startswith("range"), partitioning.method.startswith("list")
    if any(bool(part.less_than) != is_range or bool(part.values) != is_list for part in partitions):
        raise UnknownPartitionsError(f"definitions that are not by {partitioning.method}")


def _indexes(partitioning: Partitioning, names: tuple[str, ...], *, missing_ok: bool) -> set[int]:
    indexes = {name: partitioning.index_of(name) for name in names}
    missing = [name for name, index in indexes.items() if index is None]
    if missing and not missing_ok:
        raise UnknownPartitionsError(f"no partition {', '.join(missing)}")
    return {index for index in indexes.values() if index is not None}


def _with_new_names(partitioning: Partitioning, new_names: dict[str, str]) -> Partitioning:
    """The partitioning with the new names of its columns.

    Unknown if a column is dropped or if one of an expression is renamed, which MySQL and TiDB reject (error 3855).
    """
    lost = [name for name in partitioning.columns if name.casefold() not in new_names]
    lost += sorted(word for word in words_in(partitioning.expression) if new_names.get(word, word).casefold() != word)
    if lost:
        reason = f"the partitioning uses the dropped or renamed column {', '.join(lost)}"
        return Partitioning.unknown(reason, str(partitioning))
    columns = tuple(new_names[name.casefold()] for name in partitioning.columns)
    return replace(partitioning, columns=columns)
