"""Text of DataWorks and of MariaDB's JSON: (encoding, column type, time zone) → text → value."""

from __future__ import annotations

import base64
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from cdc_pipeline.mysql.ddl.column_types import type_or_text
from cdc_pipeline.mysql.types.spark_types import padded, spark_type
from cdc_pipeline.mysql.types.wire_values import JSON_BYTES, TEXT_BYTES, wire_value

if TYPE_CHECKING:
    from typing import TypeAlias

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import DataType

    Case: TypeAlias = tuple[str | None, str, str]


def _b64(found: bytes) -> str:
    return base64.b64encode(found).decode()


def _ms(text: str) -> str:
    """ISO time in UTC → ms since 1970."""
    instant = datetime.fromisoformat(text).replace(tzinfo=timezone.utc)
    return str(round((instant - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1000))


_ALL_BYTES = bytes(range(256))
_TEXTS = ("", "abc", "é中😀", "\0\n", "\ufeff", " a ")
_JSON_TEXTS = ('{"é": "😀", "a": [1.50, null]}', "null", '"\\u0000"', "{}", " 1 ")
_NO_BASE64 = ("A", "AA=", "A===", "====", "!!!!", "AA==A", "AA==AAA=", "é", "QUJD-_==")
_NO_UTF8 = tuple(map(_b64, (b"\xff", b"a\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80")))
_AS_BYTES: dict[str, str | None] = {
    **{_b64(found): found.hex().upper() for found in (_ALL_BYTES, _ALL_BYTES * 300, b"", b"\0", b"a\0\0", b"\xff")},
    "AA": "00",
    "AAA": "0000",
    "_w==": None,  # the padding at the end may be left out, as for Java's decoder
    **dict.fromkeys(_NO_BASE64),
}
_AS_TEXT: dict[str, str | None] = {
    **{_b64(text.encode()): text for text in (*_TEXTS, *_JSON_TEXTS)},
    **dict.fromkeys((*_NO_BASE64, *_NO_UTF8)),
}
_OF_BYTES: dict[str, dict[str, str | None]] = {
    **dict.fromkeys(("varbinary(300)", "tinyblob", "blob", "mediumblob", "longblob"), _AS_BYTES),
    "varchar(300) character set binary": _AS_BYTES,
    "binary(4)": {
        **{_b64(found): found.ljust(4, b"\0").hex().upper() for found in (b"", b"a", b"ab\0", b"abcd", b"\xff")},
        _b64(b"abcde"): b"abcde".hex().upper(),  # never cut
        **dict.fromkeys(_NO_BASE64),
    },
    "binary": {_b64(b"a"): "61"},
    "bit(1)": {_b64(b"\0"): "0", _b64(b"\1"): "1", **dict.fromkeys(_NO_BASE64)},
    "bit(10)": {
        _b64(b"\3\xff"): "1023",
        _b64(b"\0\5"): "5",
        _b64(b"\4\0"): None,
        "": None,
        **dict.fromkeys(_NO_BASE64),
    },
    "bit(63)": {_b64(b"\x7f" + b"\xff" * 7): str(2**63 - 1)},
    "bit(64)": {_b64(b"\xff" * 8): str(2**64 - 1), _b64(b"\x80" + b"\0" * 7): str(2**63), **dict.fromkeys(_NO_BASE64)},
    **dict.fromkeys(("varchar(9)", "text", "longtext", "decimal", "enum('a')"), _AS_TEXT),
    "char(9)": {text: found and found.rstrip(" ") for text, found in _AS_TEXT.items()},
    "json": {**dict.fromkeys(_AS_TEXT), **{_b64(text.encode()): text for text in _JSON_TEXTS}, "": "null"},
    "time(3)": {**dict.fromkeys(_AS_TEXT), _b64(b"10:00:00.5"): "10:00:00.500"},
    "int": {_b64(b"5"): "5", _b64(b"-7"): "-7", _b64(b"x"): None, _b64(b""): None, **dict.fromkeys(_NO_BASE64)},
    "tinyint unsigned": {_b64(b"255"): "255", _b64(b"256"): None, _b64(b"-1"): None},
    "decimal(5,2)": {_b64(b"1.50"): "1.50", _b64(b"12345"): None},
}

# ms → (UTC, Asia/Shanghai, America/New_York) as a local time
_INSTANTS = {
    "2020-05-24T10:14:29.000": ("2020-05-24 10:14:29", "2020-05-24 18:14:29", "2020-05-24 06:14:29"),
    "2020-01-01T00:00:00.001": ("2020-01-01 00:00:00.001", "2020-01-01 08:00:00.001", "2019-12-31 19:00:00.001"),
    "1970-01-01T00:00:00.000": ("1970-01-01 00:00:00", "1970-01-01 08:00:00", "1969-12-31 19:00:00"),
    "1969-12-31T23:59:59.999": ("1969-12-31 23:59:59.999", "1970-01-01 07:59:59.999", "1969-12-31 18:59:59.999"),
    "1000-01-01T12:00:00.000": ("1000-01-01 12:00:00", "1000-01-01 20:05:43", "1000-01-01 07:03:58"),
    "9999-12-31T12:59:59.999": ("9999-12-31 12:59:59.999", "9999-12-31 20:59:59.999", "9999-12-31 07:59:59.999"),
    # daylight saving ends: a clock in New York shows 01:30 twice
    "2024-11-03T05:30:00.000": ("2024-11-03 05:30:00", "2024-11-03 13:30:00", "2024-11-03 01:30:00"),
    "2024-11-03T06:30:00.000": ("2024-11-03 06:30:00", "2024-11-03 14:30:00", "2024-11-03 01:30:00"),
    # daylight saving begins: the clock skips 02:00 to 03:00
    "2024-03-10T06:59:59.999": ("2024-03-10 06:59:59.999", "2024-03-10 14:59:59.999", "2024-03-10 01:59:59.999"),
    "2024-03-10T07:00:00.000": ("2024-03-10 07:00:00", "2024-03-10 15:00:00", "2024-03-10 03:00:00"),
}
_ZONES = ("UTC", "Asia/Shanghai", "America/New_York")
_NO_INTEGERS = ("", "x", "1.5", "1e3", " 1", "1 ", "1\n", "+1", "--1", "١", "true", "2020-05-24", str(2**63), "9" * 30)


def _clock(local: str) -> str:
    """The time of day with three digits."""
    whole, _, fraction = local[11:].partition(".")
    return f"{whole}.{fraction.ljust(3, '0')}"


def _of_dates(place: int) -> dict[str, dict[str, str | None]]:
    bad: dict[str, str | None] = dict.fromkeys(_NO_INTEGERS)
    local = {_ms(instant): shown[place] for instant, shown in _INSTANTS.items()}
    local_or_bad: dict[str, str | None] = {**local, **bad}
    # TIMESTAMP is the instant: two instants if the clock shows one time twice
    instants: dict[str, str | None] = {_ms(instant): shown[0] for instant, shown in _INSTANTS.items()}
    instants |= bad
    return {
        "date": {**{ms: text[:10] for ms, text in local.items()}, **bad},
        **dict.fromkeys(("datetime", "datetime(3)", "datetime(6)", "varchar(30)", "longtext"), local_or_bad),
        **dict.fromkeys(("timestamp", "timestamp(3)"), instants),
        "time(3)": {**{ms: _clock(text) for ms, text in local.items()}, **bad},
        "year": {**{ms: str(int(text[:4])) for ms, text in local.items()}, **bad},
        "bigint": {**{ms: ms for ms in local}, **bad},
        "int": {"2147483647": "2147483647", "2147483648": None, "-1": "-1", **bad},
        "decimal(20,0)": {**{ms: ms for ms in local}, **bad},
        "double": {"1500": "1500.0", **bad},
    }


def _integers(low: int, high: int) -> dict[str, str | None]:
    """Numbers inside and outside MySQL's range."""
    good = {str(number): str(number) for number in (0, 1, low, high)}
    return good | dict.fromkeys((str(low - 1), str(high + 1), "", "x", "1.5", "1e3", "true", "9" * 30))


_OF_LONG: dict[str, dict[str, str | None]] = {
    "tinyint": _integers(-128, 127),
    "tinyint(1)": _integers(-128, 127),
    "smallint": _integers(-32768, 32767),
    "mediumint": _integers(-(2**23), 2**23 - 1),
    "int": _integers(-(2**31), 2**31 - 1),
    "bigint": _integers(-(2**63), 2**63 - 1),
    "tinyint unsigned": _integers(0, 255),
    "smallint unsigned": _integers(0, 65535),
    "mediumint unsigned": _integers(0, 2**24 - 1),
    "int unsigned": _integers(0, 2**32 - 1),
    "bigint unsigned": _integers(0, 2**64 - 1) | {"1.5": None},
    "bit(8)": {"255": "255", "x": None},
    "bit(64)": {str(2**64 - 1): str(2**64 - 1), "x": None},
    "year": {"2024": "2024", "0": "0", "x": None},
    "decimal(5,2)": {"7": "7.00", "-999": "-999.00", "1000": None, "x": None},
    "double": {"7": "7.0", "-9007199254740993": "-9.007199254740992E15", "x": None},
    "float": {"7": "7.0"},
    "varchar(30)": {"7": "7", "-0": "-0", str(2**63): str(2**63)},
    "enum('a','b')": {"2": "b", "3": None},
}

_CASES: dict[Case, dict[str, str | None]] = {
    **{("BYTES", kind, "UTC"): texts for kind, texts in _OF_BYTES.items()},
    **{("DATE", kind, zone): texts for place, zone in enumerate(_ZONES) for kind, texts in _of_dates(place).items()},
    **{("LONG", kind, "UTC"): texts for kind, texts in _OF_LONG.items()},
    **{
        ("BOOLEAN", kind, "UTC"): {"true": "1", "false": "0", "1": "1", "0": "0", "TRUE": None, "": None, "x": None}
        for kind in ("tinyint(1)", "tinyint", "int", "bit(1)", "bigint unsigned")
    },
    ("DOUBLE", "double", "UTC"): {
        "0.1": "0.1",
        "1.0E7": "1.0E7",
        "1e-7": "1.0E-7",
        "-0.0": "-0.0",
        "4.9E-324": "4.9E-324",
        "1.7976931348623157E308": "1.7976931348623157E308",
        "5": "5.0",
        **dict.fromkeys(("1e400", "NaN", "Infinity", "x", "", "1.5f")),
    },
    ("DOUBLE", "float", "UTC"): {"0.1": "0.1", "3.4028235E38": "3.4028235E38", "1e39": None},
    ("DOUBLE", "decimal(12,2)", "UTC"): {
        "0.1": "0.10",
        "5": "5.00",
        "1.5E2": "150.00",
        "1.5e-1": "0.15",
        "-1E3": "-1000.00",
        "1.0E7": "10000000.00",
        # 0.30, 1.10 and 4.35 after a conversion to double
        "0.30000000000000004": "0.30",
        "1.1000000000000001": "1.10",
        "4.3499999999999996": "4.35",
        "9999999999.99": "9999999999.99",
        "1E10": None,
        "9999999999.999": None,
        **dict.fromkeys(("1E400", "NaN", "x", "", "1.5f")),
    },
    ("DOUBLE", "decimal(38,0)", "UTC"): {"1E37": "1" + "0" * 37, "1E38": None},
    ("DOUBLE", "decimal(65,30)", "UTC"): {
        # too many digits for Spark's DECIMAL: normalized text
        "1.5E2": "150." + "0" * 30,
        "-1.5E-7": "-0.00000015" + "0" * 22,
        "1.2E34": "12" + "0" * 33 + "." + "0" * 30,
        "1.0E-40": "0." + "0" * 30,
        "0.0": "0." + "0" * 30,
    },
    ("DOUBLE", "varchar(9)", "UTC"): {"1.5E2": "1.5E2"},
    ("STRING", "enum('a','c,d','1')", "UTC"): {"a": "a", "c,d": "c,d", "1": "1", "": "", "other": "other"},
    ("STRING", "set('a','b')", "UTC"): {"a,b": "a,b", "": "", "2": "2"},
    ("STRING", "decimal(12,2)", "UTC"): {
        "1.50": "1.50",
        "100": "100.00",
        "-0.05": "-0.05",
        "9999999999.99": "9999999999.99",
        **dict.fromkeys(("1.505", "1E2", "x", "", "10000000000")),
    },
    ("STRING", "decimal(65,30)", "UTC"): {"9" * 35 + ".5": "9" * 35 + ".5" + "0" * 29},
    ("STRING", "longtext", "UTC"): {text: text for text in (*_TEXTS, *_JSON_TEXTS)},
    ("STRING", "json", "UTC"): {**dict.fromkeys(_TEXTS), **{text: text for text in _JSON_TEXTS}, "": "null"},
    ("DATE", "json", "UTC"): {"0": None},
    # MySQL returns a CHAR without trailing spaces
    ("STRING", "char(3)", "UTC"): {text: text.rstrip(" ") for text in (*_TEXTS, *_JSON_TEXTS)},
    ("STRING", "blob", "UTC"): {text: text.encode().hex().upper() for text in _TEXTS},
    ("STRING", "int", "UTC"): {"5": "5", "x": None},
    ("STRING", "bigint unsigned", "UTC"): {str(2**64 - 1): str(2**64 - 1)},
    ("STRING", "time", "UTC"): {"-838:59:59": "-838:59:59"},
    ("STRING", "date", "America/New_York"): {"2024-02-29": "2024-02-29", "2024-02-30": None},
    ("STRING", "datetime", "America/New_York"): {"2024-11-03 01:30:00": "2024-11-03 01:30:00"},
    ("STRING", "timestamp", "Asia/Shanghai"): {"2024-02-29 00:00:00": "2024-02-28 16:00:00"},
    (JSON_BYTES, "json", "UTC"): {
        **{text.encode().decode("latin-1"): text for text in (*_JSON_TEXTS, '{"é":1}', '"é中😀"', "[1]\r\n")},
        # MariaDB stores what was sent, so nothing is repaired
        **{text.encode().decode("latin-1"): None for text in (*_TEXTS, "NULL", '["a\nb"]', "{'a': 1}")},
        **{f"{found:c}": None for found in (0x80, 0xC3, 0xFF)},
        **dict.fromkeys(("\xed\xa0\x80", "\xc0\x80", "a\xe4\xb8", "\u0100", "😀", "{}\ufffd")),
    },
    (TEXT_BYTES, "text", "UTC"): {
        **{text.encode().decode("latin-1"): text for text in ("", "a", "é", "中😀", "a\r\n")},
        **dict.fromkeys(("\xe9", "\xff", "\u0100")),
    },
    (None, "enum('a','b')", "UTC"): {"2": "b", "b": None},
    (None, "blob", "UTC"): {"\xff": "FF", "\u0100": None},
    (None, "json", "UTC"): {'{"é": 1}': '{"é": 1}', "[NULL]": "[null]", "": "null", "x": None},
}


def _shown(cell: Column, kind: DataType) -> Column:
    return F.hex(cell) if isinstance(kind, BinaryType) else cell.cast("string")


def _values(spark: SparkSession, cases: dict[Case, list[str]]) -> dict[Case, dict[str | None, str | None]]:
    """Converts the texts of all cases, and NULL, in one query."""
    columns = []
    for place, (wire, name, zone) in enumerate(cases):
        kind = type_or_text(name)
        cell = wire_value(F.col("text"), kind, zone, wire)
        shown = F.when(F.array_contains("asked", F.lit(place)), _shown(cell.cast(spark_type(kind)), spark_type(kind)))
        columns.append(shown.alias(f"c{place}"))
    texts = dict.fromkeys(text for asked in cases.values() for text in asked)
    rows = [(text, [place for place, asked in enumerate(cases.values()) if text in asked]) for text in texts]
    frame = spark.createDataFrame([*rows, (None, list(range(len(cases))))], "text STRING, asked ARRAY<INT>")
    found: dict[Case, dict[str | None, str | None]] = {case: {} for case in cases}
    for row in frame.select("text", "asked", *columns).collect():
        for place, case in enumerate(cases):
            if place in row["asked"]:
                found[case][row["text"]] = row[f"c{place}"]
    return found


@pytest.fixture(scope="module")
def values(spark: SparkSession) -> dict[Case, dict[str | None, str | None]]:
    """One query per encoding."""
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    found = {}
    for wire in dict.fromkeys(case[0] for case in _CASES):
        found.update(_values(spark, {case: list(texts) for case, texts in _CASES.items() if case[0] == wire}))
    return found


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case[0]} as {case[1][:40]} in {case[2]}")
def test_values(case: Case, values: dict[Case, dict[str | None, str | None]]) -> None:
    wanted: dict[str | None, str | None] = {None: None}
    wanted.update(_CASES[case].items())
    assert values[case] == wanted


