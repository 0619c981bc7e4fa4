"""`include`, `exclude` and `routes`: included tables and their mirror names, in Python and in Spark SQL."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, SELECTION_JSON, Route, TableSelection
from cdc_pipeline.mirrors.settings.table_patterns import matches
from cdc_pipeline.mysql.model.table import TableName

_TEXTS = [
    "",
    "a",
    "Ä",
    "o'b",
    'q"r',
    "s\\t",
    "`",
    "line\nend\n",
    "\r",
    "a.b",
    "[x]",
    "^",
    "x-y",
    "&&",
    "{}",
    "%_",
    "\u2028",
]
_NAMES = [
    *(TableName(text, "orders") for text in _TEXTS),
    *(
        TableName("shop", text)
        for text in (*_TEXTS, "😀", "a😀b", "é", "e\u0301", "orders", "Orders", "orders_1", "tmp_x")
    ),
    TableName("shop.eu", "orders"),
    TableName("shop_2", "orders_07"),
]
_PATTERNS = [
    *("*", "shop.*", "*.orders", "shop.orders", "SHOP.*", "?hop.*", "shop.?", "shop.??", "shop.a?b", "shop.[ao]*"),
    *("shop.[!ao]*", "shop.[]x]*", "shop.[[]*", "shop.[", "shop.[^]", "shop.[a-]*", "shop.[z-a]*", "shop.[!z-a]*"),
    *(
        "shop.*[\\]*",
        "*'*",
        '*"*',
        "*`*",
        "*\n",
        "*\n*",
        "*.*.*",
        "shop.[&][&]",
        "shop.{}",
        "shop.%*",
        "shop.😀",
        "*[😀-😂]*",
    ),
    *("shop.[é-ü]", "shop_[0-9].orders_*", "*.[a-z-]*", "**.*rd*s", "shop.$", "shop.(a)", "shop.a|b", "*\u2028", "*\r"),
]


def test_patterns_are_those_of_file_names() -> None:
    for pattern in _PATTERNS:
        found = [str(name) for name in _NAMES if matches(str(name), pattern)]
        assert found == [str(name) for name in _NAMES if fnmatchcase(str(name).lower(), pattern.lower())], pattern
        exact = [str(name) for name in _NAMES if matches(str(name), pattern, exact=True)]
        assert exact == [str(name) for name in _NAMES if fnmatchcase(str(name), pattern)], pattern
    assert sum(any(matches(str(name), pattern) for name in _NAMES) for pattern in _PATTERNS) > 30


_ROUTES = (
    Route("shop.tmp_*", "scratch.{table}"),
    Route("shop.*", "{database}_eu.{table}", merge=True),
    Route("*.orders", "{table}{table}.{database}"),
    Route("*", "o'b\\`😀\n{database}.x-{table}-{database}"),
)


def test_spark_agrees_with_python_on_every_name(spark: SparkSession) -> None:
    selections = [TableSelection((pattern,), (), ()) for pattern in _PATTERNS]
    selections += [
        TableSelection(routes=_ROUTES),
        TableSelection(("shop*", "a.*"), ("*.orders", "shop.[!o]*"), _ROUTES[1:2]),
        TableSelection(routes=_ROUTES[:1]),
    ]
    selections += [replace(selection, case_sensitive=True) for selection in selections]
    columns = [
        f"{selection.is_in_sql()} AS in{number}, {selection.merges_sql()} AS merged{number}, "
        f"struct({', '.join(selection.key_sql())}) AS name{number}"
        for number, selection in enumerate(selections)
    ]
    names = spark.createDataFrame([(name.database, name.table) for name in _NAMES], "`database` STRING, `table` STRING")
    names.createOrReplaceTempView("names_to_select")
    rows = spark.sql(f"SELECT {', '.join(columns)} FROM names_to_select").collect()
    for row, name in zip(rows, _NAMES, strict=True):
        for number, selection in enumerate(selections):
            assert row[f"in{number}"] == selection.includes(name), (name, selection)
            assert TableName(*row[f"name{number}"]) == selection.mirror_key(name), (name, selection)
            assert (row[f"in{number}"] and row[f"merged{number}"]) == selection.merges(name), (name, selection)
    none = spark.sql(f"SELECT {TableSelection(('*.?*',)).is_in_sql()} FROM (SELECT NULL AS database, NULL AS table)")
    assert [tuple(row) for row in none.collect()] == [(False,)]


def test_spark_and_python_have_the_same_lower_case(spark: SparkSession) -> None:
    letters = [("ΟΔΟΣ",), *((chr(code),) for code in range(0x3000) if chr(code).isalpha())]
    rows = spark.createDataFrame(letters, "a STRING").selectExpr("a", "lower(a) AS b").where("a <> b").collect()
    assert {row["a"]: row["b"] for row in rows} == {a: a.lower() for (a,) in letters if a != a.lower()}


def test_the_first_route_that_matches_counts() -> None:
    selection = TableSelection(routes=_ROUTES[:2])
    assert selection.mirror_name(TableName("shop", "tmp_a")) == TableName("scratch", "tmp_a")
    assert selection.mirror_name(TableName("shop", "orders")) == TableName("shop_eu", "orders")
    assert selection.mirror_name(TableName("crm", "orders")) == TableName("crm", "orders")


def test_exclude_comes_after_include() -> None:
    selection = TableSelection(("shop.*", "crm.people"), ("*.tmp_*", "shop.secret"))
    names = ["shop.orders", "shop.tmp_1", "shop.secret", "crm.people", "crm.orders", "Shop.orders", "SHOP.Secret"]
    tables = [TableName(*name.split(".")) for name in names]
    assert [str(name) for name in tables if selection.includes(name)] == ["shop.orders", "crm.people", "Shop.orders"]
    exact = replace(selection, case_sensitive=True)
    assert [str(name) for name in tables if exact.includes(name)] == ["shop.orders", "crm.people"]
    assert not selection.is_identity
    assert ALL_TABLES.is_identity


def test_a_selection_is_written_down_whole() -> None:
    selection = TableSelection(("shop.*",), ("*'\n",), _ROUTES)
    assert SELECTION_JSON.from_json(SELECTION_JSON.to_json(selection)) == selection


@pytest.mark.parametrize(
    "template",
    ["", "shop", "a.b.c", ".t", "d.", "{schema}.{table}", "{database.{table}", "d.}t", "{}.t", "{{database}}.t"],
)
def test_a_template_that_names_no_mirror_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match="is not a mirror name") as error:
        Route("shop.*", template)
    assert repr(template) in str(error.value)


def test_changes_of_merged_tables_name_theirs(spark: SparkSession) -> None:
    selection = TableSelection(("s?.*", "x.y"), (), (Route("s*.o", "M.o", merge=True), Route("s*.p", "m.p")))
    image = "MAP<STRING, STRING>"
    schema = f"`database` STRING, `table` STRING, before {image}, after {image}, key_names ARRAY<STRING>"
    changes = spark.createDataFrame(
        [
            ("s1", "o", None, {"id": "1"}, ["id"]),
            ("S2", "O", {"id": None}, {"id": "2", "v": None}, []),
            ("s2", "o", {"id": "3"}, None, None),
            ("s1", "p", None, {"id": "4"}, ["id"]),
            ("x", "y", {"_source_table": "5"}, {}, ["id"]),
            ("t", "o", None, {"id": "6"}, ["id"]),
        ],
        schema,
    )
    source = ["_source_database", "_source_table"]

    def of(database: str, **columns: str | None) -> dict[str, str | None]:
        return {source[0]: database, source[1]: "o", **columns}

    found = selection.selected(changes).collect()
    assert [tuple(row) for row in found] == [
        ("m", "o", None, of("s1", id="1"), [*source, "id"], ("s1", "o"), "s1", "o"),
        ("m", "o", of("s2", id=None), of("s2", id="2", v=None), [], ("S2", "O"), "s2", "o"),
        ("m", "o", of("s2", id="3"), None, None, ("s2", "o"), "s2", "o"),
        ("m", "p", None, {"id": "4"}, ["id"], ("s1", "p"), "", ""),
        ("x", "y", {"_source_table": "5"}, {}, ["id"], ("x", "y"), "", ""),
    ]
    own = changes.where("database = 's1'").withColumn("after", F.create_map(F.lit(source[1]), F.lit("x")))
    assert [row["after"] for row in selection.selected(own).collect()][:1] == [of("s1", _SOURCE_TABLE="x")]
    letters = changes.select("database", "table")
    assert selection.selected(letters).columns == letters.columns
