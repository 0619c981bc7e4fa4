from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column as SparkColumn
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType

from cdc_pipeline.mirrors.merge.default_values import default_value
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.expressions.translation import Now
from cdc_pipeline.mysql.model.schema_changes import CreateTable
from cdc_pipeline.mysql.model.table import Column, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

_NOW = Now(1_709_164_799_987, is_start=True)  # 2024-02-28 23:59:59.987 UTC

# definition → the value as printed by Spark, binary as hex; None for NULL
_DEFAULTS: dict[str, str | None] = {
    # no default
    "INT": None,
    "INT NULL": None,
    "INT DEFAULT NULL": None,
    "TIMESTAMP NULL DEFAULT NULL": None,
    "VARCHAR(5)": None,
    "JSON": None,
    # implicit zero values
    "TINYINT NOT NULL": "0",
    "BIGINT UNSIGNED NOT NULL": "0",
    "DECIMAL(12,2) NOT NULL": "0.00",
    "DECIMAL(65,30) NOT NULL": "0." + "0" * 30,
    "FLOAT NOT NULL": "0.0",
    "DOUBLE NOT NULL": "0.0",
    "BIT NOT NULL": "0",
    "BIT(64) NOT NULL": "0",
    "YEAR NOT NULL": "0",
    "DATE NOT NULL": None,
    "DATETIME(6) NOT NULL": None,
    "TIMESTAMP NOT NULL": None,
    "TIME NOT NULL": "00:00:00",
    "TIME(3) NOT NULL": "00:00:00.000",
    "CHAR(5) NOT NULL": "",
    "VARCHAR(5) NOT NULL": "",
    "LONGTEXT NOT NULL": "",
    "BINARY NOT NULL": "00",
    "BINARY(3) NOT NULL": "000000",
    "VARBINARY(3) NOT NULL": "",
    "BLOB NOT NULL": "",
    "ENUM('b','a') NOT NULL": "b",
    "SET('b','a') NOT NULL": "",
    "JSON NOT NULL": "null",
    # integers: rounded half away from zero
    "INT DEFAULT 5": "5",
    "INT NOT NULL DEFAULT -5": "-5",
    "INT DEFAULT +5": "5",
    "INT DEFAULT '5'": "5",
    "INT DEFAULT 0": "0",
    "TINYINT(1) DEFAULT TRUE": "1",
    "BOOL DEFAULT FALSE": "0",
    "BIGINT DEFAULT -9223372036854775808": "-9223372036854775808",
    "BIGINT UNSIGNED DEFAULT 18446744073709551615": "18446744073709551615",
    "INT DEFAULT b'101'": "5",
    "INT DEFAULT x'ff'": "255",
    "INT DEFAULT 0x0100": "256",
    # decimals and floating point
    "DECIMAL(5,2) DEFAULT 1": "1.00",
    "DECIMAL(5,2) DEFAULT '1.005'": "1.01",
    "DECIMAL(5,2) DEFAULT -1.005": "-1.01",
    "DECIMAL(5,2) DEFAULT 1.0049999": "1.00",
    "DECIMAL DEFAULT 1.5": "2",
    "DECIMAL(38,10) DEFAULT 1234567890123456789012345678.0123456789": "1234567890123456789012345678.0123456789",
    "DECIMAL(65,30) DEFAULT 1.5": "1.5" + "0" * 29,
    "DECIMAL(65,0) DEFAULT " + "9" * 65: "9" * 65,
    "FLOAT DEFAULT 0.1": "0.1",
    # the binary value of 1.005 is smaller, in MySQL and in TiDB
    "FLOAT(7,2) DEFAULT 1.5": "1.5",
    "DOUBLE DEFAULT 1e300": "1.0E300",
    "DOUBLE DEFAULT -1.5e-3": "-0.0015",
    "DOUBLE DEFAULT 3.141592653589793": "3.141592653589793",
    # bits
    "BIT(8) DEFAULT b'00000101'": "5",
    "BIT(8) DEFAULT x'ff'": "255",
    "BIT(8) DEFAULT 5": "5",
    "BIT DEFAULT TRUE": "1",
    # a string means its bytes
    "BIT(64) DEFAULT b'" + "1" * 64 + "'": "18446744073709551615",
    # bit and hex literals are binary strings: numbers in columns of numbers, else the text of their bytes
    "DECIMAL(5,2) DEFAULT x'0a'": "10.00",
    "DECIMAL(10,2) DEFAULT 0x10": "16.00",
    "DECIMAL(60,0) DEFAULT 0x10": "16",
    "DOUBLE DEFAULT 0x10": "16.0",
    "FLOAT DEFAULT b'101'": "5.0",
    "YEAR DEFAULT 0x7E8": "2024",
    "CHAR(1) DEFAULT b'0'": "\0",
    "CHAR(1) DEFAULT b'1'": "\1",
    "CHAR(3) DEFAULT 0x4120": "A",
    "VARCHAR(9) DEFAULT b''": "",
    "VARCHAR(9) DEFAULT x'0041'": "\0A",
    "VARCHAR(9) DEFAULT 0x30": "0",
    "VARCHAR(9) DEFAULT b'01000001'": "A",
    "VARCHAR(9) DEFAULT 0x4142": "AB",
    "TEXT CHARACTER SET latin1 DEFAULT x'4e'": "N",
    "VARCHAR(255) COLLATE utf8mb4_bin DEFAULT 0x4F70656E2041707020F09F8EB5": "Open App 🎵",
    # years
    "YEAR DEFAULT 2024": "2024",
    "YEAR DEFAULT '1901'": "1901",
    "YEAR DEFAULT 0": "0",
    "YEAR DEFAULT '0000'": "0",
    # dates
    "DATE DEFAULT '2024-01-02'": "2024-01-02",
    "DATE DEFAULT 0": None,
    "DATE DEFAULT '0001-01-01'": "0001-01-01",
    "DATE DEFAULT '0000-00-00'": None,
    "DATE DEFAULT '2024-00-00'": None,
    "DATE DEFAULT '0000-01-01'": None,
    "DATE DEFAULT '2024-02-30'": None,
    "DATETIME DEFAULT '2024-01-02 03:04:05'": "2024-01-02 03:04:05",
    "DATETIME DEFAULT '2024-01-02'": "2024-01-02 00:00:00",
    "DATETIME(6) DEFAULT '2024-01-02 03:04:05.000001'": "2024-01-02 03:04:05.000001",
    "DATETIME DEFAULT '0000-00-00 00:00:00'": None,
    "TIMESTAMP DEFAULT '0000-00-00 00:00:00'": None,
    # Asia/Shanghai is eight hours ahead
    "TIMESTAMP DEFAULT '2024-01-02 03:04:05'": "2024-01-01 19:04:05",
    "TIMESTAMP(3) DEFAULT '2024-01-02'": "2024-01-01 16:00:00",
    # times
    "TIME DEFAULT '10:11:12'": "10:11:12",
    "TIME DEFAULT '-838:59:59'": "-838:59:59",
    "TIME DEFAULT 0": "00:00:00",
    "TIME DEFAULT '-00:00:00'": "00:00:00",
    "TIME(3) DEFAULT '10:11:12'": "10:11:12.000",
    # texts
    "VARCHAR(9) DEFAULT ''": "",
    "VARCHAR(9) DEFAULT ' é😀 '": " é😀 ",
    "VARCHAR(9) DEFAULT 'it''s'": "it's",
    "VARCHAR(9) DEFAULT 5": "5",
    "VARCHAR(9) DEFAULT 1.50": "1.50",
    "VARCHAR(9) DEFAULT '1e3'": "1e3",
    "VARCHAR(9) DEFAULT _latin1'a'": "a",
    "JSON DEFAULT '{}'": "{}",
    "VARCHAR(9) DEFAULT 'NULL'": "NULL",
    "CHAR(9) DEFAULT ' a  '": " a",
    "VARCHAR(9) DEFAULT _UTF8MB4'é'": "é",
    "TEXT DEFAULT 'x'": "x",
    # bytes
    "VARBINARY(9) DEFAULT 'aé'": "61C3A9",
    "VARBINARY(9) DEFAULT x'00ff00'": "00FF00",
    "VARBINARY(9) DEFAULT 0x0041": "0041",
    "VARBINARY(9) DEFAULT x''": "",
    "BINARY(4) DEFAULT 'ab'": "61620000",
    "BINARY(4) DEFAULT x'00ff'": "00FF0000",
    "BINARY DEFAULT ''": "00",
    "CHAR(3) CHARACTER SET binary DEFAULT 'a '": "612000",
    # labels
    "ENUM('a','B','c d') DEFAULT 'a'": "a",
    "ENUM('3','2','1') DEFAULT '1'": "1",
    "ENUM('a','') DEFAULT ''": "",
    "ENUM('A','a','é') DEFAULT 'a'": "a",
    "SET('A','a','é') NOT NULL DEFAULT 'a'": "a",
    "SET('A','a','é') DEFAULT 'é,A'": "A,é",
    "SET('a','B','c') DEFAULT ''": "",
    "SET('a','B','c') DEFAULT 'a,a'": "a",
    "SET('1','2') DEFAULT '2'": "2",
    # expressions; the current time is that of the DDL
    "TIMESTAMP DEFAULT CURRENT_TIMESTAMP": "2024-02-28 23:59:59",
    "TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)": "2024-02-28 23:59:59.987",
    "TIMESTAMP(6) DEFAULT NOW(6)": "2024-02-28 23:59:59.987",
    "TIMESTAMP(2) DEFAULT CURRENT_TIMESTAMP(2)": "2024-02-28 23:59:59.98",
    "DATETIME DEFAULT CURRENT_TIMESTAMP": "2024-02-29 07:59:59",
    "DATETIME(1) DEFAULT current_timestamp( 1 )": "2024-02-29 07:59:59.9",
    "DATETIME DEFAULT LOCALTIME": "2024-02-29 07:59:59",
    "DATETIME DEFAULT LOCALTIMESTAMP()": "2024-02-29 07:59:59",
    "DATETIME DEFAULT (NOW())": "2024-02-29 07:59:59",
    "DATETIME DEFAULT ((NOW()))": "2024-02-29 07:59:59",
    "INT DEFAULT (1 + 1)": "2",
    "JSON DEFAULT (JSON_ARRAY())": "[]",
    "DATE DEFAULT (CURRENT_DATE)": "2024-02-29",
    "VARCHAR(30) DEFAULT CURRENT_TIMESTAMP": "2024-02-29 07:59:59",
    "DATETIME DEFAULT (NOW() + INTERVAL 1 DAY)": "2024-03-01 07:59:59",
}

