"""ENUM and SET in MySQL expressions: the label that a value becomes, and the number of a label."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from cdc_pipeline.mysql.expressions.casts import lost
from cdc_pipeline.mysql.expressions.moments import as_datetime
from cdc_pipeline.mysql.expressions.texts import NOT_PLAIN, as_text
from cdc_pipeline.mysql.expressions.values import (
    ExpressionError,
    Value,
    ValueKind,
    bound,
    doubted,
    integer,
    quoted,
)
from cdc_pipeline.mysql.types.charsets import collation_of_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cdc_pipeline.mysql.expressions.values import Context
    from cdc_pipeline.mysql.model.table import MySqlType

_NUMBER = "^\\d{1,5}\\z"


def stored_labels(value: Value, kind: MySqlType, context: Context) -> Value:
    """The label of an ENUM, or the labels of a SET, that a column takes a value for: an exact match first, then what the
    collation holds for equal, then the number of a label."""
    if value.kind is ValueKind.BYTES:
        raise ExpressionError(f"bytes in a column of type {kind.base}")
    text = as_text(as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value)
    collation = collation_of_column(kind, context.schema)
    own = value.own_column
    if kind.base == "enum":
        empty = own is not None and own.type.base == "enum"
        return _stored_label(text, kind.members, collation, empty=empty)
    return _stored_set(text, kind.members, collation)


def _stored_label(text: Value, members: Sequence[str], collation: str | None, *, empty: bool) -> Value:
    """`empty`: the value may be the error value of another ENUM, which has no label and stays so."""
    alike = _alike(members, collation)

    def label(x: str) -> str:
        whens = [f"WHEN {x} IN ({_list(members)}) THEN {x}"]
        whens += [f"WHEN {x} = '' THEN ''"] if empty and "" not in members else []
        whens += [f"WHEN rtrim({x}) IN ({_list(members)}) THEN rtrim({x})"]
        if alike is not None:
            found = f"element_at({alike}, lower(rtrim({x})))"
            whens += [f"WHEN {found} IS NOT NULL THEN {found}"]
        number = f"CASE WHEN {x} RLIKE {quoted(_NUMBER)} THEN CAST({x} AS INT) END"
        whens += [f"WHEN {number} BETWEEN 1 AND {len(members)} THEN get(array({_list(members)}), {number} - 1)"]
        return f"CASE {' '.join(whens)} END"

    sql = bound(text.sql, label)
    return doubted(replace(text, sql=sql), lost(text.sql, sql), _unlike(text.sql, sql, collation))


def _stored_set(text: Value, members: Sequence[str], collation: str | None) -> Value:
    alike = _alike(members, collation)

    def labels(x: str) -> str:
        otherwise = "NULL" if alike is None else f"element_at({alike}, lower(part))"
        member = f"CASE WHEN part IN ({_list(members)}) THEN part ELSE {otherwise} END"
        parts = f"transform(split(rtrim({x}), ','), part -> {member})"

        def ordered(chosen: str) -> str:
            known = f"array_join(filter(array({_list(members)}), label -> array_contains({chosen}, label)), ',')"
            return f"CASE WHEN NOT exists({chosen}, part -> part IS NULL) THEN {known} END"

        return f"CASE WHEN rtrim({x}) = '' THEN '' WHEN {x} IS NOT NULL THEN {bound(parts, ordered)} END"

    sql = bound(text.sql, labels)
    wrong_case = f"NOT forall(split({sql}, ','), label -> array_contains(split(rtrim({text.sql}), ','), label))"
    return doubted(replace(text, sql=sql), lost(text.sql, sql), None if _folds(collation) else wrong_case)


def label_number(value: Value, members: Sequence[str], base: str) -> Value:
    """The number of an ENUM's label, or the mask of a SET's labels."""

    def number(x: str) -> str:
        if base == "enum":
            return f"CASE WHEN {x} = '' THEN 0 ELSE nullif(array_position(array({_list(members)}), {x}), 0) END"
        bits = ", ".join(
            f"CASE WHEN array_contains(split({x}, ','), {quoted(member)}) THEN CAST({2**place} AS DECIMAL(20,0)) ELSE 0 END"
            for place, member in enumerate(members)
        )
        zero = "CAST(0 AS DECIMAL(20,0))"
        mask = f"aggregate(array({bits}), {zero}, (sum, bit) -> CAST(sum + bit AS DECIMAL(20,0)))"
        return f"CASE WHEN {x} IS NOT NULL THEN {mask} END"

    sql = bound(value.sql, number)
    if base == "enum":
        return integer(f"CAST({sql} AS BIGINT)", value, digits=5)
    return Value(sql, ValueKind.INTEGER, value.doubt, digits=20, unsigned=True)


def _list(members: Sequence[str]) -> str:
    return ", ".join(map(quoted, members))


def _folds(collation: str | None) -> bool:
    """Whether the collation surely does not tell case, of letters of ASCII."""
    return collation is not None and collation.endswith("_ci")


def _alike(members: Sequence[str], collation: str | None) -> str | None:
    """A map from the lower case of labels to those that no other has: what a text means that differs in its case. None where
    the collation tells case."""
    if collation is not None and (collation == "binary" or collation.endswith("_bin")):
        return None
    folded = [member.lower() for member in members]
    times = Counter(folded)
    pairs = [
        f"{quoted(low)}, {quoted(member)}"
        for low, member in zip(folded, members, strict=True)
        if member.isascii() and times[low] == 1
    ]
    return f"map({', '.join(pairs)})" if pairs else None


def _unlike(text: str, label: str, collation: str | None) -> str | None:
    """Whether it takes a collation to know that the text means the label, and which one it is is not known."""
    plain = f"rtrim({text}) = {label} OR {text} RLIKE {quoted(_NUMBER)}"
    if _folds(collation):
        return f"(NOT ({plain}) AND {text} RLIKE {quoted(NOT_PLAIN)})"
    return f"NOT ({plain})"
