"""The `java.sql.Types` codes that `sqlType` may have for a column (ticdc-canal-json "SQL Type field", "Integer types").

The code follows from the MySQL type, and for an unsigned integer also from the value: a value too large for the code of
the signed type has the next larger code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TEXTS = ("tinytext", "text", "mediumtext", "longtext")
CODES: dict[str, int] = {
    "boolean": -6,
    "float": 7,
    "double": 8,
    "decimal": 3,
    "char": 1,
    "varchar": 12,
    "binary": 2004,
    "varbinary": 2004,
    **dict.fromkeys(TEXTS, 2005),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), 2004),
    "date": 91,
    "datetime": 93,
    "timestamp": 93,
    "time": 92,
    "year": 12,
    "enum": 4,
    "set": -7,
    "bit": -7,
    "json": 12,
    "vector": 12,
    "tinyint": -6,
    "smallint": 5,
    "mediumint": 4,
    "int": 4,
    "bigint": -5,
}
"""First word of a MySQL type → its code (ticdc-canal-json "SQL Type field")."""
PROMOTED: dict[str, tuple[int, int]] = {
    "tinyint": (2**7 - 1, 5),
    "smallint": (2**15 - 1, 4),
    "int": (2**31 - 1, -5),
    "bigint": (2**63 - 1, 3),
}
"""Unsigned type → the largest value with the code of the signed type, and the code of larger values ("Integer types")."""
CODES_BEFORE_5_4: dict[str, int] = {
    **{word: code for word, (_, code) in PROMOTED.items()},
    **dict.fromkeys(TEXTS, 12),
    "binary": 1,
    "varbinary": 12,
    "year": 91,
    "enum": 1,
    "set": 1,
    "json": -1,
}
"""Codes of TiCDC before v5.4 that differ: all integers have the code of large unsigned values, text is VARCHAR (tiflow v5.0,
`MysqlToJavaType`)."""
_NULL_BYTES = (-2, -3, -4)
"""Codes of NULL in a column of bytes or text, up to Canal 1.1.6."""
CANAL_CODES: dict[str, tuple[int, ...]] = {
    # up to Canal 1.1.4 TINYINT(1) has the code of BIT
    **dict.fromkeys(("boolean", "bool", "tinyint"), (-6, -7)),
    "numeric": (3,),
    "dec": (3,),
    "fixed": (3,),
    "real": (8, 7),
    "integer": (4, -5),
    "national": (1, 12),
    "nchar": (1,),
    "nvarchar": (12,),
    "float": (8,),  # FLOAT(25) is a DOUBLE
    # codes of MariaDB, of NULL, and of the MySQL driver
    "set": (-7, 2004, -2, 1),
    "enum": (1,),
    "year": (91,),
    "json": (12, 1111, 2004, -1, -4),
    "char": (1,),
    **dict.fromkeys(TEXTS, (*_NULL_BYTES, -1)),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit"), _NULL_BYTES),
    "geometry": (2004, -2),
    **dict.fromkeys(("uuid", "inet4", "inet6"), (1,)),
    **dict.fromkeys(("point", "linestring", "polygon"), (2004, -2)),
    **dict.fromkeys(("multipoint", "multilinestring", "multipolygon"), (2004, -2)),
    **dict.fromkeys(("geometrycollection", "geomcollection"), (2004, -2)),
}
"""Type words that Canal copies from DDL, and codes of Canal beyond those of TiCDC (canal-facts 21, 23, 27, 29, 31; Canal's
`LogEventConvert` and `RowsLogBuffer`, 1.1.0 to 1.1.8)."""


def _all_canal_codes() -> dict[str, frozenset[int]]:
    codes = {name: {code} for name, code in CODES.items()}
    for name, (_, code) in PROMOTED.items():
        codes[name].add(code)
    for name, others in CANAL_CODES.items():
        codes[name] = codes.get(name, set()) | set(others)
    return {name: frozenset(allowed) for name, allowed in codes.items()}


_OF_SIZED_TEXT = 2004
"""Canal's code of `TEXT(n)` and LONG, no texts for it: `LogEventConvert.isText` compares the whole type."""
_ALL_CANAL_CODES = _all_canal_codes()
"""First word of a MySQL type → all codes that Canal may write for it. An unsigned integer may have either of its codes."""
_WORD = "^[a-z0-9]+"


def contradictions(mysql_types: Mapping[str, str | None], sql_types: Mapping[str, int | None]) -> tuple[str, ...]:
    """The columns of a message of Canal whose `sqlType` does not fit `mysqlType`. Unknown types contradict nothing."""
    found = []
    for name, text in mysql_types.items():
        word = re.match(_WORD, (text or "").strip().lower())
        allowed = _ALL_CANAL_CODES.get(word[0]) if word else None
        code = sql_types.get(name)
        if code == _OF_SIZED_TEXT and is_text_as_bytes(text or ""):
            continue
        if allowed is not None and code is not None and code not in allowed:
            found.append(name)
    return tuple(found)


def is_text_as_bytes(mysql_type: str) -> bool:
    """Whether the type is a text that is none for Canal: one with a size, such as `TEXT(500)`, or LONG (MEDIUMTEXT)."""
    base, bracket, _ = mysql_type.strip().lower().partition("(")
    return (bool(bracket) and base.strip() in TEXTS) or base in ("long", "long varchar")


def ticdc_codes(mysql_type: str, value: str, early: str) -> str:
    """SQL of an array of the codes that TiCDC may write for a column; null for an unknown type.

    `mysql_type`: SQL of the type in `mysqlType`. `value`: SQL of the value. `early`: SQL, true for encoders before v5.4.
    """
    word, unsigned = _word(mysql_type), f"lower({mysql_type}) LIKE '% unsigned%'"
    number = f"try_cast({value} AS DECIMAL(20, 0))"
    current = {name: f"array({code})" for name, code in CODES.items()}
    for name, (most, code) in PROMOTED.items():
        current[name] = f"array(IF({unsigned} AND coalesce({number} > {most}BD, false), {code}, {CODES[name]}))"
    before_5_4 = {name: f"array({code})" for name, code in {**CODES, **CODES_BEFORE_5_4}.items()}
    return f"IF({early}, {_case(word, before_5_4)}, {_case(word, current)})"


def canal_codes(mysql_type: str) -> str:
    """SQL of an array of the codes that Canal may write for a column; null for an unknown type."""
    arrays = {name: f"array({', '.join(map(str, sorted(allowed)))})" for name, allowed in _ALL_CANAL_CODES.items()}
    codes = _case(_word(mysql_type), arrays)
    is_sized = f"{_word(mysql_type)} IN ({', '.join(map(repr, TEXTS))}) AND {mysql_type} LIKE '%(%'"
    return f"IF({is_sized}, array_append({codes}, {_OF_SIZED_TEXT}), {codes})"


def _word(mysql_type: str) -> str:
    return f"regexp_extract(lower(trim({mysql_type})), '{_WORD}', 0)"


def _case(word: str, codes: dict[str, str]) -> str:
    names: dict[str, list[str]] = {}
    for name, code in codes.items():
        names.setdefault(code, []).append(f"'{name}'")
    cases = [f"WHEN {word} IN ({', '.join(of_code)}) THEN {code}" for code, of_code in names.items()]
    return f"CASE {' '.join(cases)} END"
