"""The partitioning of a MySQL or TiDB table.

`mysql.ddl.partitioning` parses it, `mysql.ddl.partition_evolution` changes it, `mysql.expressions.partition_rows` selects
the rows of a partition. Stored in plans and mirror properties by field name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc_pipeline.mysql.model.limits import shortened
from cdc_pipeline.mysql.model.quoted_names import quoted

MAXVALUE = "MAXVALUE"
"""The bound above all values. The string literal 'MAXVALUE' keeps its quotes."""
NULL = "NULL"
"""The NULL of an IN list."""
DEFAULT = "DEFAULT"
"""The IN list of the partition for all other values (TiDB, MariaDB)."""
_MOST_KEPT = 65_536
"""Maximum characters that `Partitioning.unknown` keeps of the text."""


class UnknownPartitionsError(ValueError):
    """The partitions of a table cannot be determined."""


Method = Literal["range", "range columns", "list", "list columns", "hash", "unknown"]


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. Its values are expressions as written. HASH partitions have neither bound nor list."""

    name: str
    less_than: tuple[str, ...] = ()
    """RANGE: the upper bound, one value or MAXVALUE per column."""
    values: tuple[tuple[str, ...], ...] = ()
    """LIST: the tuples of the IN list, including NULL and DEFAULT."""

    def __str__(self) -> str:
        text = f"PARTITION {quoted(self.name)}"
        if self.less_than:
            text += f" VALUES LESS THAN ({', '.join(self.less_than)})"
        if self.values:
            items = (item[0] if len(item) == 1 else f"({', '.join(item)})" for item in self.values)
            text += f" VALUES IN ({', '.join(items)})"
        return text


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitioning of a table. The method `unknown` means that it cannot be parsed or derived."""

    method: Method
    expression: str = ""
    """RANGE, LIST and HASH: the partitioning expression."""
    columns: tuple[str, ...] = ()
    """RANGE COLUMNS and LIST COLUMNS: the partitioning columns."""
    partitions: tuple[Partition, ...] = ()
    reason: str = ""
    """Why the method is `unknown`."""
    text: str = ""
    """The last text of an `unknown` partitioning."""

    @staticmethod
    def unknown(reason: str, text: str) -> Partitioning:
        """An unknown partitioning. Long texts are cut."""
        return Partitioning(
            "unknown", reason=shortened(reason), text=text if len(text) <= _MOST_KEPT else shortened(text)
        )

    @property
    def is_known(self) -> bool:
        return self.method != "unknown"

    def index_of(self, name: str) -> int | None:
        """The index of the partition of this name, ignoring case as MySQL does; None if there is none."""
        folded = name.casefold()
        return next((index for index, part in enumerate(self.partitions) if part.name.casefold() == folded), None)

    def __str__(self) -> str:
        if not self.is_known:
            return f"{' '.join(self.text.split())} [unknown: {self.reason}]"
        by = self.expression or ", ".join(quoted(name) for name in self.columns)
        return f"PARTITION BY {self.method.upper()} ({by}) {partitions_as_text(self.partitions)}"


def partitions_as_text(partitions: tuple[Partition, ...]) -> str:
    """The definitions in brackets, as in a statement."""
    return f"({', '.join(str(partition) for partition in partitions)})"
