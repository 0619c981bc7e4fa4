"""Reads DDL texts for the fold. It shares no code with the writers of these texts."""

from __future__ import annotations

import re

from cdc_pipeline_tests.histories.fold_tables import FoldTable, as_type, members
from cdc_pipeline_tests.histories.shapes import Name, Row

_TOKENS = (
    r"(?P<skip>\s+|/\*.*?\*/|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$))"
    r"|`(?P<quoted>(?:[^`]|``)*)`|%s|(?P<number>-?\d[\d.]*)|(?P<word>\w+)|(?P<mark>.)"
)
_BY_USER = re.compile(_TOKENS % r"'(?P<text>(?:[^'\\]|''|\\.)*)'", re.DOTALL)
# TiDB prints an introducer before literals, whose backslashes it doubles
_PRINTED = re.compile(_TOKENS % r"_UTF8MB4'(?P<literal>(?:[^']|'')*)'|'(?P<text>(?:[^']|'')*)'", re.DOTALL)
_ZEROS = {"int": "0", "bigint": "0", "decimal": "0", "varchar": "", "varbinary": "", "time": "00:00:00", "set": ""}


def run(sql: str, database: str, tables: dict[Name, FoldTable], *, printed: bool) -> None:
    """Applies a statement to `tables`. Unqualified names are in `database`. `printed`: by TiDB."""
    _Reader(_tokens(sql, printed=printed), database.strip("`"), tables).run()


