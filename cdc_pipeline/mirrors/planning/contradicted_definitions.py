"""Messages that contradict the definition of their table, because a statement did not arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cdc_pipeline.dialects.traits import Trait, dialect_has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.row_groups import RowGroup
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.ddl.column_types import KNOWN_TYPES, type_or_text
from cdc_pipeline.mysql.model.table import MySqlType, TableSchema
from cdc_pipeline.mysql.types.spark_types import spark_type

_OTHER_KEY = (
    "messages name {}, unlike the definition: a statement that changes the primary key did not arrive, and rows may be "
    "missing"
)
_OTHER_TYPE = (
    "messages name other labels or another kind of type than the definition: a statement that changes them did not arrive, "
    "and rows may have wrong values"
)
_NUMBERS = frozenset(("byte", "short", "integer", "long", "float", "double", "decimal"))
"""Spark's types of numbers."""
_UNSURE = frozenset("\\'\"?\ufffd")
"""Characters of labels that encoders print in several ways, or in place of others."""


def definition_gaps(state: MirrorState, groups: Sequence[RowGroup], *, newest: bool) -> Iterator[Gap]:
    """The gaps of a table whose messages name another primary key or other types than its definition.

    Keys are those of TiCDC: Canal's may be stale (canal-facts 15, 55). Types are those of Canal, for which they are read
    anyway. newest: no statement of the cut follows the rows. Canal may have the server's definition before it comes to a
    statement, so only its newest rows count.
    """
    if state.inferred or state.source_tables is not None:
        return
    from_tidb = [group for group in groups if dialect_has_trait(group.dialect, Trait.FROM_TIDB)]
    for key in sorted({key for group in from_tidb for key in _other_keys(state.schema, group)}):
        yield Gap(GapKind.KEYS_DIFFER, _OTHER_KEY.format(f"the key ({key})" if key else "no key"))
    for name in _columns_with_other_types(state.schema, groups if newest else ()):
        yield Gap(GapKind.CONTRADICTORY_TYPES, _OTHER_TYPE, name)


def _other_keys(schema: TableSchema, group: RowGroup) -> Iterator[str]:
    """The keys of the messages that are not the primary key, unless a column selector leaves out a part of it.

    Without a primary key in the definition, the mirror loses no row, whatever key messages name.
    """
    own = _folded(schema.primary_key)
    for key in group.all_keys if own and own <= _folded(group.columns) else ():
        if _folded(key) != own:
            yield ", ".join(sorted(_folded(key)))


def _folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)


def _columns_with_other_types(schema: TableSchema, groups: Sequence[RowGroup]) -> list[str]:
    """The columns whose texts mean other values by the types of messages than by the definition."""
    own = {column.name.casefold(): column.type for column in schema.columns}
    others = {
        name.casefold()
        for group in groups
        for types in group.sent_types
        for name, text in types.mysql_types.items()
        if (kind := own.get(name.casefold())) is not None and _is_other_type(type_or_text(text), kind, group.dialect)
    }
    return [column.name for column in schema.columns if column.name.casefold() in others]


def _is_other_type(sent: MySqlType, own: MySqlType, dialect: str) -> bool:
    labels, own_labels = _plain_labels(sent), _plain_labels(own)
    if labels and own_labels:
        return labels != own_labels
    # other dialects name types of their own, or are asked only where a definition is unknown
    is_canal = dialect_has_trait(dialect, Trait.NAMES_TYPES_TWICE)
    return is_canal and sent.base in KNOWN_TYPES and _kind(sent) != _kind(own)


def _kind(kind: MySqlType) -> str:
    """Types of one kind read a text as the same value, or refuse it."""
    if kind.base in ("enum", "set"):
        return "labels"
    name = spark_type(kind).typeName()
    return "number" if kind.base == "decimal" or name in _NUMBERS else name


def _plain_labels(kind: MySqlType) -> tuple[str, ...]:
    """The labels; none if some may be printed in several ways, or be damaged."""
    if any(not label.isprintable() or not _UNSURE.isdisjoint(label) for label in kind.members):
        return ()
    return tuple(label.casefold() for label in kind.members)