# not as messages print them
_OTHER_SPELLINGS = [
    "INT DEFAULT 2.5",
    "INT DEFAULT -2.5",
    "INT DEFAULT '2.4'",
    "INT DEFAULT 1e3",
    "FLOAT(7,2) DEFAULT 1.005",
    "DOUBLE(7,2) DEFAULT -2.345",
    "INT DEFAULT 25e-1",
    "INT DEFAULT '25e-1'",
    "INT DEFAULT 35e-1",
    "BIT(8) DEFAULT '5'",
    "BIT(16) DEFAULT 'ab'",
    "YEAR DEFAULT 69",
    "YEAR DEFAULT 70",
    "YEAR DEFAULT '0'",
    "YEAR DEFAULT '00'",
    "DATE DEFAULT '2024-1-2'",
    "DATE DEFAULT '20240102'",
    "DATE DEFAULT 20240102",
    "DATE DEFAULT '70-01-02'",
    "DATE DEFAULT 240102",
    "DATE DEFAULT 700102",
    "DATE DEFAULT 102",
    "DATETIME DEFAULT 240102030405",
    "DATETIME DEFAULT 20240102",
    "DATETIME(1) DEFAULT 20240102030405.25",
    "DATE DEFAULT '69/1/2'",
    "DATE DEFAULT '2024-01-02 23:59:59'",
    "DATE DEFAULT '00-01-01'",
    "DATETIME DEFAULT '2024-01-02T03:04'",
    "DATETIME DEFAULT 20240102030405",
    "DATETIME DEFAULT '2024-12-31 23:59:59.5'",
    "DATETIME DEFAULT '2024-12-31 23:59:59.4999999'",
    "DATETIME(3) DEFAULT '2024-01-02 03:04:05.1235'",
    "TIME DEFAULT '1:2:3'",
    "TIME DEFAULT '1:2'",
    "TIME DEFAULT '101112'",
    "TIME DEFAULT 1112",
    "TIME DEFAULT '1 10:00:00'",
    "TIME DEFAULT '1 10'",
    "TIME DEFAULT '00:59:59.5'",
    "TIME(2) DEFAULT '-00:00:00.126'",
    "VARCHAR(9) DEFAULT .5",
    "VARCHAR(9) DEFAULT 007",
    "VARCHAR(9) DEFAULT -0",
    "VARCHAR(9) DEFAULT 1e3",
    "VARCHAR(9) DEFAULT 15e-1",
    # without a character set, only ASCII is certain
    "VARCHAR(9) DEFAULT x'c3a9'",
    "VARCHAR(9) CHARACTER SET utf8mb4 DEFAULT x'e9'",
    "VARCHAR(9) CHARACTER SET ucs2 DEFAULT x'0041'",
    "VARCHAR(9) CHARACTER SET latin1 DEFAULT x'e9'",
    "VARBINARY(9) DEFAULT b'000000001'",
    "ENUM('a','B','c d') DEFAULT 'b'",
    "ENUM('a','B','c d') DEFAULT 'C D '",
    "ENUM('a','B') DEFAULT '2'",
    "ENUM('a','é') DEFAULT 'É'",
    "ENUM('é','A') COLLATE utf8mb4_0900_ai_ci DEFAULT 'E'",
    "ENUM('a','b') DEFAULT 0x62",
    "ENUM('3','2','1') DEFAULT 2",
    "SET('a','B') COLLATE utf8mb4_general_ci DEFAULT 'b,A'",
    "SET('a','B','c') DEFAULT 'c,b'",
    "SET('a','B','c') DEFAULT 5",
    "INT DEFAULT 'x'",
    "TINYINT DEFAULT 300",
    "DECIMAL(3,1) DEFAULT 100",
    "VARCHAR(9) CHARACTER SET gbk DEFAULT x'c4e3'",
    "DATETIME DEFAULT 'soon'",
    "TIME DEFAULT '10:60:00'",
    "TIME DEFAULT '839:00:00'",
    "ENUM('a','b') DEFAULT 'c'",
    "ENUM('a','b') DEFAULT '3'",
    "ENUM('a','b') COLLATE utf8mb4_bin DEFAULT 'A'",
    "ENUM('á','à') DEFAULT 'a'",
    "ENUM('3','2','1') DEFAULT 1",
    "SET('a','b') DEFAULT 'a,c'",
    "SET('a','b') DEFAULT 4",
    "DOUBLE DEFAULT 1e9999999999",
    "INT DEFAULT 1e9999999999",
    "VARCHAR(9) DEFAULT 1e9999999999",
]

