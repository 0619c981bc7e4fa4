"""The Java type that a message names for each column in `sqlType` (ticdc-canal-json "SQL Type field", "Integer types").

It follows from the column's MySQL type and, where an unsigned integer is too large for the Java type of the signed one,
from the value. The tables here are those of the document; as SQL they are looked up for every column of a message.
"""

from __future__ import annotations

CODES: dict[str, int] = {
    "boolean": -6,
    "float": 7,
    "double": 8,
    "decimal": 3,
    "char": 1,
    "varchar": 12,
    "binary": 2004,
    "varbinary": 2004,
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 2005),
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
"""The word of a MySQL type → its code."""
PROMOTED: dict[str, tuple[int, int]] = {
    "tinyint": (2**7 - 1, 5),
    "smallint": (2**15 - 1, 4),
    "int": (2**31 - 1, -5),
    "bigint": (2**63 - 1, 3),
}
"""An unsigned type → the largest value of its own code, and the code of those above it."""
EARLY: dict[str, int] = {
    **{word: code for word, (_, code) in PROMOTED.items()},
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), 12),
    "binary": 1,
    "varbinary": 12,
    "year": 91,
    "enum": 1,
    "set": 1,
    "json": -1,
}
"""What encoders of TiCDC before v5.4 have in its place: integers as if all were unsigned and large, text as VARCHAR, and of
what has no type of its own that of the driver (tiflow v5.0, `MysqlToJavaType`)."""
OF_CANAL: dict[str, tuple[int, ...]] = {
    "boolean": (-6,),
    "bool": (-6,),
    "numeric": (3,),
    "dec": (3,),
    "fixed": (3,),
    "real": (8, 7),
    "integer": (4, -5),
    "national": (1, 12),
    "nchar": (1,),
    "nvarchar": (12,),
    # the driver's own, and MariaDB's
    "set": (-7, 2004),
    "json": (12, 1111, 2004),
    "char": (1,),
    "geometry": (2004,),
    **dict.fromkeys(("uuid", "inet4", "inet6"), (1,)),
    **dict.fromkeys(("point", "linestring", "polygon"), (2004,)),
    **dict.fromkeys(("multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection"), (2004,)),
}
"""The words that Canal takes from DDL, and the codes that it has beside those of the document (canal-facts 23, 29)."""


def allowed(mysql_type: str, value: str, early: str) -> str:
    """SQL of the codes that a TiCDC message may have for a column: `mysql_type`, `value` are SQL of its words and its text,
    `early` of whether the encoder is one before v5.4. Null for a type that is not known."""
    word, unsigned = _word(mysql_type), f"lower({mysql_type}) LIKE '% unsigned%'"
    number = f"try_cast({value} AS DECIMAL(20, 0))"
    plain = {name: f"array({code})" for name, code in CODES.items()}
    for name, (most, code) in PROMOTED.items():
        plain[name] = f"array(IF({unsigned} AND coalesce({number} > {most}BD, false), {code}, {CODES[name]}))"
    before = {name: f"array({code})" for name, code in {**CODES, **EARLY}.items()}
    return f"IF({early}, {_case(word, before)}, {_case(word, plain)})"


def allowed_of_canal(mysql_type: str) -> str:
    """`allowed` of Canal, which has either code of an unsigned integer."""
    codes = {name: {code} for name, code in CODES.items()}
    for name, (_, code) in PROMOTED.items():
        codes[name].add(code)
    for name, more in OF_CANAL.items():
        codes[name] = codes.get(name, set()) | set(more)
    arrays = {name: f"array({', '.join(map(str, sorted(found)))})" for name, found in codes.items()}
    return _case(_word(mysql_type), arrays)


def _word(mysql_type: str) -> str:
    return f"regexp_extract(lower(trim({mysql_type})), '^[a-z0-9]+', 0)"


def _case(word: str, codes: dict[str, str]) -> str:
    found: dict[str, list[str]] = {}
    for name, code in codes.items():
        found.setdefault(code, []).append(f"'{name}'")
    cases = []
    for code, names in found.items():
        cases.append(f"WHEN {word} IN ({', '.join(names)}) THEN {code}")
    return f"CASE {' '.join(cases)} END"
