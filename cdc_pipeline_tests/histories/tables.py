"""The kinds of tables in histories, and the values of their columns."""

from __future__ import annotations

from functools import cache
from itertools import product

from cdc_pipeline_tests.histories.shapes import Columns, Image, Partitioning, Table
from cdc_pipeline_tests.histories.typed_texts import converted, labels

_PAYLOAD = (("note", "varchar(20)"), ("amount", "decimal(10,2)"), ("big", "bigint unsigned"), ("raw", "varbinary(8)"))

# printed by TiDB they cannot be read with escapes
_ODD_ENUM = r"enum('\','C:\new','it''s')"
_ODD_SET = r"set('a\b','\','it''s \')"

# kind → columns, primary key, unique key
_SHAPES: dict[str, tuple[Columns, tuple[str, ...], tuple[str, ...]]] = {
    "int_pk": ((("id", "int"), *_PAYLOAD[:2]), ("id",), ()),
    "composite_pk": ((("b", "varchar(20)"), _PAYLOAD[0], ("a", "bigint unsigned")), ("a", "b"), ()),
    "varbinary_pk": ((_PAYLOAD[2], ("k", "varbinary(8)"), _PAYLOAD[0]), ("k",), ()),
    "varchar_pk": ((("code", "varchar(20)"), ("span", "time(6)"), _PAYLOAD[3]), ("code",), ()),
    "decimal_pk": ((("d", "decimal(10,2)"), ("sum", "decimal(45,3)"), ("marks", "set('x','X','y')")), ("d",), ()),
    "time_pk": ((("at", "time"), _PAYLOAD[0], ("kind", "enum('a','A','b')")), ("at",), ()),
    "unique_only": ((_PAYLOAD[0], ("ref", "varchar(20)"), _PAYLOAD[1]), (), ("ref",)),
    "unique_pair": ((("x", "int"), ("n", "int"), ("y", "varbinary(8)")), (), ("y", "x")),
    "odd_labels": (
        (("id", "int"), ("mark", _ODD_ENUM), ("tags", _ODD_SET)),
        ("id",),
        (),
    ),
    "keyless": ((("a", "int"), _PAYLOAD[0], _PAYLOAD[1]), (), ()),
    "keyless_precise": ((("t", "time(6)"), ("long", "decimal(45,3)"), ("flags", "set('x','X','y')")), (), ()),
    "keyless_wide": ((("a", "varchar(20)"), _PAYLOAD[3]), (), ()),
}
_PARTED: dict[str, Partitioning] = {
    "range": Partitioning("id", ("p0", "p1", "p2"), (10, 20, 30)),
    "range_to_max": Partitioning("id", ("p0", "p1", "rest"), (10, 20, None)),
    "hash": Partitioning("id", ("p0", "p1", "p2")),
}
_PARTED_COLUMNS = (("id", "int"), *_PAYLOAD[:2])
BESIDE = "beside"
"""The kind of a table with the shape of a partitioned one, for EXCHANGE PARTITION. Its rows usually fit one partition."""

PARTED_KINDS = tuple(_PARTED)
PLAIN_KINDS = tuple(_SHAPES)
KINDS = (*PLAIN_KINDS, *PARTED_KINDS)

_TEXTS = ("a", "A", "a ", "A ", "", " ", "aB", "it's", '"\\', "é", "e\u0301", "😀", "null", "<&>", "1\n2", "#")
_BYTES = ("\x80", "\xff\xfe", "", "\x00", "\x00\x00", "a", "A", "\x7f", "\xc3\xa9", "\x85\n", "\xa0", "a\x00")
_DECIMALS = ("0.00", "1.00", "1.50", "-1.50", "10.00", "0.01", "-0.01", "99999999.99")
_LONG_DECIMALS = (*_DECIMALS, "12345678901234567890123456789012345678901.995", "-0.005", "9.999")
_TIMES = (
    *("00:00:00", "-12:30:00.5", "838:59:59", "-838:59:58.999", "23:59:59.999999", "00:00:00.6", "01:02:03.7"),
    *("-00:00:00.4", "12:00:00", "09:59:59.9995"),
)
_INTEGERS = ("1", "2", "3", "4", "5", "0", "-1", "10", "2147483647", "-2147483648")
_LONGS = ("1", "2", "3", "0", "9007199254740993", "9223372036854775807")
_UNSIGNED = (*_LONGS, "9223372036854775808", "18446744073709551615")
_PARTED_KEYS = ("1", "3", "6", "9", "10", "12", "19", "20", "25", "29", "30", "-4", "44")
_BESIDE_KEYS = ("3", "6", "9")


def keyed_kinds(kinds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(kind for kind in kinds if not kind.startswith("keyless"))


def table_of(kind: str, database: str, name: str, *, clustered: bool = True) -> Table:
    if kind in _PARTED:
        # for TiCDC, a row that moves to another partition is a DELETE and an INSERT, as in a clustered table
        return Table(database, name, _PARTED_COLUMNS, ("id",), kind=kind, partitioning=_PARTED[kind])
    columns, primary_key, unique = _SHAPES[kind]
    return Table(database, name, columns, primary_key, unique, clustered, kind)


@cache
def values(mysql_type: str, *, signed: bool) -> tuple[str, ...]:
    """Texts that a column of the type can hold. `signed`: no integer exceeds 2^63 - 1."""
    base = mysql_type.split("(")[0]
    if base == "bigint unsigned":
        return _LONGS if signed else _UNSIGNED
    if base == "decimal":
        # DataWorks sends a double, which has at most 15 digits
        long = int(mysql_type[8:].split(",")[0]) > 38 and not signed
        return tuple(
            dict.fromkeys(converted(value, mysql_type) or "" for value in (_LONG_DECIMALS if long else _DECIMALS))
        )
    if base == "time":
        return tuple(dict.fromkeys(converted(value, mysql_type) or "" for value in _TIMES))
    if base == "enum":
        return tuple(labels(mysql_type))
    if base == "set":
        first, *_, last = labels(mysql_type)
        return (f"{first},{last}", "", ",".join(labels(mysql_type)), last)
    return {"int": _INTEGERS, "bigint": (*_LONGS, "-2147483649"), "varchar": _TEXTS, "varbinary": _BYTES}[base]


def keys(table: Table, *, signed: bool) -> tuple[Image, ...]:
    """The possible keys of the table's rows, in the order of the key's columns. Few, so that keys are reused."""
    if table.partitioning is not None:
        part_of = table.partitioning.part_of
        return tuple((key,) for key in _PARTED_KEYS if part_of(key) is not None)
    if table.kind == BESIDE and [table.types[name] for name in table.key] == ["int"]:
        return tuple((key,) for key in _BESIDE_KEYS)
    return _keys(tuple(table.types[name] for name in table.key), signed)


@cache
def _keys(types: tuple[str, ...], signed: bool) -> tuple[Image, ...]:
    most = 12 if len(types) == 1 else 4
    return tuple(product(*(values(mysql_type, signed=signed)[:most] for mysql_type in types)))
