"""A Hive metastore, by the client of PySpark's jars in the driver. The Spark session needs no Hive support."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from cdc_pipeline.catalogs.entries import OWN_PARAMETERS, Definition, Entry
from cdc_pipeline.spark.jvm import java_map, jvm

# A cut waits for a metastore that does not respond, so once and briefly. Kerberos and TLS are set in hive-site.xml.
_SETTINGS = {
    "hive.metastore.client.socket.timeout": "20s",
    "hive.metastore.connect.retries": "1",
    "hive.metastore.failure.retries": "1",
}
PLACEHOLDER = ("col", "array<string>", "from deserializer")
INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""What Spark writes for a table that Hive cannot read."""


@dataclass(frozen=True)
class Hive:
    """A metastore as declared."""

    uri: str
    """`thrift://host:port`, several separated by commas."""

    def __str__(self) -> str:
        return self.uri

    def connect(self, spark: SparkSession) -> HiveCatalog:
        java = jvm(spark)
        conf = java.org.apache.hadoop.hive.conf.HiveConf()
        for name, value in {**_SETTINGS, "hive.metastore.uris": self.uri}.items():
            conf.set(name, value)
        return HiveCatalog(java, java.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf))


@dataclass(frozen=True)
class HiveCatalog:
    java: Any
    client: Any
    """Hive's `HiveMetaStoreClient`."""

    def databases(self) -> dict[str, Mapping[str, str]]:
        names = self.client.getAllDatabases()
        return {name: _own_parameters(self.client.getDatabase(name)) for name in names}

    def create_database(self, name: str, parameters: Mapping[str, str], location: str) -> None:
        self.client.createDatabase(self._database(name, parameters, location))

    def alter_database(self, name: str, parameters: Mapping[str, str], location: str) -> None:
        self.client.alterDatabase(name, self._database(name, parameters, location))

    def drop_database(self, name: str) -> None:
        try:
            self.client.dropDatabase(name, False, True, False)  # neither files nor tables
        except Py4JJavaError:
            # without the jar of its connection pool, a metastore drops the schema and then closes the connection
            self.client.reconnect()
            if name in self.client.getAllDatabases():
                raise

    def entries(self, database: str) -> list[Entry]:
        found = self.client.getTableObjectsByName(database, self.client.getAllTables(database))
        return [Entry(table.getTableName(), _own_parameters(table)) for table in found]

    def create(self, database: str, entry: Definition) -> None:
        self.client.createTable(self._table(database, entry))

    def alter(self, database: str, name: str, entry: Definition) -> None:
        self.client.alter_table(database, name, self._table(database, entry))

    def drop(self, database: str, name: str) -> None:
        self.client.dropTable(database, name, False, True)  # no files; one that is gone is dropped

    def close(self) -> None:
        self.client.close()

    def _database(self, name: str, parameters: Mapping[str, str], location: str) -> Any:
        return self._api.Database(name, "", location, java_map(self.java, parameters))

    def _table(self, database: str, entry: Definition) -> Any:
        storage, table = self._api.StorageDescriptor(), self._api.Table()
        columns = self.java.java.util.ArrayList()
        columns.add(self._api.FieldSchema(*PLACEHOLDER))
        storage.setCols(columns)
        storage.setInputFormat(INPUT_FORMAT)
        storage.setOutputFormat(OUTPUT_FORMAT)
        serde = {"serialization.format": "1", **({"path": entry.location} if entry.location else {})}
        storage.setSerdeInfo(self._api.SerDeInfo("", SERDE, java_map(self.java, serde)))
        table.setDbName(database)
        table.setTableName(entry.name)
        table.setPartitionKeys(self.java.java.util.ArrayList())
        table.setParameters(java_map(self.java, entry.parameters))
        table.setTableType("VIRTUAL_VIEW" if entry.sql else "EXTERNAL_TABLE")
        if entry.sql:
            table.setViewOriginalText(entry.sql)
            table.setViewExpandedText(entry.sql)
        else:
            storage.setLocation(entry.location)
        table.setSd(storage)
        return table

    @property
    def _api(self) -> Any:
        return self.java.org.apache.hadoop.hive.metastore.api


def _own_parameters(found: Any) -> dict[str, str]:
    """Only ours: each is a call to Java."""
    parameters = found.getParameters()
    values = {name: parameters.get(name) for name in OWN_PARAMETERS} if parameters is not None else {}
    return {name: value for name, value in values.items() if value is not None}
