"""DDL statements as text: as TiDB's parser normalizes them, and as users write them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from cdc_pipeline_tests.histories.choices import Choices
from cdc_pipeline_tests.histories.ddl import (
    FIRST,
    AddColumn,
    AddKey,
    AlterTable,
    ChangeColumn,
    Clause,
    Column,
    CreateDatabase,
    CreateLike,
    CreateTable,
    DropColumn,
    DropDatabase,
    DropKey,
    DropTables,
    EmptyParts,
    ExchangePartition,
    RenameColumn,
    RenameTables,
    Repartition,
    Statement,
    TruncateTable,
)
from cdc_pipeline_tests.histories.ddl_types import statement_database
from cdc_pipeline_tests.histories.recased import Recased
from cdc_pipeline_tests.histories.shapes import Table, part_words
from cdc_pipeline_tests.histories.typed_texts import escaped, in_case, is_labelled


class Style(ABC):
    """How a statement is written. Names without a database are in `database`."""

    def __init__(self, choices: Choices, database: str, recased: Recased | None = None) -> None:
        self.choices = choices
        self.database = database
        self.recased = recased

    @abstractmethod
    def words(self, text: str) -> str:
        """Keywords or a type."""

    @abstractmethod
    def name(self, name: str) -> str:
        """The name of a column, a partition or a database."""

    @abstractmethod
    def string(self, value: str) -> str: ...

    @abstractmethod
    def labels(self, mysql_type: str) -> str:
        """The type of an ENUM or SET with its labels as this style writes them."""

    @abstractmethod
    def primary_key(self, columns: Iterable[str]) -> str: ...

    def known(self, name: str) -> str:
        """The name of an object that exists."""
        return self.name(name if self.recased is None else self.recased(name))

    def new_table(self, name: str) -> str:
        """The name of a table that does not exist."""
        return self.known(name) if self.recased is not None and self.recased.new else self.name(name)

    def table(self, table: Table, *, qualified: bool = False, new: bool = False) -> str:
        name = self.new_table(table.name) if new else self.known(table.name)
        return f"{self.known(table.database)}.{name}" if qualified or table.database != self.database else name


class Tidb(Style):
    def words(self, text: str) -> str:
        return text.upper()

    def name(self, name: str) -> str:
        return f"`{name}`"

    def string(self, value: str) -> str:
        doubled = escaped(value).replace("'", "''")
        return f"_UTF8MB4'{doubled}'"

    def labels(self, mysql_type: str) -> str:
        return mysql_type

    def primary_key(self, columns: Iterable[str]) -> str:
        return f"PRIMARY KEY({', '.join(map(self.known, columns))}) /*T![clustered_index] NONCLUSTERED */"


class User(Style):
    """A user's style. It is the same throughout a statement, except for spaces and comments."""

    def __init__(self, choices: Choices, database: str, recased: Recased | None = None) -> None:
        super().__init__(choices, database, recased)
        self._case = choices.pick((str.upper, str.lower, str.title))
        self._quoted = choices.chance(0.4)
        self._odd = choices.chance(0.3)

    def words(self, text: str) -> str:
        words = text.split(" ")
        if words[-1] == "COLUMN" and words[0] != "RENAME" and self.choices.chance(0.3):
            words.pop()
        return self._space().join(self._case(word) for word in words)

    def _space(self) -> str:
        return self.choices.pick((" ", "  ", "\n  ", " /* c */ ", "\t", " -- d\n ", " # e\n ")) if self._odd else " "

    def name(self, name: str) -> str:
        return f"`{name}`" if self._quoted or name.lower() == "range" else name

    def labels(self, mysql_type: str) -> str:
        return escaped(mysql_type)

    def string(self, value: str) -> str:
        value = escaped(value)
        if "'" not in value or self.choices.chance(0.5):
            doubled = value.replace("'", "''")
            return f"'{doubled}'"
        quoted = value.replace("'", "\\'")
        return f"'{quoted}'"

    def primary_key(self, columns: Iterable[str]) -> str:
        return f"{self.words('PRIMARY KEY')} ({','.join(map(self.known, columns))})"

    def framed(self, sql: str) -> str:
        """The statement with optional text before and after it."""
        if not self._odd:
            return sql
        before = self.choices.pick(("", "", "/* lead */ ", "-- dash\n", "# hash\n", "  "))
        return before + sql + self.choices.pick(("", "", " /* cm */", " "))


def user_text(statement: Statement, choices: Choices, recased: Recased | None = None) -> str:
    """The statement as the binlog has it: the user's text, except for DROP TABLE, which the server normalizes."""
    style = User(choices, statement_database(statement), recased)
    if type(statement) is CreateTable:
        return _create(statement.table, style)
    if type(statement) is DropTables:
        tables = [f"`{table.name}`" if table.database == style.database else _full(table) for table in statement.tables]
        return f"DROP TABLE {','.join(tables)} /* generated by server */"
    return style.framed(statement_text(statement, style))


def clauses_text(statement: AlterTable, choices: Choices) -> str:
    """The clauses of an ALTER TABLE, without ALTER TABLE and the name."""
    style = User(choices, statement.before.database)
    return ", ".join(_clause(clause, style) for clause in statement.clauses)


def _create(table: Table, style: Style) -> str:
    spelled = style.new_table(table.name).strip("`")
    sql = table.create_statement(printed=isinstance(style, Tidb))
    return sql.replace(f"CREATE TABLE `{table.name}`", f"CREATE TABLE `{spelled}`")