# definition → error message
_UNKNOWN = {
    "VARCHAR(36) DEFAULT (UUID())": "function UUID is not supported",
    "BIGINT DEFAULT NEXT VALUE FOR s": "the expression cannot be parsed: NEXT VALUE FOR s",
    "VARCHAR(9) DEFAULT _latin1 x'e9'": "_LATIN1 literal: its bytes are not UTF-8",
    "VARCHAR(9) DEFAULT _latin1'é'": "_LATIN1'é': the character set of the string is not supported",
    "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY": (
        "upstream numbers existing rows in an order that no message contains"
    ),
    "TIMESTAMP DEFAULT '1991-09-15 01:30:00'": (
        "its default '1991-09-15 01:30:00' is a local time that Asia/Shanghai shows twice"
    ),
    "POINT NOT NULL": "point has no known zero value",
    "VECTOR(3) NOT NULL": "vector(3) has no known zero value",
}


def _column(definition: str) -> Column:
    (created,) = parse_ddl(f"CREATE TABLE t (c {definition})", "db")
    assert isinstance(created, CreateTable), created
    return created.schema.columns[0]


def _schema(column: Column) -> TableSchema:
    return TableSchema((column,))


def _shown(filled: SparkColumn, column: Column) -> SparkColumn:
    kind = spark_type(column.type)
    if isinstance(kind, BinaryType):
        return F.hex(filled)
    return F.to_json(filled) if isinstance(kind, ArrayType) else filled.cast("string")


