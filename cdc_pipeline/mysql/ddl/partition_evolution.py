"""What a table's partitioning becomes by ALTER TABLE. Pure.

Columns must fold whatever becomes of partitions: a clause that does not fit leaves a partitioning that is not known.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import assert_never

from cdc_pipeline.mysql.ddl.interval_partitions import (
    NULL_PARTITION,
    partitions_up_to,
    position_of_bound,
    with_interval_partitions,
)
from cdc_pipeline.mysql.ddl.partitioning import numbered_partitions
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.partitions import MAXVALUE, Partition, Partitioning, UnknownPartitionsError
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.schema_changes import (
    AddPartitions,
    CoalescePartition,
    DropPartition,
    ExchangePartition,
    FirstPartition,
    LastPartition,
    MergeFirstPartition,
    PartitionBy,
    PartitionDefinitionClause,
    PartitionRowsClause,
    RemovePartitioning,
    ReorganizePartition,
    TruncatePartition,
)

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.schema_changes import Clause
    from cdc_pipeline.mysql.model.table import Column

_OtherPartitions: TypeAlias = (
    DropPartition
    | AddPartitions
    | ReorganizePartition
    | CoalescePartition
    | FirstPartition
    | MergeFirstPartition
    | LastPartition
)
"""Clauses after which a table has other partitions by the same rule."""
# Words that an expression may have for what is no column: EXTRACT(YEAR FROM d).
_UNITS = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MICROSECOND"})


def altered_partitioning(
    partitioning: Partitioning | None,
    clauses: tuple[Clause, ...],
    new_names: dict[str, str],
    columns: tuple[Column, ...],
) -> Partitioning | None:
    """The partitioning after these clauses of one ALTER TABLE.

    `new_names` has the new name of each old column that stays, by its old one in casefold; `columns` are those after
    the statement.
    """
    if partitioning is not None:
        partitioning = _followed(partitioning, new_names)
    for clause in clauses:
        try:
            partitioning = _after(partitioning, clause, columns)
        except UnknownPartitionsError as error:
            known = clause.partitioning if isinstance(clause, PartitionBy) else partitioning
            text = "" if known is None else str(known)
            partitioning = Partitioning.unknown(str(error), text)
    return partitioning


def partitions_before(bound: str, partitioning: Partitioning) -> tuple[Partition, ...]:
    """The partitions that TiDB's FIRST PARTITION LESS THAN (bound) drops: those before the one with that bound.

    The partition of NULL stays. Raises UnknownPartitionsError where no partition has the bound.
    """
    before = partitioning.partitions[: position_of_bound(bound, partitioning)]
    return tuple(part for part in before if part.name.upper() != NULL_PARTITION)


def _after(partitioning: Partitioning | None, clause: Clause, columns: tuple[Column, ...]) -> Partitioning | None:
    if isinstance(clause, RemovePartitioning):
        return None
    if isinstance(clause, PartitionBy):
        return with_interval_partitions(clause.partitioning, columns)
    if not isinstance(clause, PartitionRowsClause | PartitionDefinitionClause):
        return partitioning
    if isinstance(clause, TruncatePartition | ExchangePartition):
        return partitioning
    return _with_partitions(partitioning, clause, columns)


def _with_partitions(
    partitioning: Partitioning | None, clause: _OtherPartitions, columns: tuple[Column, ...]
) -> Partitioning:
    if partitioning is None:
        raise UnknownPartitionsError(f"{type(clause).__name__} of a table that has no partitions")
    if not partitioning.known:
        return partitioning
    partitions = _partitions_after(partitioning, clause, columns)
    names = {part.name.casefold() for part in partitions}
    if len(names) < len(partitions) or not partitions:
        raise UnknownPartitionsError(
            f"{type(clause).__name__} leaves {len(names)} names of {len(partitions)} partitions"
        )
    return replace(partitioning, partitions=partitions)


def _partitions_after(
    partitioning: Partitioning, clause: _OtherPartitions, columns: tuple[Column, ...]
) -> tuple[Partition, ...]:
    old = partitioning.partitions
    by_hash = partitioning.method.endswith(("hash", "key"))
    match clause:
        case AddPartitions():
            return old + _added(partitioning, clause, by_hash)
        case CoalescePartition():
            if not by_hash or clause.count >= len(old):
                raise UnknownPartitionsError(f"{clause.count} partitions less of {len(old)} by {partitioning.method}")
            return old[: len(old) - clause.count]
        case ReorganizePartition(names=()):
            return old
        case ReorganizePartition():
            _check_values(partitioning, clause.partitions)
            places = _places(partitioning, clause.names, missing_ok=False)
            before, after = old[: min(places)], places | set(range(min(places)))
            return (*_without(before, places), *clause.partitions, *_without(old, after))
        case DropPartition():
            return _without(old, _places(partitioning, clause.names, missing_ok=clause.if_exists))
        case LastPartition():
            added = partitions_up_to(clause.bound, partitioning, columns)
            # SPLIT MAXVALUE PARTITION takes them from the last one
            return (*old[:-1], *added, old[-1]) if old[-1].less_than == (MAXVALUE,) else (*old, *added)
        case FirstPartition() | MergeFirstPartition():
            # the partitions before the new first one are gone, or merged with it
            gone = partitions_before(clause.bound, partitioning)
            return tuple(part for part in old if part not in gone)
        case _:
            assert_never(clause)


def _added(partitioning: Partitioning, clause: AddPartitions, by_hash: bool) -> tuple[Partition, ...]:
    if clause.count is not None:
        if not by_hash:
            raise UnknownPartitionsError(f"a number of partitions more by {partitioning.method}")
        return numbered_partitions(len(partitioning.partitions), clause.count)
    _check_values(partitioning, clause.partitions)
    if clause.if_not_exists:
        return tuple(part for part in clause.partitions if partitioning.position(part.name) is None)
    return clause.partitions


def _check_values(partitioning: Partitioning, partitions: tuple[Partition, ...]) -> None:
    """Raises UnknownPartitionsError for definitions that are not of the partitioning's method."""
    is_range, is_list = partitioning.method.startswith("range"), partitioning.method.startswith("list")
    if any(bool(part.less_than) != is_range or bool(part.values) != is_list for part in partitions):
        raise UnknownPartitionsError(f"partitions that are not by {partitioning.method}")


