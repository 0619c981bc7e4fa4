"""Tables of an export: their CREATE TABLE, parsed by `mysql.ddl`, and the files with their rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cdc_pipeline.errors import SourceError
from cdc_pipeline.mysql.ddl.parser import parse_ddl
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.model.schema_changes import CreateTable, NotSupported
from cdc_pipeline.mysql.model.table import TableName, TableSchema
from cdc_pipeline.snapshots.cell_texts import Cells, may_be_narrow
from cdc_pipeline.snapshots.files import DataFile
from cdc_pipeline.snapshots.insert_statements import unquote

_CREATED = re.compile(r"CREATE TABLE (?:IF NOT EXISTS )?(`(?:[^`]|``)*`|[^\s(]+)")
_SEQUENCE = re.compile(r"^\)[^'\"]*\bSEQUENCE=1\b", re.MULTILINE)


@dataclass(frozen=True)
class ExportedTable:
    name: TableName
    create: str
    """Its CREATE TABLE, without a semicolon."""
    place: str
    """The file of the definition, for messages."""
    charset: str
    """The character set of its rows, or `OF_COLUMN`."""
    files: tuple[DataFile, ...] = ()
    """With rows, in order. Empty for an empty table."""
    quotings: tuple[Quoting, ...] = (Quoting.MYSQL,)
    """Those that the definition may have. If they differ, it is rejected."""
    lack: str = ""
    """Why the export does not have all its rows."""

    @cached_property
    def schema(self) -> TableSchema:
        """Raises SourceError for a definition that cannot be parsed."""
        change = parse_ddl(self.create, self.name.database, quotings=self.quotings)[0]
        if isinstance(change, CreateTable):
            return change.schema
        reason = change.reason if isinstance(change, NotSupported) else type(change).__name__
        raise SourceError(f"{self.place}: the definition of {self.name} cannot be read: {reason}")

    @property
    def damage(self) -> str:
        """Why the export may have `?` for characters of some columns: its SET NAMES is a smaller character set (MySQL's
        mysqldump up to 5.7 uses utf8)."""
        columns = (
            one.name for one in self.schema.columns if may_be_narrow(one.type, self.charset, self.schema.charset)
        )
        names = ", ".join(columns)
        return names and (
            f"{self.place}: SET NAMES {self.charset} has no place for all characters of the columns {names}. Write it with "
            "--default-character-set=utf8mb4"
        )

    def cells(self, columns: Sequence[str]) -> list[Cells]:
        """The cells of these columns of the data; of all columns if there are none.

        Raises SourceError for an unknown column, and if a column that is not generated is missing.
        """
        names = tuple(columns) or self.schema.column_names
        found = [self.schema.find(name) for name in names]
        missing = [column.name for column in self.schema.columns if column.generated is None and column not in found]
        if None in found or missing or len(set(names)) < len(names):
            raise SourceError(
                f"{self.place}: the rows of {self.name} have the columns {list(names)}, but the definition has "
                f"{list(self.schema.column_names)}. Repeat the export"
            )
        return [Cells(column, self.charset, self.schema.charset) for column in found if column is not None]


def is_sequence(create: str) -> bool:
    """Whether the CREATE TABLE is that of a sequence of MariaDB."""
    return _SEQUENCE.search(create) is not None


def created_table(create: str) -> str | None:
    """The name of the table that the statement creates; None for another statement."""
    found = _CREATED.match(create)
    return None if found is None else unquote(found[1].encode())