def _tokens(sql: str, *, printed: bool) -> list[tuple[str, str]]:
    found = []
    for match in (_PRINTED if printed else _BY_USER).finditer(sql):
        kind = match.lastgroup or ""
        text = match.group(kind)
        if kind == "text" and not printed:
            text = re.sub(r"''|\\(.)", lambda found: found.group(1) or "'", text)
        elif kind in ("text", "literal"):
            text = text.replace("''", "'")
        if kind == "literal":
            kind, text = "text", text.replace("\\\\", "\\")
        # to this pattern, a doubled back quote around a name is an empty name
        if kind != "skip" and not (kind == "quoted" and not text):
            found.append((kind, text))
    return found


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]], database: str, tables: dict[Name, FoldTable]) -> None:
        self._tokens = tokens
        self._at = 0
        self._database = database
        self._tables = tables

    # ---- tokens

    def _accept(self, *words: str) -> bool:
        """Reads these words or marks if they are next."""
        found = [
            text.upper() for kind, text in self._tokens[self._at : self._at + len(words)] if kind in ("word", "mark")
        ]
        if found != [word.upper() for word in words]:
            return False
        self._at += len(words)
        return True

    def _expect(self, *words: str) -> None:
        assert self._accept(*words), (words, self._tokens[self._at :])

    def _take(self, *kinds: str) -> str:
        kind, text = self._tokens[self._at]
        assert kind in kinds, (kinds, self._tokens[self._at :])
        self._at += 1
        return text

    def _name(self) -> str:
        return self._take("quoted", "word")

    def _names(self) -> list[str]:
        found = [self._name()]
        while self._accept(","):
            found.append(self._name())
        return found

    def _in_brackets(self) -> list[str]:
        self._expect("(")
        found = self._names()
        self._expect(")")
        return found

    def _table(self) -> Name:
        name = self._name()
        return (name, self._name()) if self._accept(".") else (self._database, name)

    # ---- statements

    def run(self) -> None:
        if self._accept("CREATE", "TABLE"):
            self._create()
        elif self._accept("ALTER", "TABLE"):
            self._alter()
        elif self._accept("RENAME", "TABLE"):
            more = True
            while more:
                old = self._table()
                self._expect("TO")
                self._rename(old)
                more = self._accept(",")
        elif self._accept("TRUNCATE"):
            self._accept("TABLE")
            name = self._table()
            self._tables[name] = self._tables[name].empty()
        elif self._accept("DROP", "TABLE"):
            del self._tables[self._table()]
            while self._accept(","):
                del self._tables[self._table()]
        elif self._accept("DROP", "DATABASE"):
            database = self._name()
            for name in [name for name in self._tables if name[0] == database]:
                del self._tables[name]
        else:
            self._expect("CREATE", "DATABASE")
            self._name()
        assert self._at == len(self._tokens), self._tokens[self._at :]

    def _rename(self, old: Name) -> None:
        new = self._table()
        assert new not in self._tables
        self._tables[new] = self._tables.pop(old)

    def _create(self) -> None:
        name = self._table()
        assert name not in self._tables
        if self._accept("LIKE"):
            self._tables[name] = self._tables[self._table()].empty()
            return
        self._expect("(")
        table = FoldTable([], [], set())
        more, unique = True, list[str]()
        while more:
            if self._accept("PRIMARY", "KEY"):
                table.key = self._in_brackets()
            elif self._accept("UNIQUE", "KEY"):
                self._name()
                unique = self._in_brackets()
            elif self._accept("CONSTRAINT"):  # a foreign key is the last part
                while self._tokens[self._at + 1 : self._at + 2] != [("word", "DEFAULT")]:
                    self._at += 1
            else:
                column, needed, _ = self._column()
                table.columns.append(column)
                table.not_null |= {column[0]} if needed else set()
            more = self._accept(",")
        self._expect(")", "DEFAULT")
        while self._at < len(self._tokens) and not self._accept("PARTITION", "BY"):
            self._at += 1
        if self._at < len(self._tokens):
            self._partitions(table)
        table.has_primary_key, table.key = bool(table.key), table.key or unique
        self._tables[name] = table

    def _partitions(self, table: FoldTable) -> None:
        table.hashed = self._accept("HASH")
        if not table.hashed:
            self._expect("RANGE")
        (table.partitioning_column,) = self._in_brackets()
        if table.hashed:
            self._expect("PARTITIONS")
            table.parts = [(f"p{number}", None) for number in range(int(self._take("number")))]
        else:
            table.parts = self._ranges()

    def _ranges(self) -> list[tuple[str, int | None]]:
        self._expect("(")
        found, more = list[tuple[str, "int | None"]](), True
        while more:
            self._expect("PARTITION")
            name = self._name()
            self._expect("VALUES", "LESS", "THAN", "(")
            found.append((name, None if self._accept("MAXVALUE") else int(self._take("number"))))
            self._expect(")")
            more = self._accept(",")
        self._expect(")")
        return found

    def _column(self) -> tuple[tuple[str, str], bool, str | None]:
        """The column, whether it is NOT NULL, and its default."""
        name, type_text = self._name(), self._take("word").lower()
        base, needed, default = type_text, False, None
        if self._accept("("):
            numbers = [self._size()]
            while self._accept(","):
                numbers.append(self._size())
            self._expect(")")
            type_text += f"({','.join(numbers)})"
        if self._accept("UNSIGNED"):
            type_text += " unsigned"
        while True:
            if self._accept("NOT", "NULL"):
                needed = True
            elif self._accept("DEFAULT"):
                default = self._take("number", "text")
            else:
                break
        zero = (members(type_text)[0] if base == "enum" else _ZEROS[base]) if needed else None
        return (name, type_text), needed, as_type(zero if default is None else default, type_text)

    def _size(self) -> str:
        """A number, or a label in quotes."""
        kind, text = self._tokens[self._at]
        self._at += 1
        return text if kind == "number" else "'" + text.replace("'", "''") + "'"

    # ---- ALTER TABLE

    def _alter(self) -> None:
        name = self._table()
        table = self._tables[name]
        if self._accept("RENAME", "AS") or self._accept("RENAME", "TO"):
            self._rename(name)
            return
        if self._accept("EXCHANGE", "PARTITION"):
            self._exchange(table)
            return
        before = [column for column, _ in table.columns]
        moved: dict[str, str] = {}
        more = True
        while more:
            self._clause(table, moved)
            more = self._accept(",")
        if moved:
            table.columns = [(moved.get(column, column), type_text) for column, type_text in table.columns]
            table.key = [moved.get(column, column) for column in table.key]
            table.not_null = {moved.get(column, column) for column in table.not_null}
            table.rows = [{moved.get(column, column): value for column, value in row.items()} for row in table.rows]
            assert all(column in before for column in moved)

    def _clause(self, table: FoldTable, moved: dict[str, str]) -> None:
        if self._accept("RENAME", "COLUMN"):
            old = self._name()
            self._expect("TO")
            moved[old] = self._name()
        elif self._accept("DROP", "PRIMARY", "KEY"):
            table.not_null |= set(table.key)
            table.key, table.has_primary_key = [], False
        elif self._accept("ADD", "PRIMARY", "KEY"):
            table.key, table.has_primary_key = self._in_brackets(), True
        elif self._accept("ADD", "PARTITION", "PARTITIONS"):
            more = int(self._take("number"))
            table.parts += [(f"p{len(table.parts) + number}", None) for number in range(more)]
        elif self._accept("ADD", "PARTITION"):
            table.parts += self._ranges()
        elif self._accept("REORGANIZE", "PARTITION"):
            old = self._name()
            self._expect("INTO")
            at = [name for name, _ in table.parts].index(old)
            table.parts[at : at + 1] = self._ranges()
        elif self._accept("TRUNCATE", "PARTITION"):
            gone = self._names()
            table.rows = [row for row in table.rows if table.part_of(row) not in gone]
        elif self._accept("DROP", "PARTITION"):
            gone = self._names()
            table.rows = [row for row in table.rows if table.part_of(row) not in gone]
            table.parts = [part for part in table.parts if part[0] not in gone]
        else:
            self._column_clause(table)

    def _column_clause(self, table: FoldTable) -> None:
        verb = self._take("word").upper()
        self._accept("COLUMN")
        if verb == "DROP":
            gone = self._name()
            table.columns = [column for column in table.columns if column[0] != gone]
            table.not_null.discard(gone)
            table.rows = [{name: value for name, value in row.items() if name != gone} for row in table.rows]
            return
        old = self._name() if verb == "CHANGE" else ""
        (name, type_text), needed, default = self._column()
        if verb == "ADD":
            table.rows = [{**row, name: default} for row in table.rows]
            at = len(table.columns)
        else:
            old = old or name
            at = [column for column, _ in table.columns].index(old)
            del table.columns[at]
            table.key = [name if column == old else column for column in table.key]
            table.not_null.discard(old)
            table.rows = [{**_without(row, old), name: as_type(row[old], type_text)} for row in table.rows]
        if self._accept("FIRST"):
            at = 0
        elif self._accept("AFTER"):
            at = 1 + [column for column, _ in table.columns].index(self._name())
        table.columns.insert(at, (name, type_text))
        table.not_null |= {name} if needed else set()

    def _exchange(self, table: FoldTable) -> None:
        part = self._name()
        self._expect("WITH", "TABLE")
        other = self._tables[self._table()]
        inside = [row for row in table.rows if table.part_of(row) == part]
        table.rows = [row for row in table.rows if table.part_of(row) != part] + other.rows
        other.rows = inside


def _without(row: Row, name: str) -> Row:
    return {column: value for column, value in row.items() if column != name}
