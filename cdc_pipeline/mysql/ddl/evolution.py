"""Applies ALTER TABLE to a table definition.

All clauses of a statement apply at once, as in MySQL. A clause that changes or drops something uses the names before the
statement. A clause that adds something, and AFTER, use the names after it. So `RENAME COLUMN a TO b, RENAME COLUMN b TO a`
swaps two names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cdc_pipeline.mysql.ddl.column_types import to_binary_type
from cdc_pipeline.mysql.ddl.key_evolution import KeyConflictError, altered_keys, altered_primary_key
from cdc_pipeline.mysql.ddl.partition_evolution import altered_partitioning
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.engines import UNLOGGED
from cdc_pipeline.mysql.model.limits import MAX_COLUMNS, limit_message, shortened
from cdc_pipeline.mysql.model.table import Column, ForeignKey, MySqlType, TableSchema
from cdc_pipeline.mysql.types.charsets import UNKNOWN, change_charset, charset_of_column, pin_charset


class SchemaConflictError(ValueError):
    """A clause does not fit the schema, so the schema is not the one that upstream had."""

    def __init__(self, clause: ddl.Clause, reason: str) -> None:
        super().__init__(f"{reason}: {shortened(clause.description())}")
        self.clause = clause
        self.reason = reason


def altered(schema: TableSchema, clauses: tuple[ddl.Clause, ...]) -> TableSchema:
    """The schema after one ALTER TABLE with these clauses.

    RenameTo and NoRowEffect change nothing. A clause about partitions that does not fit makes the partitioning unknown.
    Raises SchemaConflictError for another clause that does not fit, such as DROP of a missing column, and for each
    NotSupportedClause.
    """
    for clause in clauses:
        if isinstance(clause, ddl.NotSupportedClause):
            raise SchemaConflictError(clause, "not supported")
    schema = _with_charset(schema, clauses)
    columns, new_names = kept_columns(schema, clauses)
    columns = _with_positions(columns, schema, clauses, new_names)
    if not columns and clauses:
        raise SchemaConflictError(clauses[-1], "no columns remain")
    try:
        primary_key = altered_primary_key(schema, columns, clauses, new_names)
        unique_keys, indexes = altered_keys(schema, columns, clauses, new_names)
    except KeyConflictError as error:
        raise SchemaConflictError(error.clause, error.reason) from None
    # MySQL makes the columns of a primary key NOT NULL, even if their definition says NULL
    in_key = {_folded(name) for name in primary_key}
    columns = [replace(item, nullable=False) if _folded(item.name) in in_key else item for item in columns]
    after = tuple(columns)
    engine = next((one.engine.lower() for one in clauses if isinstance(one, ddl.SetEngine)), schema.engine)
    partitioning = altered_partitioning(schema.partitioning, clauses, new_names)
    return replace(
        schema,
        columns=after,
        primary_key=primary_key,
        unique_keys=unique_keys,
        partitioning=partitioning,
        indexes=indexes,
        engine=engine if engine in UNLOGGED else "",
        foreign_keys=tuple(_foreign_keys(schema, clauses, new_names)),
    )


def _foreign_keys(
    schema: TableSchema, clauses: tuple[ddl.Clause, ...], new_names: Mapping[str, str]
) -> Iterator[ForeignKey]:
    # DROP CONSTRAINT is a DropIndex
    dropped = {_folded(one.name) for one in clauses if isinstance(one, (ddl.DropForeignKey, ddl.DropIndex))}
    for key in schema.foreign_keys:
        if _folded(key.name) not in dropped:
            yield replace(key, columns=tuple(new_names.get(_folded(name), name) for name in key.columns))
    yield from (one.key for one in clauses if isinstance(one, ddl.AddForeignKey))


def _with_charset(schema: TableSchema, clauses: tuple[ddl.Clause, ...]) -> TableSchema:
    """The schema with the charset clauses applied, before the other clauses.

    CONVERT TO changes the existing columns. Otherwise they keep their charset, as their own.
    """
    result = schema
    for clause in clauses:
        if not isinstance(clause, (ddl.DefaultCharset, ddl.ConvertCharset)):
            continue
        convert = isinstance(clause, ddl.ConvertCharset)
        kinds = [
            change_charset(column.type, clause.charset, clause.collation)
            if convert
            else pin_charset(column.type, schema)
            for column in result.columns
        ]
        columns = tuple(replace(item, type=kind) for item, kind in zip(result.columns, kinds, strict=True))
        charset = None if clause.charset == UNKNOWN else clause.charset
        result = replace(result, columns=columns, charset=charset, collation=clause.collation)
    return result


def row_shape(schema: TableSchema) -> tuple[object, ...]:
    """The parts of a schema that rows depend on: names, types and formulas of the columns, and the row key."""
    columns = tuple(
        (column.name, _kind(column.type, schema.charset), column.generated and column.expression)
        for column in schema.columns
    )
    return (columns, schema.row_key)


def _kind(kind: MySqlType, default_charset: str | None) -> MySqlType:
    return replace(kind, charset=charset_of_column(kind, default_charset), collation=None)


def _folded(name: str) -> str:
    return name.casefold()


def kept_columns(schema: TableSchema, clauses: tuple[ddl.Clause, ...]) -> tuple[list[Column], dict[str, str]]:
    """The kept columns with their changes, in place, and the new name of each by its old name in casefold."""
    present = {_folded(column.name) for column in schema.columns}
    actions: dict[str, ddl.DropColumn | ddl.ChangeColumn | ddl.RenameColumn] = {}
    defaults: dict[str, ddl.SetDefault] = {}
    for clause in clauses:
        if not isinstance(clause, ddl.DropColumn | ddl.ChangeColumn | ddl.RenameColumn | ddl.SetDefault):
            continue
        if _folded(clause.name) not in present:
            if clause.if_exists:
                continue
            raise SchemaConflictError(clause, f"no column {clause.name!r}")
        if isinstance(clause, ddl.SetDefault):
            defaults[_folded(clause.name)] = clause
        elif _folded(clause.name) in actions:
            raise SchemaConflictError(clause, f"column {clause.name!r} is changed twice")
        else:
            actions[_folded(clause.name)] = clause
    columns: list[Column] = []
    new_names: dict[str, str] = {}
    for column in schema.columns:
        old = _folded(column.name)
        action = actions.get(old)
        if isinstance(action, ddl.DropColumn):
            continue
        if isinstance(action, ddl.ChangeColumn):
            column = _in_table(schema, action.column)
        elif isinstance(action, ddl.RenameColumn):
            column = replace(column, name=action.new_name)
        if old in defaults:
            column = replace(column, default=defaults[old].default)
        columns.append(column)
        new_names[old] = column.name
    _check_distinct(columns, clauses)
    return columns, new_names


def _in_table(schema: TableSchema, column: Column) -> Column:
    """The column as MySQL adds it to the table: text in a table of character set `binary` becomes binary."""
    return replace(column, type=to_binary_type(column.type, schema.charset))


def _check_distinct(columns: list[Column], clauses: tuple[ddl.Clause, ...]) -> None:
    seen: set[str] = set()
    for column in columns:
        name = _folded(column.name)
        if name in seen:
            culprits = [item for item in clauses if isinstance(item, ddl.ChangeColumn | ddl.RenameColumn)]
            raise SchemaConflictError(culprits[-1], f"duplicate column {column.name!r}")
        seen.add(name)


def _with_positions(
    kept: list[Column], schema: TableSchema, clauses: tuple[ddl.Clause, ...], new_names: dict[str, str]
) -> list[Column]:
    """The columns after all additions and moves, in the order of the clauses as in MySQL."""
    columns = _OrderedColumns(kept)
    for clause in clauses:
        if isinstance(clause, ddl.AddColumn):
            if columns.has(clause.column.name):
                if clause.if_not_exists:
                    continue
                raise SchemaConflictError(clause, f"column {clause.column.name!r} exists")
            columns.insert(_in_table(schema, clause.column), clause.position, clause)
        elif isinstance(clause, ddl.ChangeColumn) and clause.position is not None and _folded(clause.name) in new_names:
            columns.move(new_names[_folded(clause.name)], clause.position, clause)
    return columns.columns


class _OrderedColumns:
    """Columns in order with an index of names, as a statement may have thousands of clauses."""

    def __init__(self, columns: list[Column]) -> None:
        self.columns = list(columns)
        self._names = [_folded(column.name) for column in columns]
        self._present = set(self._names)

    def has(self, name: str) -> bool:
        return _folded(name) in self._present

    def move(self, name: str, position: ddl.ColumnPosition, clause: ddl.Clause) -> None:
        if self.has(name):
            index = self._names.index(_folded(name))
            del self._names[index]
            self._present.discard(_folded(name))
            self.insert(self.columns.pop(index), position, clause)

    def insert(self, column: Column, position: ddl.ColumnPosition | None, clause: ddl.Clause) -> None:
        index = len(self.columns)
        if position is not None and position.after is None:
            index = 0
        elif position is not None and position.after is not None:
            if not self.has(position.after):
                raise SchemaConflictError(clause, f"no column {position.after!r} for AFTER")
            index = self._names.index(_folded(position.after)) + 1
        self.columns.insert(index, column)
        self._names.insert(index, _folded(column.name))
        self._present.add(_folded(column.name))
        if len(self.columns) > MAX_COLUMNS:
            raise SchemaConflictError(clause, limit_message("columns", len(self.columns), MAX_COLUMNS))


def column_origins(schema: TableSchema, clauses: tuple[ddl.Clause, ...]) -> tuple[str | None, ...]:
    """The old name of each column of `altered(schema, clauses)`; None for an added one.

    A column that is dropped and added again under the same name is new: its old values are lost.
    """
    _, new_names = kept_columns(schema, clauses)
    old_names = {new.casefold(): old for old, new in new_names.items()}
    names = {column.name.casefold(): column.name for column in schema.columns}
    old = (old_names.get(column.name.casefold()) for column in altered(schema, clauses).columns)
    return tuple(None if name is None else names[name] for name in old)


def moves_values(schema: TableSchema, clauses: tuple[ddl.Clause, ...]) -> bool:
    """Whether a column of `altered(schema, clauses)` has other values than the old column of its name.

    The columns may look the same before and after: `DROP c, ADD c INT`, or two of one type that swap names and places.
    """
    after = altered(schema, clauses).columns
    pairs = zip(after, column_origins(schema, clauses), strict=True)
    return any(old is None or old.casefold() != column.name.casefold() for column, old in pairs)
