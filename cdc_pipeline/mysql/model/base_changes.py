"""Base classes of statements and of clauses of ALTER TABLE: what each of them reports about itself."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias

from cdc_pipeline.gaps import Gap
from cdc_pipeline.mysql.model.table import Default, MySqlType, TableName, TableSchema

UnsureConversion: TypeAlias = Callable[[MySqlType, MySqlType], str | None]
"""Why values of the first type may differ after the change to the second type; None if they are exact."""


class TableNames(NamedTuple):
    """The table names of a statement. A statement about a whole database names none."""

    touched: tuple[TableName, ...] = ()
    """The tables whose rows lie before or after the statement, in its order."""
    created: tuple[TableName, ...] = ()
    emptied: tuple[TableName, ...] = ()
    dropped: tuple[TableName, ...] = ()
    recovered: tuple[TableName, ...] = ()
    renamed: tuple[tuple[TableName, TableName], ...] = ()
    """Pairs of old and new name."""
    read: tuple[TableName, ...] = ()
    """Tables that the statement reads, or changes without separating their rows."""

    @property
    def added(self) -> tuple[TableName, ...]:
        """The names that a created or renamed table has after the statement."""
        return (*self.created, *(new for _, new in self.renamed))

    @property
    def removed(self) -> tuple[TableName, ...]:
        """The names that no table has after the statement."""
        return (*self.dropped, *(old for old, _ in self.renamed))


_BEFORE = {"new_name": " to ", "new_database": " to ", "source": " like ", "table": " with ", "clauses": ": "}
"""What precedes the words of a field, if not a space."""


def sql_words(name: str) -> str:
    """SQL's words for the name of a class: `DROP TABLE`."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).upper()


class _Described:
    __slots__ = ()

    def description(self, to_words: Callable[[str], str] = str) -> str:
        """One line for `ddl_history`, outcomes and gaps: the class and its fields, without default values of columns.

        `to_words`: name of a class → what the line calls it.
        """
        text = to_words(type(self).__name__)
        for field in fields(self):  # type: ignore[arg-type]  # each subclass is a dataclass
            words = _words(field.name, getattr(self, field.name), to_words)
            text += f"{_BEFORE.get(field.name, ' ')}{words}" if words else ""
        return text


def _words(name: str, value: Any, to_words: Callable[[str], str]) -> str:
    if isinstance(value, bool):
        return name.replace("_", " ") if value else ""
    if isinstance(value, tuple):
        return ", ".join(filter(None, (_words(name, item, to_words) for item in value)))
    if isinstance(value, _Described):
        return value.description(to_words)
    return "" if value is None or isinstance(value, (Default, Gap)) else str(value).strip()


class BaseChange(_Described, ABC):
    """What each statement reports about itself."""

    __slots__ = ()

    @abstractmethod
    def names(self) -> TableNames:
        """The tables that the statement is about, by what it does to them."""

    def tables_losing_data(
        self, schema_of: Callable[[TableName], TableSchema], unsure: UnsureConversion
    ) -> tuple[TableName, ...]:
        """The tables that lose rows or values that upstream cannot send again.

        DROP DATABASE returns none: the planner drops its tables one by one.
        """
        return (*self.names().emptied, *self.names().dropped)


class BaseClause(_Described, ABC):
    """What each clause of ALTER TABLE reports about itself."""

    __slots__ = ()

    @abstractmethod
    def loses_data(self, schema: TableSchema, unsure: UnsureConversion) -> bool:
        """Whether a table of this schema loses rows or values."""


class KeepingClause(BaseClause):
    """A clause that keeps all rows and values."""

    __slots__ = ()

    def loses_data(self, schema: TableSchema, unsure: UnsureConversion) -> bool:
        return False


class RemovingClause(BaseClause):
    """A clause that removes rows or values."""

    __slots__ = ()

    def loses_data(self, schema: TableSchema, unsure: UnsureConversion) -> bool:
        return True
