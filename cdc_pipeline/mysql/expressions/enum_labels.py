"""ENUM and SET columns in MySQL expressions: conversion of values to labels, and of labels to numbers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cdc_pipeline.mysql.expressions import values as v
from cdc_pipeline.mysql.expressions.casts import became_null
from cdc_pipeline.mysql.expressions.moments import as_datetime
from cdc_pipeline.mysql.expressions.texts import NOT_PLAIN, as_text
from cdc_pipeline.mysql.expressions.values import Context, ExpressionError, Value, ValueKind
from cdc_pipeline.mysql.model.table import MySqlType
from cdc_pipeline.mysql.types.charsets import collation_of_column

_NUMBER = "^\\d{1,5}\\z"
_NUMBER_LABEL = re.compile(r"[0-9]+")


def stored_labels(value: Value, kind: MySqlType, context: Context) -> Value:
    """The value as a label of an ENUM or as labels of a SET; NULL and doubtful if no label matches.

    An exact match has priority, then a match under the collation, then (ENUM only) the number of a label.
    """
    if value.kind is ValueKind.BYTES:
        raise ExpressionError(f"bytes assigned to a column of type {kind.base} are not supported")
    text = as_text(as_datetime(value, context) if value.kind is ValueKind.TIMESTAMP else value)
    if value.kind is ValueKind.INTEGER and (doubt := _number_or_label(text.sql, kind)) is not None:
        text = v.add_doubts(text, doubt)
    collation = collation_of_column(kind, context.schema)
    own = value.own_column
    if kind.base == "enum":
        from_enum = own is not None and own.type.base == "enum"
        return _stored_label(text, kind.members, collation, from_enum=from_enum)
    return _stored_set(text, kind.members, collation)


def _number_or_label(text: str, kind: MySqlType) -> str | None:
    """Whether an integer is a label to MySQL, and the number of another one to TiDB; None if none is."""
    names = [label for label in kind.members if _NUMBER_LABEL.fullmatch(label)]
    numbered = {str(2**index if kind.base == "set" else index + 1): label for index, label in enumerate(kind.members)}
    differs = [label for label in names if numbered.get(label) != label]
    return f"{text} IN ({_literal_list(differs)})" if differs else None


def _stored_label(text: Value, members: Sequence[str], collation: str | None, *, from_enum: bool) -> Value:
    """The value as a label. `from_enum`: the value may be the error value '' of another ENUM, which stays ''."""
    by_lower_case = _labels_by_lower_case(members, collation)

    def label(x: str) -> str:
        whens = [f"WHEN {x} IN ({_literal_list(members)}) THEN {x}"]
        whens += [f"WHEN {x} = '' THEN ''"] if from_enum and "" not in members else []
        whens += [f"WHEN rtrim({x}) IN ({_literal_list(members)}) THEN rtrim({x})"]
        if by_lower_case is not None:
            match = f"element_at({by_lower_case}, lower(rtrim({x})))"
            whens += [f"WHEN {match} IS NOT NULL THEN {match}"]
        number = f"CASE WHEN {x} RLIKE {v.sql_string(_NUMBER)} THEN CAST({x} AS INT) END"
        whens += [f"WHEN {number} BETWEEN 1 AND {len(members)} THEN get(array({_literal_list(members)}), {number} - 1)"]
        return f"CASE {' '.join(whens)} END"

    sql = v.bind_sql(text.sql, label)
    return v.add_doubts(
        replace(text, sql=sql), became_null(text.sql, sql), _is_collation_dependent(text.sql, sql, collation)
    )


def _stored_set(text: Value, members: Sequence[str], collation: str | None) -> Value:
    by_lower_case = _labels_by_lower_case(members, collation)

    def labels(x: str) -> str:
        otherwise = "NULL" if by_lower_case is None else f"element_at({by_lower_case}, lower(part))"
        member = f"CASE WHEN part IN ({_literal_list(members)}) THEN part ELSE {otherwise} END"
        parts = f"transform(split(rtrim({x}), ','), part -> {member})"

        def ordered(chosen: str) -> str:
            known = (
                f"array_join(filter(array({_literal_list(members)}), label -> array_contains({chosen}, label)), ',')"
            )
            return f"CASE WHEN NOT exists({chosen}, part -> part IS NULL) THEN {known} END"

        return f"CASE WHEN rtrim({x}) = '' THEN '' WHEN {x} IS NOT NULL THEN {v.bind_sql(parts, ordered)} END"

    sql = v.bind_sql(text.sql, labels)
    wrong_case = f"NOT forall(split({sql}, ','), label -> array_contains(split(rtrim({text.sql}), ','), label))"
    return v.add_doubts(
        replace(text, sql=sql), became_null(text.sql, sql), None if _ignores_case(collation) else wrong_case
    )


def label_number(value: Value, members: Sequence[str], base: str) -> Value:
    """The number of the label of an ENUM, or the bit mask of the labels of a SET."""

    def number(x: str) -> str:
        if base == "enum":
            return f"CASE WHEN {x} = '' THEN 0 ELSE nullif(array_position(array({_literal_list(members)}), {x}), 0) END"
        bits = ", ".join(
            f"CASE WHEN array_contains(split({x}, ','), {v.sql_string(member)}) "
            f"THEN CAST({2**index} AS DECIMAL(20,0)) ELSE 0 END"
            for index, member in enumerate(members)
        )
        zero = "CAST(0 AS DECIMAL(20,0))"
        mask = f"aggregate(array({bits}), {zero}, (sum, bit) -> CAST(sum + bit AS DECIMAL(20,0)))"
        return f"CASE WHEN {x} IS NOT NULL THEN {mask} END"

    sql = v.bind_sql(value.sql, number)
    if base == "enum":
        return v.integer(f"CAST({sql} AS BIGINT)", value, digits=5)
    return Value(sql, ValueKind.INTEGER, value.doubt, digits=20, unsigned=True)


def _literal_list(members: Sequence[str]) -> str:
    return ", ".join(map(v.sql_string, members))


def _ignores_case(collation: str | None) -> bool:
    """Whether the collation is known to ignore the case of ASCII letters."""
    return collation is not None and collation.endswith("_ci")


def _labels_by_lower_case(members: Sequence[str], collation: str | None) -> str | None:
    """SQL of a map: lower-case label → label, for ASCII labels that differ from all others by more than case.

    None if the collation is case-sensitive (binary) or no label qualifies.
    """
    if collation is not None and (collation == "binary" or collation.endswith("_bin")):
        return None
    folded = [member.lower() for member in members]
    counts = Counter(folded)
    pairs = [
        f"{v.sql_string(low)}, {v.sql_string(member)}"
        for low, member in zip(folded, members, strict=True)
        if member.isascii() and counts[low] == 1
    ]
    return f"map({', '.join(pairs)})" if pairs else None


def _is_collation_dependent(text: str, label: str, collation: str | None) -> str | None:
    """A Spark boolean: whether the match depends on a collation that is unknown, or on its rules for non-ASCII text."""
    plain = f"rtrim({text}) = {label} OR {text} RLIKE {v.sql_string(_NUMBER)}"
    if _ignores_case(collation):
        return f"(NOT ({plain}) AND {text} RLIKE {v.sql_string(NOT_PLAIN)})"
    return f"NOT ({plain})"