@pytest.fixture(scope="module")
def values(spark: SparkSession) -> dict[str, tuple[str | None, str | None, str]]:
    """Definition → (the value, its type, the mirror's type), of all definitions in one query."""
    columns = {definition: _column(definition) for definition in _DEFAULTS}
    now = replace(_NOW, is_start=False)  # only doubts depend on it
    filled = {
        definition: default_value(column, _schema(column), "Asia/Shanghai", now)[0]
        for definition, column in columns.items()
    }
    given = {definition: cell for definition, cell in filled.items() if cell is not None}
    cells = [_shown(cell, columns[definition]) for definition, cell in given.items()]
    types = [F.typeof(cell) for cell in given.values()]
    row = spark.range(1).select(F.array(*cells).alias("cells"), F.array(*types).alias("types")).first()
    assert row is not None
    found = dict(zip(given, zip(row["cells"], row["types"], strict=True), strict=True))
    return {
        definition: (*found.get(definition, (None, None)), spark_type(column.type).simpleString())
        for definition, column in columns.items()
    }


@pytest.mark.parametrize(("definition", "wanted"), _DEFAULTS.items())
def test_default(definition: str, wanted: str | None, values: dict[str, tuple[str | None, str | None, str]]) -> None:
    found, kind, mirror = values[definition]
    assert found == wanted
    assert kind == mirror or wanted is None


