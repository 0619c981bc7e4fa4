"""AWS Glue's Data Catalog. Region, credentials and address come from AWS's environment variables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cdc_pipeline.catalogs.entries import COMMENT, OWN_PARAMETERS, Definition, Entry
from cdc_pipeline.catalogs.hive import INPUT_FORMAT, OUTPUT_FORMAT, PLACEHOLDER, SERDE
from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.spark.stores import s3_region


@dataclass(frozen=True)
class Glue:
    """The catalog of the account, as declared."""

    def __str__(self) -> str:
        return "glue"

    def connect(self, spark: SparkSession) -> GlueCatalog:
        """Raises DeclarationError without the extra `glue`."""
        try:
            import boto3  # type: ignore[import-untyped]
            from botocore.config import Config  # type: ignore[import-untyped]
        except ImportError as error:
            raise DeclarationError("the extra glue is missing: pip install 'cdc_pipeline[glue]'") from error
        # a cut waits for a service that does not respond
        limits = Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 2})
        # boto3 knows AWS_DEFAULT_REGION only
        return GlueCatalog(boto3.client("glue", region_name=s3_region(), config=limits))


@dataclass(frozen=True)
class GlueCatalog:
    client: Any
    """boto3's."""

    def databases(self) -> dict[str, Mapping[str, str]]:
        pages = self.client.get_paginator("get_databases").paginate()
        return {found["Name"]: _own_parameters(found) for page in pages for found in page["DatabaseList"]}

    def create_database(self, name: str, parameters: Mapping[str, str], location: str) -> None:
        self.client.create_database(DatabaseInput=_database(name, parameters, location))

    def alter_database(self, name: str, parameters: Mapping[str, str], location: str) -> None:
        self.client.update_database(Name=name, DatabaseInput=_database(name, parameters, location))

    def drop_database(self, name: str) -> None:
        if not self.entries(name):  # Glue would drop its tables, too
            self.client.delete_database(Name=name)

    def entries(self, database: str) -> list[Entry]:
        pages = self.client.get_paginator("get_tables").paginate(DatabaseName=database)
        return [Entry(found["Name"], _own_parameters(found)) for page in pages for found in page["TableList"]]

    def create(self, database: str, entry: Definition) -> None:
        self.client.create_table(DatabaseName=database, TableInput=_table(entry))

    def alter(self, database: str, name: str, entry: Definition) -> None:
        if name == entry.name:
            self.client.update_table(DatabaseName=database, TableInput=_table(entry))
        else:  # Glue renames no tables
            self.create(database, entry)
            self.drop(database, name)

    def drop(self, database: str, name: str) -> None:
        self.client.delete_table(DatabaseName=database, Name=name)

    def close(self) -> None:
        self.client.close()


def _database(name: str, parameters: Mapping[str, str], location: str) -> dict[str, Any]:
    return {"Name": name, "LocationUri": _aws_location(location), "Parameters": dict(parameters)}


def _table(entry: Definition) -> dict[str, Any]:
    place = _aws_location(entry.location)
    name, kind, comment = PLACEHOLDER
    table: dict[str, Any] = {
        "Name": entry.name,
        "Description": entry.parameters.get(COMMENT, ""),
        "Parameters": dict(entry.parameters),
        "TableType": "VIRTUAL_VIEW" if entry.sql else "EXTERNAL_TABLE",
        "StorageDescriptor": {
            "Columns": [{"Name": name, "Type": kind, "Comment": comment}],
            "InputFormat": INPUT_FORMAT,
            "OutputFormat": OUTPUT_FORMAT,
            "SerdeInfo": {
                "SerializationLibrary": SERDE,
                "Parameters": {"serialization.format": "1", **({"path": place} if place else {})},
            },
        },
    }
    if entry.sql:
        return {**table, "ViewOriginalText": entry.sql, "ViewExpandedText": entry.sql}
    table["StorageDescriptor"]["Location"] = place
    return table


def _aws_location(location: str) -> str:
    """AWS's services do not know Hadoop's scheme."""
    return re.sub("^s3a:", "s3:", location)


def _own_parameters(found: Mapping[str, Any]) -> dict[str, str]:
    return {name: value for name, value in found.get("Parameters", {}).items() if name in OWN_PARAMETERS}
