"""Text of JSON columns: exactly JSON is accepted, known defects of Canal are repaired, all other text is NULL."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.mysql.types.text_values import document, is_document

_LONG = "k" * 60_000
_VALID = [
    *("0", "-0", "1.50", "1e400", "-1E-400", "1" + "0" * 19, "9" * 65, "9" * 2000, "-1.0E-7"),
    *(
        "null",
        "true",
        "false",
        '""',
        '"x"',
        '"é😀"',
        '"\\ud83d\\ude00"',
        '"\\ud800"',
        '"\\u0000"',
        '"\x7f\u2028\ufeff"',
    ),
    *(
        "[]",
        "{}",
        "{ }",
        "[[[]], {}]",
        '{"a": {"b": [1, 2, {"c": null}]}}',
        '{"a": 1, "a": 2}',
        '{"": 1}',
        "[1, [2], 3]",
    ),
    *(" 1 ", ' {"a": 1}\n', "\t[1 , 2]\r\n", '"a: NULL, b"', '{"a":"}],"}', '{"p": "C:\\\\x \\"q\\""}', '["\\\\"]'),
    *("[" * 150 + "]" * 150, '{"a":' * 2000 + "1" + "}" * 2000, f'"{"s" * 200_000}"', f'{{"{_LONG}": 1, "b": [2]}}'),
    '"base64:type253:AAH/"',
]
_INVALID = [
    *("  ", "1 2", "1,2", '1,"x":2', "1],[2", "1]", "1}", '1},"b":{"c":1', '1],"a":[1', '"x":1', '1, "x"'),
    *('{"a":1}x', '{"a":1} {"b":2}', '{"a":1},{"b":2}', '{"a":1}}', "[1]]", '{"a":{"b":1}', '{"a":[1}', '[{"a":1}'),
    *(
        "{'a': 1}",
        "'a'",
        "NaN",
        "Infinity",
        "-Infinity",
        "[NaN]",
        "{a: 1}",
        '{"a"b": 1}',
        "hello",
        "True",
        "nul",
        "Null",
    ),
    *(
        "[1,]",
        "[,1]",
        "[1 2]",
        '{"a":1,}',
        '{"a"}',
        '{"a":}',
        '{"a" 1}',
        '{"a":1;}',
        "{,}",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
    ),
    *("01", "+1", "1.", ".5", "-", "1e", "0x1", "1_000", "١", "\\u0031", "\xa01", "\x0b1", "\ufeff1", "1\0"),
    *('"a', 'a"', '"', '"\\', '"\\"', '"\\x"', '"\\u12"', "[1", '{"a":1', '{"k":[1', '"a" "b"'),
    *("1//x", "/*x*/1", "# x", "NULLS", "nNULL", "[NULL", '{NULL: 1}"', "NULL NULL"),
    # a key that is printed without an escape, also beside a defect that has a certain reading
    *('{"a"b": NULL}', '{"k"": NULL, "z": "w"}', '{"a"b": "x\ny"}'),
    # a backslash before a control character, which no version prints
    *('"a\\\nb"', '"\\\\\\\tb"', "\n\0", '{"a":\x00 1}'),
]
_REPAIRED = {
    "": "null",
    "NULL": "null",
    "[NULL]": "[null]",
    '{"a": NULL, "n": [NULL, 1], "ok": true}': '{"a": null, "n": [null, 1], "ok": true}',
    '{"NULL": NULL, "s": "NULL", "t": "a: NULL, b"}': '{"NULL": null, "s": "NULL", "t": "a: NULL, b"}',
    '{"q": "\\", NULL: \\\\", "z": NULL}': '{"q": "\\", NULL: \\\\", "z": null}',
    '{"t": "line1\nline2\tend"}': '{"t": "line1\\nline2\\tend"}',
    '["\\\\\n", "\\"\r", NULL]': '["\\\\\\n", "\\"\\r", null]',
    '{"a\nb": "\0\x01\x08\x0c\x1f\x7f"}': '{"a\\nb": "\\u0000\\u0001\\b\\f\\u001f\x7f"}',
    # many escapes and strings: the repair is no backtracking pattern
    '["' + '\\"x\\\\\n' * 20_000 + '"]': '["' + '\\"x\\\\\\n' * 20_000 + '"]',
    "[" + '"a", ' * 20_000 + "NULL]": "[" + '"a", ' * 20_000 + "null]",
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str | None, tuple[bool, str | None]]:
    """Text → whether it is JSON, and its document."""
    texts = [*_VALID, *_INVALID, *_REPAIRED, None]
    frame = spark.createDataFrame(list(enumerate(texts)), "id INT, text STRING")
    rows = frame.select("id", is_document(F.col("text")), document(F.col("text"))).collect()
    return {texts[place]: (valid, shown) for place, valid, shown in rows}


def test_json_is_kept_as_sent(found: dict[str | None, tuple[bool, str | None]]) -> None:
    assert [text[:50] for text in _VALID if found[text] != (True, text)] == []


def test_other_text_is_null(found: dict[str | None, tuple[bool, str | None]]) -> None:
    assert {text: found[text] for text in _INVALID if found[text] != (False, None)} == {}
    assert found[None] == (False, None)


def test_known_defects_are_repaired(found: dict[str | None, tuple[bool, str | None]]) -> None:
    wrong = {text[:50]: found[text] for text, wanted in _REPAIRED.items() if found[text] != (False, wanted)}
    assert wrong == {}
    assert all(json.loads(wanted) is not ... for wanted in _REPAIRED.values())
