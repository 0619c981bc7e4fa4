from __future__ import annotations

from typing import NamedTuple

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType

from cdc_pipeline.mysql.ddl.column_types import parse_mysql_type
from cdc_pipeline.mysql.types.spark_types import is_unparsed, is_zero_date, parse_value, spark_type

# ---- the type of a column (DESIGN §5)

_TYPES = {
    "tinyint": "tinyint",
    "tinyint(1)": "tinyint",
    "bool": "tinyint",
    "smallint": "smallint",
    "mediumint": "int",
    "int": "int",
    "int(11)": "int",
    "bigint": "bigint",
    "bigint(20)": "bigint",
    "tinyint unsigned": "smallint",
    "smallint unsigned": "int",
    "mediumint unsigned": "int",
    "int unsigned": "bigint",
    "int(8) unsigned zerofill": "bigint",
    "bigint unsigned": "decimal(20,0)",
    "bigint(20) unsigned": "decimal(20,0)",
    "serial": "decimal(20,0)",
    "decimal(12,2)": "decimal(12,2)",
    "decimal(12,2) unsigned": "decimal(12,2)",
    "decimal(38,38)": "decimal(38,38)",
    "decimal(7)": "decimal(7,0)",
    "decimal(39,0)": "string",
    "decimal(65,30)": "string",
    "decimal": "string",
    "float": "float",
    "float(7,4)": "float",
    "double": "double",
    "double(10,3) unsigned": "double",
    "bit": "bigint",
    "bit(1)": "bigint",
    "bit(63)": "bigint",
    "bit(64)": "decimal(20,0)",
    "date": "date",
    "datetime": "timestamp_ntz",
    "datetime(6)": "timestamp_ntz",
    "timestamp": "timestamp",
    "timestamp(6)": "timestamp",
    "time": "string",
    "time(6)": "string",
    "year": "int",
    "year(4)": "int",
    "char(10)": "string",
    "varchar(64)": "string",
    "tinytext": "string",
    "text": "string",
    "mediumtext": "string",
    "longtext": "string",
    "json": "string",
    "enum('a','b')": "string",
    "enum": "string",
    "set('a','b')": "string",
    "set": "string",
    "binary(16)": "binary",
    "varbinary(64)": "binary",
    "tinyblob": "binary",
    "blob": "binary",
    "mediumblob": "binary",
    "longblob": "binary",
    "varchar(5) character set binary": "binary",
    "enum('blob','binary','int unsigned')": "string",
    "vector(3)": "array<float>",
    "vector": "array<float>",
    "geometry": "binary",
    "inet6": "string",
    "a_type_of_the_future": "string",
}


@pytest.mark.parametrize(("text", "wanted"), _TYPES.items())
def test_spark_type(text: str, wanted: str) -> None:
    assert spark_type(parse_mysql_type(text)).simpleString() == wanted


# ---- values: type → text → the value as Spark prints it. Binary as hex, arrays as JSON


class _Outcome(NamedTuple):
    value: str | None
    is_unparsed: bool = False
    is_zero_date: bool = False