# ---- no text may fail a query, whatever the column type

_WIRES = ("BYTES", "DATE", "LONG", "BOOLEAN", "DOUBLE", "STRING", "FLOAT", "", JSON_BYTES, TEXT_BYTES, None)
_KINDS = (
    *("tinyint(1)", "int", "bigint unsigned", "decimal(5,2)", "decimal", "float", "double", "bit(1)", "bit(64)"),
    *("date", "datetime(6)", "timestamp(6)", "time", "year", "varchar(9)", "json", "enum('a')", "enum", "set('a')"),
    *("binary(4)", "blob", "geometry", "vector(2)", "", "a type of the future"),
)
_ODD_TEXTS = [
    *("", " ", "x", "null", "true", "NaN", "-", "1e400", "-1e400", "1E-400", "0x1F", "9" * 400, "\0", "\ufffd", "😀"),
    *(str(sign * 2**bits) for sign in (1, -1) for bits in (31, 53, 62, 63, 64, 70)),
    *("9223372036854775807", "-9223372036854775808", "9223372036854775", "-9223372036854776", "253402300800000"),
    *("-62135596800001", "-62167219200001", "8640000000000000", "0", "-1", "1.5"),
    *(
        _b64(found)
        for found in (b"\xff" * 8, b"\xff" * 9, b"\x01" + b"\0" * 8, b"\xff" * 40, b"a" * 20, b"\xff\xfe", b"1")
    ),
    *_NO_BASE64,
]


