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


HashMethod = Literal["hash", "linear hash", "key", "linear key"]
Method = Literal["range", "range columns", "list", "list columns", "unknown"] | HashMethod


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. Its values are expressions as written. HASH and KEY partitions have neither bound nor list."""

    name: str
    less_than: tuple[str, ...] = ()
    """RANGE: the upper bound, one value or MAXVALUE per column."""
    values: tuple[tuple[str, ...], ...] = ()
    """LIST: the tuples of the IN list, including NULL and DEFAULT."""
    subpartitions: tuple[str, ...] = ()
    """The names of its subpartitions if the definition gives them."""

    def __str__(self) -> str:
        text = f"PARTITION {quoted(self.name)}"
        if self.less_than:
            text += f" VALUES LESS THAN ({', '.join(self.less_than)})"
        if self.values:
            items = (item[0] if len(item) == 1 else f"({', '.join(item)})" for item in self.values)
            text += f" VALUES IN ({', '.join(items)})"
        if self.subpartitions:
            text += f" ({', '.join(f'SUBPARTITION {quoted(name)}' for name in self.subpartitions)})"
        return text


@dataclass(frozen=True, slots=True)
class Subpartitioning:
    """SUBPARTITION BY."""

    method: HashMethod
    expression: str
    """HASH: the expression, else ""."""
    columns: tuple[str, ...]
    """KEY: the columns, else empty."""
    count: int
    """Subpartitions per partition."""


@dataclass(frozen=True, slots=True)
class Interval:
    """TiDB's RANGE … INTERVAL: one partition per step from `first` to `last`."""

    amount: int
    unit: str
    """The unit of `amount` for dates, such as MONTH; "" for numbers."""
    first: str
    last: str
    null_partition: bool = False
    maxvalue_partition: bool = False


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitioning of a table. The method `unknown` means that it cannot be parsed or derived."""

    method: Method
    expression: str = ""
    """RANGE, LIST and HASH: the partitioning expression."""
    columns: tuple[str, ...] = ()
    """RANGE COLUMNS, LIST COLUMNS and KEY: the partitioning columns."""
    partitions: tuple[Partition, ...] = ()
    subpartitioning: Subpartitioning | None = None
    interval: Interval | None = None
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

    def subpartition_names(self) -> tuple[str, ...]:
        """The names of all subpartitions. Where the definition gives none, MySQL's generated names."""
        if self.subpartitioning is None:
            return ()
        numbers = range(self.subpartitioning.count)
        automatic = {part.name: tuple(f"{part.name}sp{number}" for number in numbers) for part in self.partitions}
        return tuple(name for part in self.partitions for name in part.subpartitions or automatic[part.name])

    def __str__(self) -> str:
        if not self.is_known:
            return f"{' '.join(self.text.split())} [unknown: {self.reason}]"
        text = f"PARTITION BY {_head(self.method, self.expression, self.columns)}"
        if self.subpartitioning is not None:
            sub = self.subpartitioning
            text += f" SUBPARTITION BY {_head(sub.method, sub.expression, sub.columns)} SUBPARTITIONS {sub.count}"
        return f"{text} {partitions_as_text(self.partitions)}" if self.partitions else text


def partitions_as_text(partitions: tuple[Partition, ...]) -> str:
    """The definitions in brackets, as in a statement."""
    return f"({', '.join(str(partition) for partition in partitions)})"


def _head(method: str, expression: str, columns: tuple[str, ...]) -> str:
    return f"{method.upper()} ({expression or ', '.join(quoted(name) for name in columns)})"