_BAD = _Outcome(None, is_unparsed=True)
_ZERO = _Outcome(None, is_zero_date=True)
_ALL_BYTES = "".join(map(chr, range(256)))
_SET64 = [f"m{place}" for place in range(64)]
_DAYS = {
    "2024-02-29": "2024-02-29",
    "0001-01-01": "0001-01-01",
    "9999-12-31": "9999-12-31",
    "1582-10-10": "1582-10-10",
    "0000-00-00": _ZERO,
    "0000-01-01": _ZERO,
    "2024-00-10": _ZERO,
    "2024-10-00": _ZERO,
    "2023-02-29": _ZERO,
    "2024-04-31": _ZERO,
}
_NO_DAYS = (
    *("2024-13-01", "2024-01-32", "2024-1-2", "2024", "2024-01", "20240102", "24-01-02", "x", ""),
    *("-2024-01-01", "+2024-01-01", "12024-01-01", "2024-01-02 ", " 2024-01-02", "2024-01-02\n", "2024-01-02T", "now"),
    *("2024-01-02x", "0000-00-00x", "2024-00-00 x", "today", "epoch", "２０２４-01-01"),
)
_TIMES = {
    "": "",
    ".1": ".1",
    ".120": ".12",
    ".000": "",
    ".123456": ".123456",
    ".000001": ".000001",
    ".999999": ".999999",
}
_NO_TIMES = (
    *("", "T00:00:00", " 00:00", " 00", " 1:2:3", " 24:00:00", " 12:60:00", " 12:34:60", " 12:34:56.", " 12:34:56 "),
    *(" 12:34:56.1234567", " 12:34:56Z", " 12:34:56+08:00", " 12:34:56 America/New_York", " 12:34:56x"),
)
_LOCAL_TIMES: dict[str, str | _Outcome] = {
    **{f"2024-02-29 23:59:58{text}": f"2024-02-29 23:59:58{shown}" for text, shown in _TIMES.items()},
    "1000-01-01 00:00:00": "1000-01-01 00:00:00",
    "9999-12-31 23:59:59.999999": "9999-12-31 23:59:59.999999",
    **{f"{day} 00:00:00": shown for day, shown in _DAYS.items() if isinstance(shown, _Outcome)},
    **{f"{day} 12:34:56.000001": shown for day, shown in _DAYS.items() if isinstance(shown, _Outcome)},
    **{f"2024-02-29{text}": _BAD for text in _NO_TIMES},
    **{f"0000-00-00{text}": _BAD for text in _NO_TIMES},
    **{f"{day} 00:00:00": _BAD for day in _NO_DAYS if day.strip() == day},
    "12:34:56": _BAD,
    "x": _BAD,
}
_NO_INTEGERS = ("", "x", "1x", "x1", "1.0", "1.5", "1e2", "0x10", "--1", "1_0", "1 2", "NaN", "true", "null", "9" * 30)
_NO_NUMBERS = (
    "",
    "x",
    "1x",
    "0x1p3",
    "1.5f",
    "1.5d",
    "1..2",
    "1 2",
    "1,5",
    "NaN",
    "nan",
    "Infinity",
    "-inf",
    "1e400",
    "-",
)


def _integers(low: int, high: int) -> dict[str, str | _Outcome]:
    """Texts at and beyond MySQL's range (ticdc-canal-json "Integer types"), which may be narrower than the Spark type's."""
    bad = [str(low - 1), str(high + 1), "-1" if low == 0 else str(2 * high + 1), *_NO_INTEGERS]
    return {str(number): str(number) for number in (0, 1, low, high)} | dict.fromkeys(bad, _BAD)


