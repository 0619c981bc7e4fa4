"""Clauses of ALTER TABLE about table partitions. `schema_changes` exports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from cdc_pipeline.mysql.model.base_changes import KeepingClause, RemovingClause
from cdc_pipeline.mysql.model.partitions import Partition, Partitioning, partitions_as_text
from cdc_pipeline.mysql.model.table import TableName

# ---- clauses that remove or exchange rows. No row event reports these rows.


@dataclass(frozen=True, slots=True)
class TruncatePartition(RemovingClause):
    names: tuple[str, ...]
    """Empty means ALL."""

    def details(self) -> str:
        return ", ".join(self.names) or "ALL"


@dataclass(frozen=True, slots=True)
class DropPartition(RemovingClause):
    names: tuple[str, ...]
    if_exists: bool = False

    def details(self) -> str:
        return ("if exists " if self.if_exists else "") + ", ".join(self.names)


@dataclass(frozen=True, slots=True)
class ExchangePartition(RemovingClause):
    """Swaps the rows of the partition and of `table`."""

    name: str
    table: TableName
    validated: bool = True
    """False means WITHOUT VALIDATION: the partition may receive rows outside its definition."""

    def details(self) -> str:
        return f"{self.name} with {self.table}{'' if self.validated else ' without validation'}"


# ---- clauses that keep all rows


@dataclass(frozen=True, slots=True)
class AddPartitions(KeepingClause):
    """ADD PARTITION."""

    partitions: tuple[Partition, ...]
    count: int | None = None
    """The number of added partitions (HASH) if the clause has no definitions."""
    if_not_exists: bool = False

    def details(self) -> str:
        added = partitions_as_text(self.partitions) if self.count is None else f"{self.count} more"
        return ("if not exists " if self.if_not_exists else "") + added


@dataclass(frozen=True, slots=True)
class ReorganizePartition(KeepingClause):
    """Replaces the named partitions with `partitions`. Without names it changes no definition."""

    names: tuple[str, ...]
    partitions: tuple[Partition, ...]

    def details(self) -> str:
        return ", ".join(self.names) + (f" into {partitions_as_text(self.partitions)}" if self.partitions else "")


@dataclass(frozen=True, slots=True)
class CoalescePartition(KeepingClause):
    count: int
    """The number of removed partitions (HASH)."""

    def details(self) -> str:
        return f"{self.count} less"


@dataclass(frozen=True, slots=True)
class PartitionBy(KeepingClause):
    """PARTITION BY. A clause about partitions that cannot be parsed is a PartitionBy with an unknown partitioning."""

    partitioning: Partitioning

    def details(self) -> str:
        return str(self.partitioning)


@dataclass(frozen=True, slots=True)
class RemovePartitioning(KeepingClause):
    def details(self) -> str:
        return ""


PartitionRowsClause: TypeAlias = TruncatePartition | DropPartition | ExchangePartition
PartitionDefinitionClause: TypeAlias = (
    AddPartitions | ReorganizePartition | CoalescePartition | PartitionBy | RemovePartitioning
)