def _full(table: Table) -> str:
    return f"`{table.database}`.`{table.name}`"


def statement_text(statement: Statement, style: Style) -> str:
    """The statement's text. Tables of the style's database are qualified now and then."""
    if type(statement) is CreateTable:
        return _create(statement.table, style)
    qualified = style.choices.chance(0.5)
    if isinstance(style, Tidb) and isinstance(statement, (DropTables, ExchangePartition)):
        qualified = True  # TiCDC normalizes these
    words = style.words

    def table(item: Table) -> str:
        return style.table(item, qualified=qualified)

    if isinstance(statement, CreateLike):
        created = style.table(statement.table, qualified=qualified, new=True)
        return f"{words('CREATE TABLE')} {created} {words('LIKE')} {table(statement.source)}"
    if isinstance(statement, AlterTable):
        joined = ", ".join(_clause(clause, style) for clause in statement.clauses)
        return f"{words('ALTER TABLE')} {table(statement.before)} {joined}"
    if isinstance(statement, RenameTables):
        return _rename(statement, style, qualified=qualified)
    if isinstance(statement, TruncateTable):
        return f"{words('TRUNCATE TABLE')} {table(statement.table)}"
    if isinstance(statement, DropDatabase):
        return f"{words('DROP DATABASE')} {style.known(statement.database)}"
    if isinstance(statement, DropTables):
        return f"{words('DROP TABLE')} {', '.join(map(table, statement.tables))}"
    if isinstance(statement, CreateDatabase):
        return f"{words('CREATE DATABASE')} {style.name(statement.database)}"
    assert isinstance(statement, ExchangePartition)
    return (
        f"{words('ALTER TABLE')} {table(statement.table)} {words('EXCHANGE PARTITION')} {style.known(statement.part)} "
        f"{words('WITH TABLE')} {table(statement.other)}"
    )


def _rename(statement: RenameTables, style: Style, *, qualified: bool) -> str:
    # if the pairs have several databases, the message does not show the database of an unqualified name
    tables = [table for pair in statement.pairs for table in pair]
    qualified = qualified or any(table.database != style.database for table in tables)
    pairs = [
        (style.table(old, qualified=qualified), style.table(new, qualified=qualified, new=True))
        for old, new in statement.pairs
    ]
    if len(pairs) == 1 and style.choices.chance(0.3):
        ((old, new),) = pairs
        word = "RENAME AS" if isinstance(style, Tidb) or style.choices.chance(0.3) else "RENAME TO"
        return f"{style.words('ALTER TABLE')} {old} {style.words(word)} {new}"
    joined = ", ".join(f"{old} {style.words('TO')} {new}" for old, new in pairs)
    return f"{style.words('RENAME TABLE')} {joined}"


def _clause(clause: Clause, style: Style) -> str:
    words, name = style.words, style.name
    if isinstance(clause, AddColumn):
        return f"{words('ADD COLUMN')} {_column(clause.column, clause.place, style)}"
    if isinstance(clause, DropColumn):
        return f"{words('DROP COLUMN')} {style.known(clause.name)}"
    if isinstance(clause, RenameColumn):
        return f"{words('RENAME COLUMN')} {style.known(clause.name)} {words('TO')} {name(clause.new_name)}"
    if isinstance(clause, ChangeColumn):
        column = _column(clause.column, clause.place, style)
        if clause.name == clause.column.name:
            return f"{words('MODIFY COLUMN')} {column}"
        return f"{words('CHANGE COLUMN')} {style.known(clause.name)} {column}"
    if isinstance(clause, DropKey):
        return words("DROP PRIMARY KEY")
    if isinstance(clause, AddKey):
        return f"{words('ADD')} {style.primary_key(clause.columns)}"
    if isinstance(clause, EmptyParts):
        verb = "DROP PARTITION" if clause.drop else "TRUNCATE PARTITION"
        return f"{words(verb)} {', '.join(map(style.known, clause.names))}"
    return _repartition(clause, style)


def _repartition(clause: Repartition, style: Style) -> str:
    names, bounds = clause.partitioning.names, clause.partitioning.bounds
    if not bounds:
        return f"{style.words('ADD PARTITION PARTITIONS')} {clause.added}"
    new = len(clause.parts) + 1 if clause.parts else clause.added
    parts = ", ".join(part_words(name, bound) for name, bound in zip(names[-new:], bounds[-new:], strict=True))
    if not clause.parts:
        return f"{style.words('ADD PARTITION')} ({parts})"
    old = ", ".join(map(style.known, clause.parts))
    return f"{style.words('REORGANIZE PARTITION')} {old} {style.words('INTO')} ({parts})"


def _column(column: Column, place: str | None, style: Style) -> str:
    base = column.type.split("(")[0]
    words = style.words(base if is_labelled(column.type) else column.type)
    if is_labelled(column.type):
        words = in_case(style.labels(column.type), words)
    parts = [style.name(column.name), words]
    if column.not_null:
        parts.append(style.words("NOT NULL"))
    if column.default is not None:
        number = column.type.startswith(("int", "bigint", "decimal")) and style.choices.chance(0.7)
        parts += [style.words("DEFAULT"), column.default if number else style.string(column.default)]
    if place is not None:
        parts.append(style.words("FIRST") if place == FIRST else f"{style.words('AFTER')} {style.known(place)}")
    return " ".join(parts)
