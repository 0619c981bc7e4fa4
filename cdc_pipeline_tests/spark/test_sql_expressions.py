"""Expressions of computed columns: which are accepted at load, and the replacement of column names. No JVM."""

from __future__ import annotations

import pytest

from cdc_pipeline.spark.sql_expressions import SparkExpressionError, parse_spark_expression, parse_spark_type

# text → its column names
_TAKEN: dict[str, tuple[str, ...]] = {
    "price * quantity": ("price", "quantity"),
    "1": (),
    "`a b` + `c``d`": ("a b", "c`d"),
    "`grün` || upper(`😀`) || 'price'": ("grün", "😀"),
    '"a" || b': ("b",),
    "concat('it\\'s', 'it''s', a)": ("a",),
    "case when (a > 1) then (b) else c end": ("a", "b", "c"),
    "cast(a as decimal(12,2)) + try_cast(b as int) + c::int": ("a", "b", "c"),
    "a in (1, 2) and (b or not (c)) and d is not null": ("a", "b", "c", "d"),
    "a between b and c or a <=> d or a is distinct from e": ("a", "b", "c", "d", "e"),
    "to_date(created_at, 'yyyy')": ("created_at",),
    "date_add(day, 1, d)": ("d",),
    "timestampdiff(day, a, b)": ("a", "b"),
    "extract(year from at) + interval 1 day": ("at",),
    "d + interval '1' month": ("d",),
    "date '2026-01-02' - d": ("d",),
    "transform(v, x -> x + p)": ("v", "p"),
    "aggregate(v, 0.0, (sum, x) -> sum + x)": ("v",),
    "v[0]": ("v",),
    "named_struct('x', a).x": ("a",),
    "substring(a from 2 for 3)": ("a",),
    "unix_timestamp(a)": ("a",),
    "date": ("date",),
    "localtimestamp": ("localtimestamp",),
    "to_json(struct(a as x))": ("a",),
    "date '-0044-03-15'": (),
    "Price + PRICE": ("Price", "PRICE"),
}
# text → part of the error message
_REFUSED = {
    "": "is not one Spark SQL expression",
    "price *": "cannot be parsed",
    "a, b": "cannot be parsed",
    "a b": "contains a subquery, a star",
    "a as b": "contains a subquery, a star",
    "(a b)": "contains a subquery, a star",
    "a;": "is not one Spark SQL expression",
    "a; b": "is not one Spark SQL expression",
    "a -- and more": "without comments",
    "/* more */ a": "without comments",
    "select a": "contains a subquery, a star",
    "(select 1)": "contains a subquery, a star",
    "a in (select 1)": "contains a subquery, a star",
    "exists(select 1)": "contains a subquery, a star",
    "(values (1))": "contains a subquery, a star",
    "(table t)": "contains a subquery, a star",
    "drop table x": "is not a Spark SQL expression",
    "*": "contains a subquery, a star",
    "hash(*)": "contains a subquery, a star",
    "count(*)": "contains a subquery, a star",
    "first(a) filter (where b)": "is not a Spark SQL expression",
    "aes_encrypt(a, b)": "calls aes_encrypt",
    "`VERSION` ()": "calls version",
    "identifier('a')": "calls identifier",
    "date'today' - d": "'today' is not a date",
    "timestamp 'NOW '": "'NOW ' is not a date",
    "timestamp 'now UTC'": "'now UTC' is not a date",
    "date '\\164oday'": "'today' is not a date",
    "date r'now'": "cannot be parsed",
    "orders.price": "is not a column name",
    ":p": "contains a subquery, a star",
    "a + :p": "contains a subquery, a star",
    "{x}": "contains a subquery, a star",
    "@x": "contains a subquery, a star",
}


@pytest.mark.parametrize("text", _TAKEN)
def test_what_is_taken(text: str) -> None:
    found = parse_spark_expression(text)
    assert found.column_names == _TAKEN[text]
    # only the names are replaced
    assert found.to_sql({name: f"<{name}>" for name in found.column_names}) is not None
    left, place = "", 0
    for reference in found.references:
        left += text[place : reference.start]
        place = reference.end
    assert [name for name in found.column_names if name in ("price", "quantity") and name in left] == []


@pytest.mark.parametrize("text", _REFUSED)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(SparkExpressionError) as error:
        parse_spark_expression(text)
    assert _REFUSED[text] in str(error.value)


def test_cells_are_put_in_for_names_without_regard_to_case() -> None:
    found = parse_spark_expression("case when Price > 1 then upper('price') else transform(v, price -> price + n) end")
    assert found.column_names == ("Price", "v", "n")
    assert found.to_sql({"PRICE": "s.c0", "V": "s.c1", "N": "CASE WHEN s.h2 THEN s.c2 ELSE t.`N` END"}) == (
        "case when (s.c0) > 1 then upper('price') else "
        "transform((s.c1), price -> price + (CASE WHEN s.h2 THEN s.c2 ELSE t.`N` END)) end"
    )
    assert found.missing_columns(["price", "N"]) == ["v"]
    assert found.to_sql({"price": "c0", "n": "c1"}) is None


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("INT", "int"),
        ("byte", "tinyint"),
        ("Decimal( 12 , 2 )", "decimal(12,2)"),
        ("numeric(5)", "decimal(5,0)"),
        ("decimal", "decimal(10,0)"),
        ("timestamp_ntz", "timestamp_ntz"),
        ("array<decimal(38,38)>", "array<decimal(38,38)>"),
        ("array<array<string>>", "array<array<string>>"),
    ],
)
def test_types(text: str, simple: str) -> None:
    assert parse_spark_type(text).simpleString() == simple
    assert parse_spark_type(simple) == parse_spark_type(text)


@pytest.mark.parametrize("text", ["", "varchar(3)", "decimal(39,2)", "decimal(2,3)", "decimal(0)", "map<int,int>", "x"])
def test_no_types(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Spark SQL type for a column"):
        parse_spark_type(text)
