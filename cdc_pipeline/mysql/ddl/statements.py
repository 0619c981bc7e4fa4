"""The changes of one event of `ddl_history`, and its statement as messages show it.

DDL is parsed. Events whose rows were not sent become NotSupported, as no mirror can apply them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.schema_changes import NotSupported, SchemaChange
from cdc_pipeline.mysql.model.table import TableName

DDL_EVENT, OTHER_DDL_EVENT, STATEMENT_EVENT, XA_EVENT, BASELINE_EVENT = (
    "ddl",
    "other_ddl",
    "statement",
    "xa",
    "baseline",
)
"""Values of `ddl_history.kind`: a MySQL DDL statement, a DDL statement of another database, a row change that was logged as
a statement, XA ROLLBACK, a table's state in an export (its statement is the CREATE TABLE)."""

_RENAMES_TABLE = re.compile(r"\b(?:sp_)?rename\b(?!\s{1,99}(?:column|constraint|to\s{1,99}partition)\b)", re.I)
_OF_COLUMN = re.compile("'(?:column|index)'", re.I)
"""The object types of SQL Server's `sp_rename` other than tables."""


def event_changes(
    kind: str, database: str, table: str, sql: str, quotings: Sequence[Quoting] = (Quoting.MYSQL,)
) -> tuple[SchemaChange, ...]:
    """The changes of one event. Unqualified names get `database`. Never raises, see `parse_ddl`."""
    if kind in (DDL_EVENT, BASELINE_EVENT):
        return parse_ddl(sql, database, table, quotings)
    name = TableName(database, table) if table else None
    if kind == OTHER_DDL_EVENT:
        reason = "not applied: DDL of a database that is not MySQL"
        # a message about a rename has only the new name, so the renamed mirror is unknown
        return (NotSupported(reason, name, everywhere=name is None or _renames_a_table(sql)),)
    if kind == STATEMENT_EVENT:
        return (NotSupported("a change was logged as a statement (binlog_format), its rows were not sent", name),)
    return (NotSupported("XA ROLLBACK does not undo the rows that were sent at XA PREPARE", name),)


def _renames_a_table(sql: str) -> bool:
    return _RENAMES_TABLE.search(sql) is not None and _OF_COLUMN.search(sql) is None


_LONGEST = 200
_FEW_WORDS = 3
# with MySQL's escapes, and in the mode NO_BACKSLASH_ESCAPES
_STRINGS = (
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" """,
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" """,
)
_PIECES = r"""
    (?P<string> STRINGS )
    | (?P<kept> `[^`]*`
        | \b(?:(?:var)?(?:char|binary)|bit|(?:tiny|small|medium|big)?int|integer)\s*\(\s*\d{1,5}\s*\)
        | \b(?:decimal|numeric|float|double)\s*\(\s*\d{1,3}\s*(?:,\s*\d{1,2}\s*)?\)
        | \b(?:datetime|timestamp|time)\s*\(\s*\d\s*\) )
    | (?P<unclear> ['"`] | /\*[MT]?! )
    | (?P<comment> /\*.*?\*/ | (?:\#|--(?=\s|\Z))[^\n]* )
    | (?P<endless> /\* )
    | (?P<number> (?<![\w$])(?:0[xb][0-9a-f]+|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?![\w$]) )
    """
_RULES = [
    re.compile(_PIECES.replace("STRINGS", strings), re.VERBOSE | re.DOTALL | re.IGNORECASE) for strings in _STRINGS
]
_WORD = re.compile(r"(?!\d)[\w$.`]+")


class _UnclearError(ValueError):
    """Quotes that do not pair up, or a comment that only some servers run."""


def without_literals(text: str) -> str:
    """The text in one line of at most 200 characters. `…` replaces what is in quotes, and numbers except sizes of types.

    Names in backticks stay, comments do not. At most the first three words if it is not clear where a literal ends.
    """
    try:
        shown, other = (" ".join(rule.sub(_shown, text).split()) for rule in _RULES)
    except _UnclearError:
        shown, other = "", text
    if shown != other:
        words = takewhile(_WORD.fullmatch, text.split()[:_FEW_WORDS])
        return " ".join([*words, "…"])
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


def _shown(piece: re.Match[str]) -> str:
    found = piece.group()
    if piece["unclear"] or piece["endless"]:
        raise _UnclearError
    if piece["string"]:
        return f"{found[0]}…{found[0]}"
    return found if piece["kept"] else " " if piece["comment"] else "…"
