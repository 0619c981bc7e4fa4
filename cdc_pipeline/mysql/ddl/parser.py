"""Parses DDL statements of MySQL, MariaDB and TiDB to `SchemaChange` values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline.mysql.ddl.alter_table import drop_index_clause, read_alter_clauses
from cdc_pipeline.mysql.ddl.create_table import read_create_table
from cdc_pipeline.mysql.ddl.keys import INDEX_TYPES, read_key_parts
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind, Quoting
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.change_names import with_database
from cdc_pipeline.mysql.model.limits import shortened
from cdc_pipeline.mysql.model.table import PlainIndex, TableName, UniqueKey

# Objects of CREATE, ALTER and DROP that do not change the rows of a table. Words before them are skipped (CREATE
# DEFINER=… SQL SECURITY … VIEW).
_OTHER_OBJECTS = (
    *("VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SEQUENCE", "SERVER", "BINDING"),
    *("PACKAGE", "LIBRARY", "STATISTICS", "STATS", "TABLESPACE", "LOGFILE", "INSTANCE", "PREPARE", "RANGE"),
    *("RESOURCE GROUP", "PLACEMENT POLICY", "MASKING POLICY", "SPATIAL REFERENCE"),
)
_INDEXES = ("INDEX", "UNIQUE INDEX", "FULLTEXT INDEX", "SPATIAL INDEX", "VECTOR INDEX", "COLUMNAR INDEX")
# Words between verb and object.
_MODIFIERS = ("OR", "REPLACE", "AGGREGATE", "GLOBAL", "SESSION", "UNDO", "ALGORITHM", "DEFINER", "SQL", "SECURITY")
# Verbs of other statements that do not change the rows of a table.
_OTHER_VERBS = (
    *("GRANT", "REVOKE", "SET", "ANALYZE", "CHECK", "CHECKSUM", "OPTIMIZE", "REPAIR", "FLUSH", "LOCK", "UNLOCK"),
    *("USE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "HELP", "KILL", "RESET", "INSTALL", "UNINSTALL", "ADMIN", "SPLIT"),
    *("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "PURGE", "CHANGE", "STOP", "CACHE"),
)
# Their bodies may contain semicolons.
_ROUTINES = frozenset({"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "LIBRARY"})


def parse_ddl(
    sql: str, database: str, table: str = "", quotings: Sequence[Quoting] = (Quoting.MYSQL,)
) -> tuple[ddl.SchemaChange, ...]:
    """The changes of a statement in their order. Never raises.

    `database`: that of the message, for unqualified names; may be in backquotes, as Canal sends it. If the statement itself
    qualifies the name from which the encoder takes it, unqualified names keep an empty one. `table`: the table of the
    message, for statements that name their table by a job number or cannot be parsed up to its name. A statement that
    cannot be parsed to its end becomes one NotSupported. Its reason names the words at which the parser stopped.

    `quotings`: those that the statement may have, at least one. If it can be parsed in several and they differ, it becomes
    a NotSupported.
    """
    # without a backslash they are the same
    statements = [_Statement(_unquoted(database), table) for _ in quotings[: None if "\\" in sql else 1]]
    readings = [statement.changes(sql, quoting) for statement, quoting in zip(statements, quotings, strict=False)]
    parsed = [reading for reading in readings if not isinstance(reading[0], ddl.NotSupported)] or readings[:1]
    if all(reading == parsed[0] for reading in parsed):
        return parsed[0]
    reason = "the statement has backslashes: it is not known whether they are escapes, or TiDB printed its labels"
    return (statements[0].not_supported(reason),)


def _unquoted(database: str) -> str:
    if len(database) > 1 and database[0] == database[-1] == "`":
        return database[1:-1].replace("``", "`")
    return database


class _Statement:
    """Parses one statement."""

    def __init__(self, database: str, message_table: str) -> None:
        self.database = database
        self.table: TableName | None = None
        """The first table of the statement, once it is parsed."""
        self.creates = False
        """Whether the statement creates `table`."""
        self._message_table = message_table

    def changes(self, sql: str, quoting: Quoting) -> tuple[ddl.SchemaChange, ...]:
        """The changes of the statement; one NotSupported if it cannot be parsed. Never raises."""
        try:
            changes = self.read(Cursor(sql, quoting))
            if self._has_other_database(changes):
                return changes
            return tuple(with_database(change, self.database) for change in changes)
        except ValueError as error:  # DdlSyntaxError, SchemaConflictError
            reason = str(error)
        except Exception as error:  # a statement must not fail other tables
            reason = f"cannot be read: {type(error).__name__}: {shortened(str(error))}"
        return (self.not_supported(reason),)

    def not_supported(self, reason: str) -> ddl.SchemaChange:
        table = self.table or (TableName("", self._message_table) if self._message_table else None)
        return with_database(ddl.NotSupported(reason, table, creates=self.creates), self.database)

    def _has_other_database(self, changes: Sequence[ddl.SchemaChange]) -> bool:
        """Whether the message's database is that of a qualified name. Otherwise it is the session's."""
        renamed = [new for change in changes for _, new in change.names().renamed]
        touched = [name for change in changes for name in change.names().touched]
        same = [name for name in touched if name.table.lower() == self._message_table.lower()]
        # a message about a rename has the new name
        named = next(iter([*renamed, *same]), self.table)
        return named is not None and named.database.lower() == self.database.lower() != ""

    def read(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        while cursor.accept(";"):
            pass
        changes = self._read_verb(cursor)
        if isinstance(changes[0], ddl.NoTableEffect):
            _skip_statement(cursor, changes[0].what)
        while cursor.accept(";"):
            pass
        if not cursor.at_end:
            raise cursor.error("unexpected words")
        return changes

    def _read_verb(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        readers = {
            "CREATE": self._read_create,
            "ALTER": self._read_alter,
            "DROP": self._read_drop,
            "TRUNCATE": self._read_truncate,
            "RENAME": self._read_rename,
            "RECOVER": self._read_recover,
            "FLASHBACK": self._read_flashback,
        }
        if cursor.accept("SET STATEMENT"):  # MariaDB: variables for one statement
            while not cursor.accept("FOR"):
                cursor.skip_item()
            return self._read_verb(cursor)
        verb = cursor.accept_any(*readers, *_OTHER_VERBS)
        if verb is None:
            raise cursor.error("unknown statement")
        return readers[verb](cursor) if verb in readers else (ddl.NoTableEffect(verb),)

    def _read_name(self, cursor: Cursor) -> TableName:
        name = cursor.read_table_name()
        self.table = self.table or name
        return name

    def _read_truncate(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        cursor.accept("TABLE")
        name = self._read_name(cursor)
        _accept_wait(cursor)
        return (ddl.TruncateTable(name),)

    # ---- CREATE

    def _read_create(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        replaces = cursor.accept("OR REPLACE")
        if cursor.at_any("TEMPORARY TABLE", "GLOBAL TEMPORARY TABLE"):
            return (ddl.NoTableEffect("CREATE TEMPORARY TABLE"),)
        if cursor.accept("TABLE"):
            if_not_exists = cursor.accept("IF NOT EXISTS")
            name = self._read_name(cursor)
            self.creates = True
            created = read_create_table(cursor, name, if_not_exists=if_not_exists)
            return (ddl.DropTable(name, if_exists=True), created) if replaces else (created,)
        if cursor.accept_any("DATABASE", "SCHEMA"):
            if not replaces:
                return (ddl.NoTableEffect("CREATE DATABASE"),)
            # MariaDB's OR REPLACE first drops the database with its tables
            database = cursor.read_name("a database name")
            cursor.skip_to()
            return (ddl.DropDatabase(database),)
        cursor.accept_any("ONLINE", "OFFLINE")
        if kind := cursor.accept_any(*_INDEXES):
            return (self._read_create_index(cursor, replaces, unique=kind == "UNIQUE INDEX"),)
        return (_read_other_object(cursor, "CREATE"),)

    def _read_create_index(self, cursor: Cursor, replaces: bool, *, unique: bool) -> ddl.SchemaChange:
        """CREATE INDEX as the equal ALTER TABLE … ADD INDEX."""
        cursor.accept("IF NOT EXISTS")
        index = cursor.read_name("an index name")
        cursor.accept_any(*INDEX_TYPES)
        cursor.expect("ON")
        name = self._read_name(cursor)
        columns, exact = read_key_parts(cursor)
        _accept_algorithm(cursor)
        clause: ddl.Clause = ddl.AddIndex(PlainIndex(index, columns))
        if unique:
            clause = ddl.AddUniqueKey(UniqueKey(index, columns, exact))
        return ddl.AlterTable(name, (drop_index_clause(index), clause) if replaces else (clause,))

    # ---- restoring dropped tables, in TiDB

    def _read_recover(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        cursor.expect("TABLE")
        if cursor.accept("BY JOB"):
            cursor.read_integer()
            if not self._message_table:
                raise cursor.error("BY JOB without the table in the message")
            return (ddl.RecoverTable(TableName(self.database, self._message_table), by_job=True),)
        name = self._read_name(cursor)
        if cursor.at_kind(Kind.NUMBER):
            cursor.skip()  # the number of jobs to search
        return (ddl.RecoverTable(name),)

    def _read_flashback(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        times = ("TO TIMESTAMP", "TO TSO")
        if cursor.accept("TABLE"):
            name = self._read_name(cursor)
            if cursor.at_any(*times):
                raise cursor.error("FLASHBACK TABLE to a point in time: no message and no rebuild brings its rows")
            new_name = replace(name, table=cursor.read_name("a table name")) if cursor.accept("TO") else None
            return (ddl.RecoverTable(name, new_name),)
        if cursor.accept_any("DATABASE", "SCHEMA"):
            database = cursor.read_name("a database name")
            if not cursor.at_any(*times):
                new_database = cursor.read_name("a database name") if cursor.accept("TO") else None
                return (ddl.RecoverDatabase(database, new_database),)
        cursor.skip_to()
        reason = "FLASHBACK CLUSTER or DATABASE to a point in time: no message and no rebuild brings its rows"
        return (ddl.NotSupported(reason, everywhere=True),)

    # ---- ALTER, DROP, RENAME

    def _read_alter(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        if cursor.at_any("DATABASE", "SCHEMA"):
            return (ddl.NoTableEffect("ALTER DATABASE"),)
        if cursor.at("IGNORE TABLE"):
            raise cursor.error("ALTER IGNORE may remove rows")
        if not cursor.accept_any("TABLE", "ONLINE TABLE", "OFFLINE TABLE"):
            return (_read_other_object(cursor, "ALTER"),)
        cursor.accept("IF EXISTS")
        name = self._read_name(cursor)
        _accept_wait(cursor)
        return (ddl.AlterTable(name, read_alter_clauses(cursor)),)

    def _read_drop(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        if cursor.at_any("TEMPORARY", "GLOBAL TEMPORARY"):
            return (ddl.NoTableEffect("DROP TEMPORARY TABLE"),)
        if cursor.accept_any("TABLE", "TABLES"):
            if_exists = cursor.accept("IF EXISTS")
            names = [self._read_name(cursor)]
            while cursor.accept(","):
                names.append(self._read_name(cursor))
            _accept_wait(cursor)
            cursor.accept_any("RESTRICT", "CASCADE")
            return tuple(ddl.DropTable(name, if_exists) for name in names)
        if cursor.accept_any("DATABASE", "SCHEMA"):
            cursor.accept("IF EXISTS")
            return (ddl.DropDatabase(cursor.read_name("a database name")),)
        if cursor.accept_any("INDEX", "ONLINE INDEX", "OFFLINE INDEX"):
            cursor.accept("IF EXISTS")
            index = cursor.read_name("an index name")
            cursor.expect("ON")
            name = self._read_name(cursor)
            _accept_algorithm(cursor)
            return (ddl.AlterTable(name, (drop_index_clause(index),)),)
        return (_read_other_object(cursor, "DROP"),)

    def _read_rename(self, cursor: Cursor) -> tuple[ddl.SchemaChange, ...]:
        if cursor.accept("USER"):
            return (ddl.NoTableEffect("RENAME USER"),)
        cursor.expect("TABLE", "TABLES")
        cursor.accept("IF EXISTS")
        pairs: list[ddl.SchemaChange] = []
        while not pairs or cursor.accept(","):
            name = self._read_name(cursor)
            _accept_wait(cursor)
            cursor.expect("TO")
            pairs.append(ddl.RenameTable(name, cursor.read_table_name()))
        return tuple(pairs)


def _read_other_object(cursor: Cursor, verb: str) -> ddl.NoTableEffect:
    """Reads an object of CREATE, ALTER or DROP that is neither a table nor a database nor an index."""
    start = cursor.index
    # Between modifiers there are values such as DEFINER=`root`@`localhost`. The object is before the first bracket.
    allowed = cursor.at_any(*_MODIFIERS, *_OTHER_OBJECTS)
    while allowed and not cursor.at_end and not cursor.at_any("(", ";", "TABLE", "DATABASE", "SCHEMA", "INDEX"):
        if word := cursor.accept_any(*_OTHER_OBJECTS):
            return ddl.NoTableEffect(f"{verb} {word}")
        cursor.skip()
    cursor.index = start
    raise cursor.error(f"{verb} of an unknown object")


def _skip_statement(cursor: Cursor, what: str) -> None:
    """Moves to the end of a statement without table effect: to the next semicolon, for routines to the end of the text."""
    has_body = what.split()[-1] in _ROUTINES
    while not cursor.at_end and (has_body or not cursor.at(";")):
        cursor.skip()


def _accept_wait(cursor: Cursor) -> None:
    """Moves past MariaDB's WAIT n or NOWAIT."""
    if cursor.accept_any("WAIT", "NOWAIT") == "WAIT":
        cursor.read_integer()


def _accept_algorithm(cursor: Cursor) -> None:
    """Moves past ALGORITHM and LOCK after CREATE INDEX or DROP INDEX."""
    while cursor.accept_option("ALGORITHM", "LOCK"):
        pass
