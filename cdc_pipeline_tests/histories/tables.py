"""The kinds of tables that histories have, and the values that their columns may hold."""

from __future__ import annotations

from functools import cache
from itertools import product

from cdc_pipeline_tests.histories.upstream import Image, Table

_PAYLOAD = (("note", "varchar(20)"), ("amount", "decimal(10,2)"), ("big", "bigint unsigned"), ("raw", "varbinary(8)"))

# kind → columns, primary key, unique key
_SHAPES: dict[str, tuple[tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]]] = {
    "int_pk": ((("id", "int"), *_PAYLOAD[:2]), ("id",), ()),
    "composite_pk": ((("b", "varchar(20)"), _PAYLOAD[0], ("a", "bigint unsigned")), ("a", "b"), ()),
    "varbinary_pk": ((_PAYLOAD[2], ("k", "varbinary(8)"), _PAYLOAD[0]), ("k",), ()),
    "varchar_pk": ((("code", "varchar(20)"), ("n", "int"), _PAYLOAD[3]), ("code",), ()),
    "decimal_pk": ((("d", "decimal(10,2)"), _PAYLOAD[0]), ("d",), ()),
    "unique_only": ((_PAYLOAD[0], ("ref", "varchar(20)"), _PAYLOAD[1]), (), ("ref",)),
    "unique_pair": ((("x", "int"), ("n", "int"), ("y", "varbinary(8)")), (), ("y", "x")),
    "keyless": ((("a", "int"), _PAYLOAD[0], _PAYLOAD[1]), (), ()),
    "keyless_wide": ((("a", "varchar(20)"), _PAYLOAD[3]), (), ()),
}
KINDS = tuple(_SHAPES)
KEYED_KINDS = tuple(kind for kind in KINDS if not kind.startswith("keyless"))

_TEXTS = ("a", "A", "a ", "A ", "", " ", "aB", "it's", '"\\', "é", "e\u0301", "😀", "null", "<&>", "1\n2", "#")
_BYTES = ("\x80", "\xff\xfe", "", "\x00", "\x00\x00", "a", "A", "\x7f", "\xc3\xa9", "\x85\n", "\xa0", "a\x00")
_DECIMALS = ("0.00", "1.00", "1.50", "-1.50", "10.00", "0.01", "-0.01", "99999999.99")
_INTEGERS = ("1", "2", "3", "4", "5", "0", "-1", "10", "2147483647", "-2147483648")
_LONGS = ("1", "2", "3", "0", "9007199254740993", "9223372036854775807")
_UNSIGNED = (*_LONGS, "9223372036854775808", "18446744073709551615")


def table_of(kind: str, database: str, name: str, *, clustered: bool = True) -> Table:
    columns, primary_key, unique = _SHAPES[kind]
    return Table(database, name, columns, primary_key, unique, clustered, kind)


@cache
def values(mysql_type: str, *, signed: bool) -> tuple[str, ...]:
    """Texts that a column of the type may hold; with `signed` no integer above 2^63 - 1."""
    base = mysql_type.split("(")[0]
    if base == "bigint unsigned":
        return _LONGS if signed else _UNSIGNED
    return {"int": _INTEGERS, "varchar": _TEXTS, "varbinary": _BYTES, "decimal": _DECIMALS}[base]


def keys(table: Table, *, signed: bool) -> tuple[Image, ...]:
    """The keys that rows of the table may have, in the order of the key's columns. Few, so that they come again."""
    types = dict(table.columns)
    return _keys(tuple(types[name] for name in table.key), signed)


@cache
def _keys(types: tuple[str, ...], signed: bool) -> tuple[Image, ...]:
    most = 12 if len(types) == 1 else 4
    return tuple(product(*(values(words, signed=signed)[:most] for words in types)))
