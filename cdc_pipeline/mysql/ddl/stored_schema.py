"""The JSON text of a table's schema (`TableSchema.to_json`), read back: also that of older versions.

Apart from `table`, because versions before kept a partitioning as its text, which only the readers of DDL understand.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from cdc_pipeline.mysql.ddl.partitioning import partitioning_of_text
from cdc_pipeline.mysql.model.partitions import partitioning_from_plain
from cdc_pipeline.mysql.model.table import Column, Default, MySqlType, PlainIndex, TableSchema, UniqueKey

if TYPE_CHECKING:
    from cdc_pipeline.mysql.model.partitions import Partitioning


def schema_of_json(text: str) -> TableSchema:
    """The schema of `TableSchema.to_json`, also of an older version that kept the partitioning as text."""
    plain = json.loads(text)
    columns = tuple(_column(item) for item in plain["columns"])
    return TableSchema(
        columns=columns,
        primary_key=tuple(plain["primary_key"]),
        unique_keys=tuple(
            UniqueKey(item["name"], tuple(item["columns"]), item["exact"]) for item in plain["unique_keys"]
        ),
        charset=plain["charset"],
        partitioning=_partitioning(plain["partitioning"], columns),
        indexes=tuple(PlainIndex(item["name"], tuple(item["columns"])) for item in plain.get("indexes", ())),
        collation=plain.get("collation"),
    )


def _partitioning(plain: Any, columns: tuple[Column, ...]) -> Partitioning | None:
    if isinstance(plain, str):
        return partitioning_of_text(plain, columns)
    return None if plain is None else partitioning_from_plain(plain)


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
        auto_increment=item.get("auto_increment", False),
    )
