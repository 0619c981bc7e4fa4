"""Clauses of ALTER TABLE about partitions. `changes` has them among all clauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import assert_never

from cdc_pipeline.mysql.model.partitions import partitions_as_text

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.partitions import Partition, Partitioning
    from cdc_pipeline.mysql.model.table import TableName

# ---- clauses that remove or exchange rows, which no row message tells


@dataclass(frozen=True, slots=True)
class TruncatePartition:
    """Removes the rows of these partitions; of all where there are no names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DropPartition:
    """Removes these partitions with their rows."""

    names: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ExchangePartition:
    """Gives the partition's rows to `table` and those of `table` to the partition.

    Not `validated` (WITHOUT VALIDATION): the partition may then have rows that its definition does not allow.
    """

    name: str
    table: TableName
    validated: bool = True


@dataclass(frozen=True, slots=True)
class FirstPartition:
    """TiDB's FIRST PARTITION LESS THAN: drops all partitions before the one with that bound, which stays."""

    bound: str


# ---- clauses after which every row is still there


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """ADD PARTITION with definitions, or with a number of partitions more (HASH and KEY)."""

    partitions: tuple[Partition, ...]
    count: int | None = None
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReorganizePartition:
    """Puts partitions in the place of others; without names it changes no definition."""

    names: tuple[str, ...]
    partitions: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class CoalescePartition:
    """That many partitions less (HASH and KEY)."""

    count: int


@dataclass(frozen=True, slots=True)
class PartitionBy:
    """A new partitioning; an unknown one also stands for a clause on partitions that could not be read."""

    partitioning: Partitioning


@dataclass(frozen=True, slots=True)
class RemovePartitioning:
    pass


@dataclass(frozen=True, slots=True)
class MergeFirstPartition:
    """TiDB's MERGE FIRST PARTITION LESS THAN: all partitions up to that bound become one."""

    bound: str


@dataclass(frozen=True, slots=True)
class LastPartition:
    """TiDB's LAST PARTITION LESS THAN and SPLIT MAXVALUE PARTITION LESS THAN: more partitions up to that bound."""

    bound: str


PartitionRowsClause: TypeAlias = TruncatePartition | DropPartition | ExchangePartition | FirstPartition
PartitionDefinitionClause: TypeAlias = (
    AddPartitions
    | ReorganizePartition
    | CoalescePartition
    | PartitionBy
    | RemovePartitioning
    | MergeFirstPartition
    | LastPartition
)


def described_partition_clause(clause: PartitionRowsClause | PartitionDefinitionClause) -> str:
    """The clause in words, without its kind; "" where there is no more to say."""
    match clause:
        case TruncatePartition():
            return ", ".join(clause.names) or "ALL"
        case DropPartition():
            return ("if exists " if clause.if_exists else "") + ", ".join(clause.names)
        case ExchangePartition():
            return f"{clause.name} with {clause.table}{'' if clause.validated else ' without validation'}"
        case AddPartitions():
            number = "" if clause.count is None else f"{clause.count} more"
            text = number or partitions_as_text(clause.partitions)
            return ("if not exists " if clause.if_not_exists else "") + text
        case ReorganizePartition():
            into = f" into {partitions_as_text(clause.partitions)}" if clause.partitions else ""
            return ", ".join(clause.names) + into
        case CoalescePartition():
            return f"{clause.count} less"
        case PartitionBy():
            return str(clause.partitioning)
        case RemovePartitioning():
            return ""
        case FirstPartition() | MergeFirstPartition() | LastPartition():
            return f"less than {clause.bound}"
        case _:
            assert_never(clause)
