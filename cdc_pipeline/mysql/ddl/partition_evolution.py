"""Applies ALTER TABLE to the partitioning of a table.

A clause that does not fit makes the partitioning unknown instead of failing, so that the columns stay usable.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

from typing_extensions import assert_never

from cdc_pipeline.mysql.ddl.partitioning import numbered_partitions
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.partitions import Partition, Partitioning, UnknownPartitionsError
from cdc_pipeline.mysql.model.quoted_names import quoted

_PartitionsClause: TypeAlias = ddl.DropPartition | ddl.AddPartitions | ddl.ReorganizePartition | ddl.CoalescePartition
"""Clauses that change the partitions but not the method of partitioning."""
# Words of an expression that are not columns, as in EXTRACT(YEAR FROM d).
_UNITS = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"})


def altered_partitioning(
    partitioning: Partitioning | None, clauses: tuple[ddl.Clause, ...], new_names: dict[str, str]
) -> Partitioning | None:
    """The partitioning after one ALTER TABLE with these clauses.

    `new_names`: the new name of each kept column by its old name in casefold.
    """
    if partitioning is not None:
        partitioning = _with_new_names(partitioning, new_names)
    for clause in clauses:
        try:
            partitioning = _after(partitioning, clause)
        except UnknownPartitionsError as error:
            partitioning = Partitioning.unknown(str(error), "" if partitioning is None else str(partitioning))
    return partitioning


def _after(partitioning: Partitioning | None, clause: ddl.Clause) -> Partitioning | None:
    if isinstance(clause, ddl.RemovePartitioning):
        return None
    if isinstance(clause, ddl.PartitionBy):
        return clause.partitioning
    if isinstance(clause, _PartitionsClause):
        return _with_partitions(partitioning, clause)
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
        case ddl.AddPartitions():
            return old + _added(partitioning, clause, by_hash)
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
            before, upto = old[: min(replaced)], replaced | set(range(min(replaced)))
            return (*_without(before, replaced), *clause.partitions, *_without(old, upto))
        case ddl.DropPartition():
            return _without(old, _indexes(partitioning, clause.names, missing_ok=clause.if_exists))
        case _:
            assert_never(clause)


def _added(partitioning: Partitioning, clause: ddl.AddPartitions, by_hash: bool) -> tuple[Partition, ...]:
    if clause.count is not None:
        if not by_hash:
            raise UnknownPartitionsError(f"ADD PARTITION with a number of partitions by {partitioning.method}")
        return numbered_partitions(len(partitioning.partitions), clause.count)
    _check_values(partitioning, clause.partitions)
    if clause.if_not_exists:
        return tuple(part for part in clause.partitions if partitioning.index_of(part.name) is None)
    return clause.partitions


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


def _without(partitions: tuple[Partition, ...], indexes: set[int]) -> tuple[Partition, ...]:
    return tuple(part for index, part in enumerate(partitions) if index not in indexes)


def _with_new_names(partitioning: Partitioning, new_names: dict[str, str]) -> Partitioning:
    """The partitioning with its columns renamed; unknown if one of them is dropped."""
    try:
        return replace(
            partitioning,
            expression=_renamed_expression(partitioning.expression, new_names),
            columns=_renamed_columns(partitioning.columns, new_names),
        )
    except UnknownPartitionsError as error:
        return Partitioning.unknown(str(error), str(partitioning))


def _renamed_columns(columns: tuple[str, ...], new_names: dict[str, str]) -> tuple[str, ...]:
    dropped = [name for name in columns if name.casefold() not in new_names]
    if dropped:
        raise UnknownPartitionsError(f"the partitioning uses the dropped column {', '.join(dropped)}")
    return tuple(new_names[name.casefold()] for name in columns)


def _renamed_expression(expression: str, new_names: dict[str, str]) -> str:
    """The expression with its columns renamed. Its other words are functions and units."""
    if not expression:
        return expression
    cursor = Cursor(expression)
    text, end = "", 0
    while not cursor.at_end:
        token = cursor.skip()
        name = token.text.casefold()
        is_function = token.kind is Kind.WORD and cursor.at("(")
        if token.kind is Kind.QUOTED and name not in new_names:
            raise UnknownPartitionsError(f"the partitioning uses the dropped column {token.text}")
        if token.kind in (Kind.WORD, Kind.QUOTED) and not is_function and new_names.get(name, name).casefold() != name:
            if token.kind is Kind.WORD and token.text.upper() in _UNITS:
                raise UnknownPartitionsError(f"{token.text} is a renamed column or a unit")
            text += expression[end : token.start] + quoted(new_names[name])
            end = token.end
    return text + expression[end:]
