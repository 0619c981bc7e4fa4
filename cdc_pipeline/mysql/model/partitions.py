"""How MySQL or TiDB divides a table's rows among its partitions. Plain values only.

`ddl_partitions` reads them, `partition_evolution` changes them, and `partition_rows` says which rows lie in which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from cdc_pipeline.mysql.model.limits import short
from cdc_pipeline.mysql.model.quoted_names import quoted

MAXVALUE = "MAXVALUE"
"""The bound above all values; a string of these letters has its quotes."""
NULL = "NULL"
"""In a list: rows whose value is NULL."""
DEFAULT = "DEFAULT"
"""In a list: rows that no other partition lists (TiDB, MariaDB)."""


_MOST_KEPT = 65_536
"""Characters of a partitioning that could not be read, which the definition keeps."""


class UnknownPartitionsError(ValueError):
    """Partitions that cannot be told, because what is said of them does not fit what is known."""


HashMethod = Literal["hash", "linear hash", "key", "linear key"]
Method = Literal["range", "range columns", "list", "list columns", "unknown"] | HashMethod


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition. All values are expressions as the statement has them.

    `less_than` is its upper bound, one value for each column, MAXVALUE among them; `values` are the tuples of its IN
    list, NULL and DEFAULT among them; both are empty for HASH and KEY. `subpartitions` are the names that are given.
    """

    name: str
    less_than: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    subpartitions: tuple[str, ...] = ()

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
    """How each partition is divided once more: by an expression (HASH) or columns (KEY), into `count` parts."""

    method: HashMethod
    expression: str
    columns: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class Interval:
    """TiDB's INTERVAL: bounds from `first` to `last` in steps of `amount`, `unit` is "" where they are numbers."""

    amount: int
    unit: str
    first: str
    last: str
    null_partition: bool = False
    maxvalue_partition: bool = False


@dataclass(frozen=True, slots=True)
class Partitioning:
    """A table's partitioning: by `expression` (RANGE, LIST, HASH) or by `columns` (… COLUMNS, KEY).

    `unknown` is one that could not be read or followed; then `reason` says why and `text` is what was read last.
    """

    method: Method
    expression: str = ""
    columns: tuple[str, ...] = ()
    partitions: tuple[Partition, ...] = ()
    subpartitioning: Subpartitioning | None = None
    interval: Interval | None = None
    reason: str = ""
    text: str = ""

    @staticmethod
    def unknown(reason: str, text: str) -> Partitioning:
        """A partitioning of which only its text is known."""
        return Partitioning("unknown", reason=short(reason), text=text if len(text) <= _MOST_KEPT else short(text))

    @property
    def known(self) -> bool:
        return self.method != "unknown"

    def position(self, name: str) -> int | None:
        """Where the partition of that name stands; MySQL compares their names without case."""
        folded = name.casefold()
        return next((place for place, part in enumerate(self.partitions) if part.name.casefold() == folded), None)

    def subpartition_names(self) -> tuple[str, ...]:
        """The names of all subpartitions, MySQL's own where none are given."""
        if self.subpartitioning is None:
            return ()
        numbers = range(self.subpartitioning.count)
        automatic = {part.name: tuple(f"{part.name}sp{number}" for number in numbers) for part in self.partitions}
        return tuple(name for part in self.partitions for name in part.subpartitions or automatic[part.name])

    def __str__(self) -> str:
        if not self.known:
            return f"{' '.join(self.text.split())} [unknown: {self.reason}]"
        text = f"PARTITION BY {_head(self.method, self.expression, self.columns)}"
        if self.subpartitioning is not None:
            sub = self.subpartitioning
            text += f" SUBPARTITION BY {_head(sub.method, sub.expression, sub.columns)} SUBPARTITIONS {sub.count}"
        return f"{text} {partitions_as_text(self.partitions)}" if self.partitions else text


def partitions_as_text(partitions: tuple[Partition, ...]) -> str:
    """Partitions in brackets, as a statement defines them."""
    return f"({', '.join(str(partition) for partition in partitions)})"


def _head(method: str, expression: str, columns: tuple[str, ...]) -> str:
    return f"{method.upper()} ({expression or ', '.join(quoted(name) for name in columns)})"


def partitioning_from_plain(plain: dict[str, Any]) -> Partitioning:
    """The partitioning of which `plain` has the fields, as JSON gives them."""
    sub, interval = plain["subpartitioning"], plain["interval"]
    return Partitioning(
        method=plain["method"],
        expression=plain["expression"],
        columns=tuple(plain["columns"]),
        partitions=tuple(
            Partition(
                name=item["name"],
                less_than=tuple(item["less_than"]),
                values=tuple(tuple(values) for values in item["values"]),
                subpartitions=tuple(item["subpartitions"]),
            )
            for item in plain["partitions"]
        ),
        subpartitioning=None if sub is None else Subpartitioning(**{**sub, "columns": tuple(sub["columns"])}),
        interval=None if interval is None else Interval(**interval),
        reason=plain["reason"],
        text=plain["text"],
    )