_VALUES: dict[str, dict[str, str | _Outcome]] = {
    "tinyint": _integers(-(2**7), 2**7 - 1),
    "smallint": _integers(-(2**15), 2**15 - 1),
    "mediumint": _integers(-(2**23), 2**23 - 1),
    "int": _integers(-(2**31), 2**31 - 1) | {"-0": "0"},
    "bigint": _integers(-(2**63), 2**63 - 1),
    "tinyint unsigned": _integers(0, 2**8 - 1),
    "smallint unsigned": _integers(0, 2**16 - 1),
    "mediumint unsigned": _integers(0, 2**24 - 1),
    "int unsigned": _integers(0, 2**32 - 1),
    "int(8) unsigned zerofill": {"42": "42", "00000042": "42"},
    "bigint unsigned": {
        "0": "0",
        "18446744073709551615": "18446744073709551615",
        "9223372036854775808": "9223372036854775808",
        "1.0": "1",
        **dict.fromkeys(["1.5", "0.1", "1e2", "1" + "0" * 20, "١", *_NO_NUMBERS], _BAD),
        **dict.fromkeys(["-1", "18446744073709551616", "99999999999999999999"], _BAD),
    },
    "decimal(12,2) unsigned": {"0.00": "0.00", "-0.00": "0.00", "1.50": "1.50", "-0.01": _BAD},
    "float unsigned": {"-0": "-0.0", "1.5": "1.5", "-1.5": _BAD},
    "double unsigned": {"1.5": "1.5", "-1e-300": _BAD},
    "decimal(12,2)": {
        "100.0": "100.00",
        "100": "100.00",
        "100.10": "100.10",
        "100.1000000000": "100.10",
        "-0.05": "-0.05",
        "0.00": "0.00",
        "-0": "0.00",
        ".5": "0.50",
        "9999999999.99": "9999999999.99",
        "-9999999999.99": "-9999999999.99",
        "0.1" + "0" * 60: "0.10",
        **dict.fromkeys(["100.001", "100.005", "0.001", "100.0" + "0" * 60 + "1"], _BAD),
        **dict.fromkeys(["0" * 1_000_000 + "1", "0.1" + "0" * 1_000_000], _BAD),
        **dict.fromkeys(["10000000000", "9999999999.999", "1e-3", "123456e-3", "1E2", "١.٥", " 1", "1 "], _BAD),
        **dict.fromkeys(_NO_NUMBERS, _BAD),
    },
    "decimal(38,10)": {
        "9" * 28 + "." + "9" * 10: "9" * 28 + "." + "9" * 10,
        "-" + "9" * 28 + "." + "9" * 10: "-" + "9" * 28 + "." + "9" * 10,
        "0.0000000001": "0.0000000001",
        "1" + "0" * 28: _BAD,
        "0.00000000001": _BAD,
    },
    "decimal(38,38)": {"0." + "9" * 38: "0." + "9" * 38, "1": _BAD},
    "decimal(38,0)": {"9" * 38: "9" * 38, "5.0": "5", "5.4": _BAD, "9" * 39: _BAD},
    "decimal(65,30)": {
        **{text: text for text in ("9" * 35 + "." + "9" * 30, "0." + "0" * 29 + "1")},
        # Canal omits zeros; the mirror normalizes the text
        "100.0": "100." + "0" * 30,
    },
    "decimal": {"100.0": "100.0", "9" * 65: "9" * 65},
    "float": {
        "0": "0.0",
        "-0": "-0.0",
        "0.1": "0.1",
        "16777216": "1.6777216E7",
        "340282350000000000000000000000000000000": "3.4028235E38",
        "0." + "0" * 44 + "14": "1.4E-45",
        "1.5E3": "1500.0",
        **dict.fromkeys(["1" + "0" * 39, "-1" + "0" * 39, *_NO_NUMBERS], _BAD),
    },
    "double": {
        "0": "0.0",
        "0.1": "0.1",
        "0.30000000000000004": "0.30000000000000004",
        "17976931348623157" + "0" * 292: "1.7976931348623157E308",
        "-17976931348623157" + "0" * 292: "-1.7976931348623157E308",
        "0." + "0" * 323 + "5": "4.9E-324",
        "1e-7": "1.0E-7",
        **dict.fromkeys(["2" + "0" * 308, "9" * 400, *_NO_NUMBERS], _BAD),
    },
    "bit(1)": {"0": "0", "1": "1", **dict.fromkeys(["2", "-1", *_NO_INTEGERS], _BAD)},
    "bit(10)": {"1023": "1023", "1024": _BAD, "b'1'": _BAD, "": _BAD},
    "bit": {"0": "0", "9223372036854775807": "9223372036854775807", "-1": _BAD},
    "bit(63)": {"9223372036854775807": "9223372036854775807", "9223372036854775808": _BAD},
    "bit(64)": {
        "0": "0",
        "18446744073709551615": "18446744073709551615",
        **dict.fromkeys(["", "x", "1.5", "1e3", "-1", "18446744073709551616", "1" + "0" * 20], _BAD),
    },
    "date": {**_DAYS, **dict.fromkeys(_NO_DAYS, _BAD), "2024-01-02 03:04:05": _BAD},
    "datetime": _LOCAL_TIMES,
    "datetime(6)": {"2024-02-29 12:34:56.000000": "2024-02-29 12:34:56"},
    "timestamp": _LOCAL_TIMES,
    "time": {text: text for text in ("00:00:00", "-838:59:59", "838:59:59", "10:00:00.123", "10:00:00.000000")}
    | dict.fromkeys(("839:00:00", "1:00:00", "10:60:00", "10:00", "x", ""), _BAD),
    "time(0)": {
        **{text: text for text in ("00:00:00", "-838:59:59", "838:59:59", "100:00:00")},
        "10:00:00.000": "10:00:00",
        "-00:00:00": "00:00:00",
        "-00:00:00.0": "00:00:00",
        "10:00:00.5": _BAD,
    },
    "time(3)": {
        "10:00:00": "10:00:00.000",
        "10:00:00.5": "10:00:00.500",
        "10:00:00.123000": "10:00:00.123",
        "-00:00:00.001": "-00:00:00.001",
        "-00:00:00.000": "00:00:00.000",
        "10:00:00.1234": _BAD,
    },
    "decimal(65,2)": {
        "1": "1.00",
        "1.0": "1.00",
        "001.5": "1.50",
        "+1.500": "1.50",
        "-0": "0.00",
        "-0.10": "-0.10",
        ".5": "0.50",
        "9" * 63: "9" * 63 + ".00",
        "9" * 64: _BAD,
        "1.005": _BAD,
        "1e3": _BAD,
        "": _BAD,
        "-": _BAD,
        ".": _BAD,
        "1" * 2000: _BAD,
    },
    "decimal(65,2) unsigned": {"1.5": "1.50", "-0": "0.00", "-0.01": _BAD},
    "decimal(65,0)": {"1": "1", "1.0": "1", "1.": "1", "-00": "0", "1.5": _BAD},
    "char(9)": {"a": "a", "a ": "a", " a": " a", "": ""},
    "time(6)": {text: text for text in ("-838:59:59.000000", "-00:00:00.000001", "00:00:00.100000")},
    "year": {
        "2024": "2024",
        "0": "0",
        "1901": "1901",
        "2155": "2155",
        "0000": "0",
        **dict.fromkeys(["1900", "2156", "-1", "70", *_NO_INTEGERS], _BAD),
    },
    "char(5)": {**{text: text for text in ("", " a", "é😀", "\0\n", "NULL")}, "a ": "a"},
    "varchar(64)": {text: text for text in ("", "  ", "a ", "\u0080\u009f", "中\U0010ffff", "\ufffe")},
    "longtext": {text: text for text in ("", "x" * 70_000)},
    "json": {
        **{text: text for text in ('{"b": 1.50, "a": [1, 2.5]}', "null", '"base64:type253:AAH/"', "1.0", " {} ")},
        "NULL": "null",
        **dict.fromkeys(("x", "{'a': 1}", '{"a"b": 1}', "{} {}"), _BAD),
    },
    "geometry": {"\x00\x00\x00\x00\x01\xff": "0000000001FF", "": ""},
    "enum('a','c,d','it''s','')": {
        "1": "a",
        "2": "c,d",
        "3": "it's",
        "4": "",
        "0": "",
        **dict.fromkeys(["5", "-1", "", "a", "1.0", "1e0", "4294967297", "9" * 30], _BAD),
    },
    "enum('blob','binary','unsigned')": {"1": "blob", "2": "binary", "3": "unsigned"},
    "enum": {"1": "1", "0": "0"},
    "set('x','z w','it''s')": {
        "0": "",
        "1": "x",
        "2": "z w",
        "5": "x,it's",
        "7": "x,z w,it's",
        **dict.fromkeys(["8", "15", "-1", "", "x", "x,z w", "1.0", "9223372036854775808"], _BAD),
        **dict.fromkeys(["18446744073709551615", "18446744073709551616", "9" * 20, "9" * 30], _BAD),
    },
    "set(" + ",".join(f"'{member}'" for member in _SET64[:63]) + ")": {
        "4611686018427387904": "m62",
        "9223372036854775807": ",".join(_SET64[:63]),
        "9223372036854775808": _BAD,
    },
    "set(" + ",".join(f"'{member}'" for member in _SET64) + ")": {
        "0": "",
        "1": "m0",
        "9223372036854775807": ",".join(_SET64[:63]),
        "9223372036854775808": "m63",
        "9223372036854775809": "m0,m63",
        "18446744073709551615": ",".join(_SET64),
        **dict.fromkeys(
            ["18446744073709551616", "18446744073709551617", "9" * 20, "1" * 21, "-1", "1.0", "x", ""], _BAD
        ),
    },
    "set": {"3": "3"},
    "blob": {
        _ALL_BYTES: bytes(range(256)).hex().upper(),
        "": "",
        "\0\0": "0000",
        "a\nb\r\n": "610A620D0A",
        **dict.fromkeys(["\u0100", "a€", "😀", "ab\u0100cd", "\ufffd"], _BAD),
    },
    "binary(4)": {"ab\0\0": "61620000", "中": _BAD},
    "vector(3)": {
        "[0.1,0.2,0.3]": "[0.1,0.2,0.3]",
        "[-1,0,340282350000000000000000000000000000000]": "[-1.0,0.0,3.4028235E38]",
        "[]": "[]",
        "[1e3, 2]": "[1000.0,2.0]",
        **dict.fromkeys(["", "x", "1", "{}", "null", "[1,2", "[1,2]x", "[1] [2]", "[1,,2]", '[1,"2"]', "[[1]]"], _BAD),
        **dict.fromkeys(["[null]", "[NaN]", "[Infinity]", "[1" + "0" * 39 + "]"], _BAD),
    },
}
# The same texts in other zones: type, zone → text → instant in UTC.
_INSTANTS: dict[tuple[str, str], dict[str, str | _Outcome]] = {
    ("timestamp(3)", "Asia/Shanghai"): {
        "2024-02-29 00:00:00.123": "2024-02-28 16:00:00.123",
        "1970-01-01 08:00:01.000": "1970-01-01 00:00:01",
        "2038-01-19 11:14:07.999": "2038-01-19 03:14:07.999",
        "1986-07-01 00:00:00.000": "1986-06-30 15:00:00",  # daylight saving, then
        "0000-00-00 00:00:00.000": _ZERO,
        "2024-13-01 00:00:00.000": _BAD,
    },
    ("timestamp(6)", "America/New_York"): {
        "2024-01-15 12:00:00.000001": "2024-01-15 17:00:00.000001",
        "2024-07-15 12:00:00.000001": "2024-07-15 16:00:00.000001",
        "2024-03-10 01:59:59.999999": "2024-03-10 06:59:59.999999",
        "2024-03-10 03:00:00.000000": "2024-03-10 07:00:00",
        # the clock skips this time: it is parsed with the offset before the change
        "2024-03-10 02:30:00.000000": "2024-03-10 07:30:00",
        "2024-11-03 00:59:59.999999": "2024-11-03 04:59:59.999999",
        # the clock shows this time twice: it is parsed as the first
        "2024-11-03 01:30:00.000000": "2024-11-03 05:30:00",
        "2024-11-03 02:00:00.000000": "2024-11-03 07:00:00",
    },
    ("datetime(6)", "America/New_York"): {"2024-03-10 02:30:00.000000": "2024-03-10 02:30:00"},
}
_CASES = {(kind, "UTC"): cases for kind, cases in _VALUES.items()} | _INSTANTS
_TEXTS = list(dict.fromkeys(text for cases in _CASES.values() for text in cases))


