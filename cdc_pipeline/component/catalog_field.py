"""The field `catalog`: the settings of each catalog type, and the catalog that they declare."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import field_validator

from cdc_pipeline.catalogs.glue import Glue
from cdc_pipeline.catalogs.hive import Hive
from cdc_pipeline.component.yaml_model import YamlModel, resolver_by_type

_ADDRESSES = re.compile(r"thrift://[^\s/:@,]+:\d+(,thrift://[^\s/:@,]+:\d+)*")


class HiveCatalog(YamlModel):
    """A Hive metastore. Kerberos and TLS are those of `hive-site.xml` on the driver's class path."""

    type: Literal["hive"]
    uri: str
    """Address of the metastore: thrift://host:port, several separated by commas."""

    @field_validator("uri")
    @classmethod
    def _validate_uri(cls, value: str) -> str:
        if not _ADDRESSES.fullmatch(value):
            raise ValueError(f"{value!r} is not the address of a metastore: thrift://host:port is expected")
        return value

    @property
    def settings(self) -> Hive:
        return Hive(self.uri)


class GlueCatalog(YamlModel):
    """AWS Glue's Data Catalog. Region, credentials and address come from AWS's environment variables."""

    type: Literal["glue"]

    @property
    def settings(self) -> Glue:
        return Glue()


CatalogField = Annotated[
    HiveCatalog | GlueCatalog | None, resolver_by_type("catalog", hive=HiveCatalog, glue=GlueCatalog)
]
