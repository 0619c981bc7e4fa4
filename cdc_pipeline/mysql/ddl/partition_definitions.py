"""Reads the definitions of partitions: their names and the values that they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.column_types import accept_introducer
from cdc_pipeline.mysql.ddl.tokens import Kind
from cdc_pipeline.mysql.model.limits import MOST_PARTITIONS, beyond
from cdc_pipeline.mysql.model.partitions import DEFAULT, MAXVALUE, NULL, Partition

if TYPE_CHECKING:
    from cdc_pipeline.mysql.ddl.tokens import Cursor

# Options of a partition, none of which moves a row; each has one word or string behind it.
_OPTIONS: tuple[tuple[str, ...], ...] = (
    ("STORAGE", "ENGINE"),
    ("ENGINE",),
    ("STORAGE",),
    ("COMMENT",),
    ("DATA", "DIRECTORY"),
    ("INDEX", "DIRECTORY"),
    ("MAX_ROWS",),
    ("MIN_ROWS",),
    ("TABLESPACE",),
    ("NODEGROUP",),
    ("PLACEMENT", "POLICY"),
)
_KEYWORDS = frozenset({MAXVALUE, NULL, DEFAULT})


def read_partitions(cursor: Cursor) -> tuple[Partition, ...]:
    """The definitions of partitions in the brackets at the cursor. Raises DdlSyntaxError for unknown words."""
    found: list[Partition] = []
    cursor.expect("(")
    while True:
        cursor.expect("PARTITION")
        found.append(_partition(cursor))
        if len(found) > MOST_PARTITIONS:
            raise cursor.error(beyond("partitions", len(found), MOST_PARTITIONS))
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(found)


def read_partition_name(cursor: Cursor) -> str:
    """The name of a partition.

    TiCDC's old architecture sends EXCHANGE PARTITION ``p0``, which quotes a name twice: two empty names in quotes with
    the name itself between them.
    """
    opening = cursor.peek()
    name = cursor.identifier("a partition name")
    if name or opening is None or opening.kind is not Kind.QUOTED:
        return name
    while not cursor.at_kind(Kind.QUOTED):
        cursor.skip()
    closing = cursor.skip()
    if closing.text:
        cursor.index -= 1
        raise cursor.error("the second pair of back quotes expected")
    return cursor.text[opening.end : closing.start]


def read_bound(cursor: Cursor) -> str:
    """The value of LESS THAN (value), as TiDB's clauses have it."""
    cursor.expect("LESS", "THAN", "(")
    values = _values(cursor)
    if len(values) != 1:
        raise cursor.error("one value expected")
    return values[0]


def _partition(cursor: Cursor) -> Partition:
    name = read_partition_name(cursor)
    less_than: tuple[str, ...] = ()
    values: tuple[tuple[str, ...], ...] = ()
    if cursor.accept("VALUES", "LESS", "THAN"):
        less_than = (MAXVALUE,)
        if not cursor.accept(MAXVALUE):
            cursor.expect("(")
            less_than = _values(cursor)
    elif cursor.accept("VALUES", "IN"):
        values = _tuples(cursor)
    elif cursor.accept(DEFAULT):
        values = ((DEFAULT,),)
    _accept_options(cursor)
    subpartitions: list[str] = []
    if cursor.accept("("):
        while True:
            cursor.expect("SUBPARTITION")
            subpartitions.append(cursor.identifier("a subpartition name"))
            _accept_options(cursor)
            if not cursor.accept(","):
                break
        cursor.expect(")")
    return Partition(name, less_than, values, tuple(subpartitions))


def _accept_options(cursor: Cursor) -> None:
    while any(cursor.accept(*words) for words in _OPTIONS):
        cursor.accept("=")
        cursor.take(Kind.WORD, Kind.QUOTED, Kind.STRING, Kind.NUMBER, what="the value of an option")


def _tuples(cursor: Cursor) -> tuple[tuple[str, ...], ...]:
    """An IN list: values, or tuples of values in brackets."""
    items: list[tuple[str, ...]] = []
    cursor.expect("(")
    while True:
        before = cursor.index
        item = _values(cursor) if cursor.accept("(") else ()
        if len(item) < 2 or not cursor.at_any(",", ")"):
            # brackets of an expression
            cursor.index = before
            item = (_value(cursor),)
        items.append(item)
        if not cursor.accept(","):
            break
    cursor.expect(")")
    return tuple(items)


def _values(cursor: Cursor) -> tuple[str, ...]:
    """The values up to the closing bracket, past it too."""
    values = [_value(cursor)]
    while cursor.accept(","):
        values.append(_value(cursor))
    cursor.expect(")")
    return tuple(values)


def _value(cursor: Cursor) -> str:
    start = cursor.position
    # so TiDB prints all strings, that of dates too
    if accept_introducer(cursor) in ("utf8mb4", "utf8mb3", "utf8"):
        start = cursor.position
    while not cursor.at_any(",", ")"):
        if cursor.at("("):
            cursor.group()
        else:
            cursor.skip()
    text = cursor.since(start)
    if not text:
        raise cursor.error("a value expected")
    return text.upper() if text.upper() in _KEYWORDS else text
