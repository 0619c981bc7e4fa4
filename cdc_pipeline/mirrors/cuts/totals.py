"""The balance of a cut: every row change that it reads is counted under one outcome."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_pipeline.lake.control_tables import read_sums
from cdc_pipeline.lake.file_statistics import Condition
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.consistent_cuts import CUTS, newest_rebuild, read_newest_cut


@dataclass(frozen=True)
class CutTotals:
    """Row changes by outcome."""

    changes: int
    """All that the cut took in: applied, superseded, rejected and duplicates."""
    applied: int
    """Changes that the mirrors show."""
    rejected: int
    """Changes that became dead letters."""
    duplicates: int
    """Changes that were delivered before."""
    late: int
    """Changes at or below the TSO that the mirrors had applied, `breaches` included; the others are redeliveries."""
    breaches: int
    """Late changes that the change log did not have."""
    pending: int
    """Changes above the resolved TSO or of held tables. Each cut counts them again."""
    filtered: int = 0
    """Changes of excluded tables."""

    @property
    def superseded(self) -> int:
        """Changes that a later change of the same row or table replaced."""
        return self.changes - self.applied - self.rejected - self.duplicates


NO_CHANGES = CutTotals(0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class LakeBalance:
    """All row changes that were decoded up to the newest cut, and the sums of what the cuts counted."""

    decoded: int
    in_cuts: int
    late: int
    pending: int
    filtered: int = 0

    @property
    def is_balanced(self) -> bool:
        return self.decoded == self.in_cuts + self.late + self.filtered + self.pending


def lake_balance(lake: Lake) -> LakeBalance:
    """Compares all cuts since the newest full rebuild with all batches that they cover."""
    newest = read_newest_cut(lake)
    if newest is None:
        return LakeBalance(0, 0, 0, 0)
    since: Condition = ("cut_id", ">=", newest_rebuild(lake))
    cuts = read_sums(lake, CUTS, since, columns=["changes", "late", "filtered"])
    batches = read_sums(lake, "batches", ("batch_id", "<=", newest["last_batch"]), columns=["row_changes"])
    return LakeBalance(batches["row_changes"], cuts["changes"], cuts["late"], newest["pending"], cuts["filtered"])