@pytest.mark.parametrize(("definition", "message"), _UNKNOWN.items())
@pytest.mark.usefixtures("spark")
def test_default_without_a_known_value(definition: str, message: str) -> None:
    column = _column(definition)
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the whole message is compared
        default_value(column, _schema(column), "Asia/Shanghai", _NOW)
    assert str(error.value) == message


@pytest.mark.parametrize("definition", _OTHER_SPELLINGS)
@pytest.mark.usefixtures("spark")
def test_a_default_in_another_spelling_is_refused(definition: str) -> None:
    column = _column(definition)
    with pytest.raises(ValueError, match=r"^its default .* as messages print it$"):
        default_value(column, _schema(column), "Asia/Shanghai", _NOW)


@pytest.mark.parametrize(
    ("definition", "is_start", "is_sure"),
    [
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", True, True),
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", False, False),
        ("DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3)", True, False),
        ("DATETIME DEFAULT '2024-01-02'", False, True),
        # TiDB has `explicit_defaults_for_timestamp`
        ("TIMESTAMP", True, False),
        ("TIMESTAMP", False, True),
        ("TIMESTAMP NOT NULL", True, False),
        ("TIMESTAMP NULL", True, True),
        ("TIMESTAMP DEFAULT NULL", True, True),
        ("DATETIME", True, True),
    ],
)
@pytest.mark.usefixtures("spark")
def test_the_start_of_the_statement_is_known_to_the_second_at_most(
    definition: str, is_start: bool, is_sure: bool
) -> None:
    column = _column(definition)
    _, doubtful = default_value(column, _schema(column), "UTC", replace(_NOW, is_start=is_start))
    assert (doubtful is None) is is_sure


_LITERAL = st.sampled_from(
    ["0", "-1", "1e9999999999", "'x'", "''", "'2024-01-02'", "b'1'", "x'ff'", "NULL", "99999999999999999999"]
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([*_DEFAULTS, *_OTHER_SPELLINGS, *_UNKNOWN]),
    _LITERAL | st.text(max_size=8).map(lambda text: repr("'" + text)),
)
@pytest.mark.usefixtures("spark")
def test_no_default_raises_but_what_it_says(definition: str, literal: str) -> None:
    kind, _, _ = definition.partition(" DEFAULT ")
    (created,) = parse_ddl(f"CREATE TABLE t (c {kind} DEFAULT {literal})", "db")
    if isinstance(created, CreateTable):
        with contextlib.suppress(ValueError):
            default_value(created.schema.columns[0], created.schema, "America/New_York", _NOW)
