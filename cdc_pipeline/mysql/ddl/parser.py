"""Reads DDL statements of MySQL, MariaDB and TiDB as values (`changes`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_pipeline.mysql.ddl.alter_table import dropped_index, read_alter_clauses
from cdc_pipeline.mysql.ddl.create_table import read_create_table
from cdc_pipeline.mysql.ddl.keys import accept_index_type, read_key_parts, read_table_name
from cdc_pipeline.mysql.ddl.tokens import Cursor, Kind
from cdc_pipeline.mysql.model.limits import short
from cdc_pipeline.mysql.model.schema_changes import (
    AddIndex,
    AddUniqueKey,
    AlterTable,
    DropDatabase,
    DropTable,
    NoTableEffect,
    NotSupported,
    RecoverDatabase,
    RecoverTable,
    RenameTable,
    TruncateTable,
)
from cdc_pipeline.mysql.model.table import PlainIndex, TableName, UniqueKey

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.schema_changes import Clause, SchemaChange

# What CREATE, ALTER and DROP may name beside tables, databases and indexes: none of it changes a table's rows. Words
# before it are skipped (CREATE DEFINER=… SQL SECURITY … VIEW).
_OTHER_OBJECTS = (
    *("VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SEQUENCE", "SERVER", "BINDING"),
    *("PACKAGE", "LIBRARY", "STATISTICS", "STATS", "TABLESPACE", "LOGFILE", "INSTANCE", "PREPARE"),
)
# Objects whose words would be misread if only the first of them counted.
_OTHER_OBJECTS_OF_WORDS = (
    ("RESOURCE", "GROUP"),
    ("PLACEMENT", "POLICY"),
    ("MASKING", "POLICY"),
    ("SPATIAL", "REFERENCE"),
    ("RANGE",),
)
# May stand between the verb and the object.
_MODIFIERS = ("OR", "REPLACE", "AGGREGATE", "GLOBAL", "SESSION", "UNDO", "ALGORITHM", "DEFINER", "SQL", "SECURITY")
# Statements of another verb that change no table's rows.
_OTHER_VERBS = (
    *("GRANT", "REVOKE", "SET", "ANALYZE", "CHECK", "CHECKSUM", "OPTIMIZE", "REPAIR", "FLUSH", "LOCK", "UNLOCK"),
    *("USE", "SHOW", "EXPLAIN", "DESCRIBE", "DESC", "HELP", "KILL", "RESET", "INSTALL", "UNINSTALL", "ADMIN", "SPLIT"),
    *("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", "PURGE", "CHANGE", "STOP", "CACHE"),
)
# Bodies of these may have semicolons.
_ROUTINES = frozenset({"TRIGGER", "PROCEDURE", "FUNCTION", "EVENT", "PACKAGE", "LIBRARY"})


def parse_ddl(sql: str, database: str, table: str = "") -> tuple[SchemaChange, ...]:
    """What the statement changes, in the order in which it changes it.

    Names without a database are in `database`, which may stand in backquotes as Canal leaves them; `table` is the
    message's, for statements that name their table by a number, or not before reading stops. Never raises: what cannot
    be read whole is one NotSupported, whose reason names the words at which reading stopped.
    """
    statement = _Statement(_unquoted(database), table)
    try:
        return statement.read(Cursor(sql))
    except ValueError as error:  # DdlSyntaxError, SchemaConflictError
        reason = str(error)
    except Exception as error:  # no statement stops anything but its own tables
        reason = f"cannot be read: {type(error).__name__}: {short(str(error))}"
    return (NotSupported(reason, statement.table or _of_message(database, table), creates=statement.creates),)


def _of_message(database: str, table: str) -> TableName | None:
    """The table that the message names, where the statement does not get as far."""
    return TableName(_unquoted(database), table) if table else None


def _unquoted(database: str) -> str:
    if len(database) > 1 and database[0] == database[-1] == "`":
        return database[1:-1].replace("``", "`")
    return database


class _Statement:
    """Reads one statement. `table` is the table it is about, as soon as that is known; `creates` whether it makes it."""

    def __init__(self, database: str, message_table: str) -> None:
        self.database = database
        self.table: TableName | None = None
        self.creates = False
        self._message_table = message_table

    def read(self, cursor: Cursor) -> tuple[SchemaChange, ...]:
        while cursor.accept(";"):
            pass
        start = cursor.index
        changes = self._read_verb(cursor)
        if isinstance(changes[0], NoTableEffect):
            cursor.index = start
            _skip_statement(cursor, changes[0].what)
        while cursor.accept(";"):
            pass
        if not cursor.done:
            raise cursor.error("cannot read on")
        return changes

    def _read_verb(self, cursor: Cursor) -> tuple[SchemaChange, ...]:
        if cursor.accept("CREATE"):
            return self._create(cursor)
        if cursor.accept("ALTER"):
            return self._alter(cursor)
        if cursor.accept("DROP"):
            return self._drop(cursor)
        if cursor.accept("TRUNCATE"):
            cursor.accept("TABLE")
            name = self._name(cursor)
            _accept_wait(cursor)
            return (TruncateTable(name),)
        if cursor.accept("RENAME"):
            return self._rename(cursor)
        if cursor.accept("RECOVER"):
            return (self._recover(cursor),)
        if cursor.accept("FLASHBACK"):
            return (self._flashback(cursor),)
        verb = cursor.accept_any(*_OTHER_VERBS)
        if verb is None:
            raise cursor.error("no statement that is known")
        return (NoTableEffect(verb),)

    def _name(self, cursor: Cursor) -> TableName:
        name = read_table_name(cursor, self.database)
        if self.table is None:
            self.table = name
        return name

    # ---- CREATE

    def _create(self, cursor: Cursor) -> tuple[SchemaChange, ...]:
        start = cursor.index
        replacing = cursor.accept("OR", "REPLACE")
        if cursor.at("TEMPORARY", "TABLE") or cursor.at("GLOBAL", "TEMPORARY", "TABLE"):
            return (NoTableEffect("CREATE TEMPORARY TABLE"),)
        if cursor.accept("TABLE"):
            if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
            name = self._name(cursor)
            self.creates = True
            created = read_create_table(cursor, name, self.database, if_not_exists=if_not_exists)
            return (DropTable(name, if_exists=True), created) if replacing else (created,)
        if cursor.accept_any("DATABASE", "SCHEMA"):
            # MariaDB's OR REPLACE drops the database with its tables first
            return (DropDatabase(self._rest_of_database(cursor)),) if replacing else (NoTableEffect("CREATE DATABASE"),)
        cursor.accept_any("ONLINE", "OFFLINE")
        if not cursor.at("SPATIAL", "REFERENCE") and (
            cursor.at_any("UNIQUE", "FULLTEXT", "SPATIAL", "INDEX")
            or cursor.at("VECTOR", "INDEX")
            or cursor.at("COLUMNAR", "INDEX")
        ):
            return (self._create_index(cursor, replacing),)
        cursor.index = start
        return (_other_object(cursor, "CREATE"),)

    def _rest_of_database(self, cursor: Cursor) -> str:
        name = cursor.identifier("a database name")
        _skip_statement(cursor, "DATABASE")
        return name

    def _create_index(self, cursor: Cursor, replacing: bool) -> SchemaChange:
        """CREATE INDEX name ON table (columns) is ALTER TABLE ADD INDEX with the words in another order."""
        unique = cursor.accept("UNIQUE")
        cursor.accept_any("FULLTEXT", "SPATIAL", "VECTOR", "COLUMNAR")
        cursor.expect("INDEX")
        cursor.accept("IF", "NOT", "EXISTS")
        index = cursor.identifier("an index name")
        accept_index_type(cursor)
        cursor.expect("ON")
        name = self._name(cursor)
        columns, exact = read_key_parts(cursor)
        _read_algorithm(cursor)
        clause: Clause = AddIndex(PlainIndex(index, columns))
        if unique:
            clause = AddUniqueKey(UniqueKey(index, columns, exact))
        return AlterTable(name, (dropped_index(index), clause) if replacing else (clause,))

    # ---- bringing back what was dropped, in TiDB

    def _recover(self, cursor: Cursor) -> SchemaChange:
        cursor.expect("TABLE")
        if cursor.accept("BY", "JOB"):
            cursor.integer()
            if not self._message_table:
                raise cursor.error("the table of a job is not known")
            return RecoverTable(TableName(self.database, self._message_table))
        name = self._name(cursor)
        if cursor.at_kind(Kind.NUMBER):
            cursor.skip()  # how many jobs to look back
        return RecoverTable(name)

    def _flashback(self, cursor: Cursor) -> SchemaChange:
        if cursor.accept("TABLE"):
            name = self._name(cursor)
            if cursor.at("TO", "TIMESTAMP") or cursor.at("TO", "TSO"):
                raise cursor.error("the rows that this brings back are in no message")
            return RecoverTable(name, read_table_name(cursor, name.database) if cursor.accept("TO") else None)
        if cursor.accept_any("DATABASE", "SCHEMA"):
            database = cursor.identifier("a database name")
            if not (cursor.at("TO", "TIMESTAMP") or cursor.at("TO", "TSO")):
                return RecoverDatabase(database, cursor.identifier("a database name") if cursor.accept("TO") else None)
        while not cursor.done and not cursor.at(";"):
            cursor.skip()
        return NotSupported("FLASHBACK of a whole cluster or database to a moment sends no rows", everywhere=True)

    # ---- ALTER, DROP, RENAME

    def _alter(self, cursor: Cursor) -> tuple[SchemaChange, ...]:
        if cursor.at_any("DATABASE", "SCHEMA"):
            return (NoTableEffect("ALTER DATABASE"),)
        if cursor.at("IGNORE", "TABLE"):
            raise cursor.error("ALTER IGNORE may remove rows")
        start = cursor.index
        cursor.accept_any("ONLINE", "OFFLINE")
        if not cursor.accept("TABLE"):
            cursor.index = start
            return (_other_object(cursor, "ALTER"),)
        cursor.accept("IF", "EXISTS")
        name = self._name(cursor)
        _accept_wait(cursor)
        return (AlterTable(name, read_alter_clauses(cursor, self.database)),)

    def _drop(self, cursor: Cursor) -> tuple[SchemaChange, ...]:
        if cursor.at("TEMPORARY") or cursor.at("GLOBAL", "TEMPORARY"):
            return (NoTableEffect("DROP TEMPORARY TABLE"),)
        if cursor.accept_any("TABLE", "TABLES"):
            if_exists = cursor.accept("IF", "EXISTS")
            names = [self._name(cursor)]
            while cursor.accept(","):
                names.append(self._name(cursor))
            _accept_wait(cursor)
            cursor.accept_any("RESTRICT", "CASCADE")
            return tuple(DropTable(name, if_exists) for name in names)
        if cursor.accept_any("DATABASE", "SCHEMA"):
            cursor.accept("IF", "EXISTS")
            return (DropDatabase(cursor.identifier("a database name")),)
        start = cursor.index
        cursor.accept_any("ONLINE", "OFFLINE")
        if cursor.accept("INDEX"):
            cursor.accept("IF", "EXISTS")
            index = cursor.identifier("an index name")
            cursor.expect("ON")
            name = self._name(cursor)
            _read_algorithm(cursor)
            return (AlterTable(name, (dropped_index(index),)),)
        cursor.index = start
        return (_other_object(cursor, "DROP"),)

    def _rename(self, cursor: Cursor) -> tuple[SchemaChange, ...]:
        if cursor.accept("USER"):
            return (NoTableEffect("RENAME USER"),)
        if cursor.accept_any("TABLE", "TABLES") is None:
            raise cursor.error("TABLE expected")
        cursor.accept("IF", "EXISTS")
        pairs: list[SchemaChange] = []
        while True:
            name = self._name(cursor)
            _accept_wait(cursor)
            cursor.expect("TO")
            pairs.append(RenameTable(name, read_table_name(cursor, self.database)))
            if not cursor.accept(","):
                return tuple(pairs)


def _other_object(cursor: Cursor, verb: str) -> NoTableEffect:
    """What CREATE, ALTER or DROP is about when it is neither table nor database nor index."""
    for words in _OTHER_OBJECTS_OF_WORDS:
        if cursor.at(*words):
            return NoTableEffect(f"{verb} {' '.join(words)}")
    start = cursor.index
    # DEFINER=`root`@`localhost` and the like stand between modifiers; the object comes before the first bracket.
    allowed = cursor.at_any(*_MODIFIERS, *_OTHER_OBJECTS)
    while allowed and not cursor.done and not cursor.at_any("(", ";", "TABLE", "DATABASE", "SCHEMA", "INDEX"):
        word = cursor.accept_any(*_OTHER_OBJECTS)
        if word is not None:
            return NoTableEffect(f"{verb} {word}")
        cursor.skip()
    cursor.index = start
    raise cursor.error(f"{verb} of what is not known")


def _skip_statement(cursor: Cursor, what: str) -> None:
    """Moves to the end of a statement without table effect: up to a semicolon, past it too for routines' bodies."""
    has_body = what.split()[-1] in _ROUTINES
    while not cursor.done and (has_body or not cursor.at(";")):
        cursor.skip()


def _accept_wait(cursor: Cursor) -> None:
    """MariaDB's WAIT n and NOWAIT."""
    if not cursor.accept("NOWAIT") and cursor.accept("WAIT"):
        cursor.integer()


def _read_algorithm(cursor: Cursor) -> None:
    """ALGORITHM and LOCK after CREATE INDEX and DROP INDEX."""
    while cursor.accept_any("ALGORITHM", "LOCK"):
        cursor.accept("=")
        cursor.take(Kind.WORD, what="a word")
