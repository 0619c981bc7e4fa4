"""Clauses of ALTER TABLE about partitions. `changes` has them among all clauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from cdc_pipeline.mysql.model.base_changes import KeepingClause, RemovingClause
from cdc_pipeline.mysql.model.partitions import partitions_as_text

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.partitions import Partition, Partitioning
    from cdc_pipeline.mysql.model.table import TableName

# ---- clauses that remove or exchange rows, which no row message tells


@dataclass(frozen=True, slots=True)
class TruncatePartition(RemovingClause):
    """Removes the rows of these partitions; of all where there are no names."""

    names: tuple[str, ...]

    def details(self) -> str:
        return ", ".join(self.names) or "ALL"


@dataclass(frozen=True, slots=True)
class DropPartition(RemovingClause):
    """Removes these partitions with their rows."""

    names: tuple[str, ...]
    if_exists: bool = False

    def details(self) -> str:
        return ("if exists " if self.if_exists else "") + ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class ExchangePartition(RemovingClause):
    """Gives the partition's rows to `table` and those of `table` to the partition.

    Not `validated` (WITHOUT VALIDATION): the partition may then have rows that its definition does not allow.
    """

    name: str
    table: TableName
    validated: bool = True

    def details(self) -> str:
        return f"{self.name} with {self.table}{'' if self.validated else ' without validation'}"


@dataclass(frozen=True, slots=True)
class FirstPartition(RemovingClause):
    """TiDB's FIRST PARTITION LESS THAN: drops all partitions before the one with that bound, which stays."""

    bound: str

    def details(self) -> str:
        return f"less than {self.bound}"


# ---- clauses after which every row is still there


@dataclass(frozen=True, slots=True)
class AddPartitions(KeepingClause):
    """ADD PARTITION with definitions, or with a number of partitions more (HASH and KEY)."""

    partitions: tuple[Partition, ...]
    count: int | None = None
    if_not_exists: bool = False

    def details(self) -> str:
        added = partitions_as_text(self.partitions) if self.count is None else f"{self.count} more"
        return ("if not exists " if self.if_not_exists else "") + added


@dataclass(frozen=True, slots=True)
class ReorganizePartition(KeepingClause):
    """Puts partitions in the place of others; without names it changes no definition."""

    names: tuple[str, ...]
    partitions: tuple[Partition, ...]

    def details(self) -> str:
        return ", ".join(self.names) + (f" into {partitions_as_text(self.partitions)}" if self.partitions else "")


@dataclass(frozen=True, slots=True)
class CoalescePartition(KeepingClause):
    """That many partitions less (HASH and KEY)."""

    count: int

    def details(self) -> str:
        return f"{self.count} less"


@dataclass(frozen=True, slots=True)
class PartitionBy(KeepingClause):
    """A new partitioning; an unknown one also stands for a clause on partitions that could not be read."""

    partitioning: Partitioning

    def details(self) -> str:
        return str(self.partitioning)


@dataclass(frozen=True, slots=True)
class RemovePartitioning(KeepingClause):
    def details(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class MergeFirstPartition(KeepingClause):
    """TiDB's MERGE FIRST PARTITION LESS THAN: all partitions up to that bound become one."""

    bound: str

    def details(self) -> str:
        return f"less than {self.bound}"


@dataclass(frozen=True, slots=True)
class LastPartition(KeepingClause):
    """TiDB's LAST PARTITION LESS THAN and SPLIT MAXVALUE PARTITION LESS THAN: more partitions up to that bound."""

    bound: str

    def details(self) -> str:
        return f"less than {self.bound}"


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