@pytest.mark.parametrize("wire", _WIRES)
def test_no_text_fails_a_query(spark: SparkSession, wire: str | None) -> None:
    cases: list[Case] = [(wire, kind, zone) for kind in _KINDS for zone in ("UTC", "America/New_York")]
    failed: dict[str, str] = {}
    try:
        _values(spark, dict.fromkeys(cases, _ODD_TEXTS))
    except Exception:  # which of them it is
        for case in cases:
            try:
                _values(spark, {case: _ODD_TEXTS})
            except Exception as error:
                found = re.search(r"\[[A-Z_.]+\]|\w+Exception: .*", str(error))
                failed[case[1]] = found[0] if found else str(error)[:100]
    assert failed == {}


# ---- BINARY(n) has n bytes

_PADDED: dict[str, dict[bytes | None, bytes | None]] = {
    "binary(4)": {
        b"": b"\0" * 4,
        b"a": b"a\0\0\0",
        b"\0a": b"\0a\0\0",
        b"abcd": b"abcd",
        b"abcde": b"abcde",
        None: None,
    },
    "binary(1)": {b"": b"\0", b"\xff": b"\xff"},
    "binary(255)": {_ALL_BYTES[:100]: _ALL_BYTES[:100].ljust(255, b"\0")},
    "binary": {b"": b"", b"a": b"a"},  # messages may leave the length out
    "varbinary(4)": {b"": b"", b"a\0": b"a\0"},
    "blob": {b"a": b"a"},
}


def test_padded(spark: SparkSession) -> None:
    texts = list(dict.fromkeys(found for cases in _PADDED.values() for found in cases))
    frame = spark.createDataFrame(
        [(place, None if found is None else bytearray(found)) for place, found in enumerate(texts)],
        "place INT, found BINARY",
    )
    columns = [padded(F.col("found"), type_or_text(kind)).alias(kind) for kind in _PADDED]
    found = {texts[row["place"]]: row for row in frame.select("place", *columns).collect()}
    shown = {
        kind: {text: None if found[text][kind] is None else bytes(found[text][kind]) for text in cases}
        for kind, cases in _PADDED.items()
    }
    assert shown == _PADDED