def _shown(cell: Column, kind: DataType) -> Column:
    if isinstance(kind, BinaryType):
        return F.hex(cell)
    return F.to_json(cell) if isinstance(kind, ArrayType) else cell.cast("string")


@pytest.fixture(scope="module")
def outcomes(spark: SparkSession) -> dict[tuple[str, str], dict[str | None, _Outcome]]:
    """Converts every text and NULL to every type in one query: no text may fail a query."""
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    texts: list[str | None] = [*_TEXTS, None]
    columns = []
    for place, (name, zone) in enumerate(_CASES):
        kind, text = parse_mysql_type(name), F.col("text")
        cell = parse_value(text, kind, zone)
        shown = _shown(cell, spark_type(kind)).alias("value")
        columns.append(
            F.array(
                shown, *(flag.cast("string") for flag in (is_unparsed(text, cell, kind), is_zero_date(text, kind)))
            ).alias(f"c{place}")
        )
    frame = spark.createDataFrame(list(enumerate(texts)), "id INT, text STRING")
    found: dict[tuple[str, str], dict[str | None, _Outcome]] = {case: {} for case in _CASES}
    for row in frame.select("id", *columns).collect():
        for case, (shown_value, failed, zero) in zip(_CASES, row[1:], strict=True):
            found[case][texts[row["id"]]] = _Outcome(shown_value, failed == "true", zero == "true")
    return found


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case[0][:40]} in {case[1]}")
def test_values(case: tuple[str, str], outcomes: dict[tuple[str, str], dict[str | None, _Outcome]]) -> None:
    wanted = {text: shown if isinstance(shown, _Outcome) else _Outcome(shown) for text, shown in _CASES[case].items()}
    found = {text: outcomes[case][text] for text in wanted}
    assert found == wanted


def test_only_null_is_null(outcomes: dict[tuple[str, str], dict[str | None, _Outcome]]) -> None:
    assert {case: found[None] for case, found in outcomes.items()} == dict.fromkeys(_CASES, _Outcome(None))


def test_no_text_silently_becomes_null(outcomes: dict[tuple[str, str], dict[str | None, _Outcome]]) -> None:
    """Each text converted to each type is exactly one of: a value, a zero date, unparsed."""
    odd = [
        (case, text, outcome)
        for case, found in outcomes.items()
        for text, outcome in found.items()
        if text is not None and (outcome.value is not None) + outcome.is_unparsed + outcome.is_zero_date != 1
    ]
    assert odd == []
