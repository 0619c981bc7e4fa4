"""Reads the JSON of a table definition (`TableSchema.to_json`)."""

from __future__ import annotations

import json
from typing import Any

from cdc_pipeline.mysql.model.partitions import partitioning_from_plain
from cdc_pipeline.mysql.model.table import Column, Default, MySqlType, PlainIndex, TableSchema, UniqueKey


def schema_from_json(text: str) -> TableSchema:
    plain = json.loads(text)
    return TableSchema(
        columns=tuple(_column(item) for item in plain["columns"]),
        primary_key=tuple(plain["primary_key"]),
        unique_keys=tuple(
            UniqueKey(item["name"], tuple(item["columns"]), item["exact"]) for item in plain["unique_keys"]
        ),
        charset=plain["charset"],
        partitioning=None if plain["partitioning"] is None else partitioning_from_plain(plain["partitioning"]),
        indexes=tuple(PlainIndex(item["name"], tuple(item["columns"])) for item in plain["indexes"]),
        collation=plain["collation"],
    )


def _column(item: dict[str, Any]) -> Column:
    kind = item["type"]
    default = item["default"]
    return Column(
        name=item["name"],
        type=MySqlType(
            base=kind["base"],
            params=tuple(kind["params"]),
            unsigned=kind["unsigned"],
            zerofill=kind["zerofill"],
            members=tuple(kind["members"]),
            charset=kind["charset"],
            collation=kind["collation"],
        ),
        nullable=item["nullable"],
        default=None if default is None else Default(default["kind"], default["value"]),
        generated=item["generated"],
        expression=item["expression"],
        auto_increment=item["auto_increment"],
    )
