"""Applies ALTER TABLE to a table definition.

All clauses of a statement apply at once, as in MySQL. A clause that changes or drops something uses the names before the
statement. A clause that adds something, and AFTER, use the names after it. So `RENAME COLUMN a TO b, RENAME COLUMN b TO a`
swaps two names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from cdc_pipeline.mysql.ddl.column_types import to_binary_type
from cdc_pipeline.mysql.ddl.key_evolution import altered_keys, altered_primary_key
from cdc_pipeline.mysql.ddl.partition_evolution import altered_partitioning
from cdc_pipeline.mysql.model import schema_changes as ddl
from cdc_pipeline.mysql.model.engines import UNLOGGED
from cdc_pipeline.mysql.model.limits import MAX_COLUMNS, limit_message
from cdc_pipeline.mysql.model.schema_changes import SchemaConflictError
from cdc_pipeline.mysql.model.table import Column, ColumnOrigin, ForeignKey, MySqlType, TableSchema
from cdc_pipeline.mysql.types.charsets import UNKNOWN, change_charset, charset_of_column, pin_charset


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
    primary_key = altered_primary_key(schema, columns, clauses, new_names)
    unique_keys, indexes = altered_keys(schema, columns, clauses, new_names)
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
    columns = list(kept)
    names = [_folded(column.name) for column in columns]
    for clause in clauses:
        if isinstance(clause, ddl.AddColumn):
            column = _in_table(schema, clause.column)
            if _folded(column.name) in names:
                if clause.if_not_exists:
                    continue
                raise SchemaConflictError(clause, f"column {column.name!r} exists")
        elif isinstance(clause, ddl.ChangeColumn) and clause.position is not None and _folded(clause.name) in new_names:
            index = names.index(_folded(new_names[_folded(clause.name)]))
            names.pop(index)
            column = columns.pop(index)
        else:
            continue
        index = _index_at(clause.position, names, clause)
        names.insert(index, _folded(column.name))
        columns.insert(index, column)
        if len(columns) > MAX_COLUMNS:
            raise SchemaConflictError(clause, limit_message("columns", len(columns), MAX_COLUMNS))
    return columns


def _index_at(position: ddl.ColumnPosition | None, names: list[str], clause: ddl.Clause) -> int:
    if position is None:
        return len(names)
    if position.after is None:
        return 0
    if _folded(position.after) not in names:
        raise SchemaConflictError(clause, f"no column {position.after!r} for AFTER")
    return names.index(_folded(position.after)) + 1


def column_origins(
    before: TableSchema, after: TableSchema, clauses: tuple[ddl.Clause, ...]
) -> tuple[ColumnOrigin, ...]:
    """The origin of each column of `after`, which is `before` with the clauses applied.

    A column that is dropped and added again under the same name is new: its old values are lost.
    """
    _, new_names = kept_columns(before, clauses)
    old_names = {_folded(new): old for old, new in new_names.items()}
    origins = ((column, old_names.get(_folded(column.name))) for column in after.columns)
    return tuple(ColumnOrigin(column, None if old is None else before.find(old)) for column, old in origins)