def _places(partitioning: Partitioning, names: tuple[str, ...], *, missing_ok: bool) -> set[int]:
    places = {name: partitioning.position(name) for name in names}
    missing = [name for name, place in places.items() if place is None]
    if missing and not missing_ok:
        raise UnknownPartitionsError(f"no partition {', '.join(missing)}")
    return {place for place in places.values() if place is not None}


def _without(partitions: tuple[Partition, ...], places: set[int]) -> tuple[Partition, ...]:
    return tuple(part for place, part in enumerate(partitions) if place not in places)


def _followed(partitioning: Partitioning, new_names: dict[str, str]) -> Partitioning:
    """The partitioning after columns are renamed; unknown where one that it needs is dropped."""
    try:
        sub = partitioning.subpartitioning
        if sub is not None:
            sub = replace(
                sub,
                expression=_followed_expression(sub.expression, new_names),
                columns=_followed_columns(sub.columns, new_names),
            )
        return replace(
            partitioning,
            expression=_followed_expression(partitioning.expression, new_names),
            columns=_followed_columns(partitioning.columns, new_names),
            subpartitioning=sub,
        )
    except UnknownPartitionsError as error:
        return Partitioning.unknown(str(error), str(partitioning))


def _followed_columns(columns: tuple[str, ...], new_names: dict[str, str]) -> tuple[str, ...]:
    gone = [name for name in columns if name.casefold() not in new_names]
    if gone:
        raise UnknownPartitionsError(f"column {', '.join(gone)} of the partitioning is gone")
    return tuple(new_names[name.casefold()] for name in columns)


def _followed_expression(expression: str, new_names: dict[str, str]) -> str:
    """The expression with columns by their new names; other words in it are functions and units."""
    if not expression:
        return expression
    cursor = Cursor(expression)
    text, end = "", 0
    while not cursor.done:
        token = cursor.skip()
        name = token.text.casefold()
        is_function = token.kind is Kind.WORD and cursor.at("(")
        if token.kind is Kind.QUOTED and name not in new_names:
            raise UnknownPartitionsError(f"column {token.text} of the partitioning is gone")
        if token.kind in (Kind.WORD, Kind.QUOTED) and not is_function and new_names.get(name, name).casefold() != name:
            if token.kind is Kind.WORD and token.text.upper() in _UNITS:
                raise UnknownPartitionsError(f"{token.text} is a renamed column or a unit")
            text += expression[end : token.start] + quoted(new_names[name])
            end = token.end
    return text + expression[end:]
