"""Reads a database server over JDBC: few rows by the driver itself, tables by Spark, side by side by ranges of a column."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from cdc_pipeline.errors import SourceError, TransientError
from cdc_pipeline.spark.jvm import java_causes, jvm

Query: TypeAlias = Callable[[str], list[tuple[str | None, ...]]]
"""SQL → its rows, each value as the driver's text."""
_FETCHED_ROWS = "1000"
_CONNECTION_LOST = ("08", "70100")
"""Classes of SQLSTATE, and one of them, of a server that is gone."""
_OF_SERVER = re.compile(r"java\.sql\.SQL\w*Exception: (.*)|com\.mysql\.cj\.jdbc\.exceptions\.\w+: (.*)")


@dataclass(frozen=True)
class JdbcServer:
    """`url`: jdbc:mysql://… or jdbc:mariadb://…, without a password. `driver`: the name of its class."""

    url: str
    driver: str
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def address(self) -> str:
        """The URL without its options, which may hold secrets."""
        return self.url.partition("?")[0]

    @property
    def properties(self) -> Mapping[str, str]:
        login = {"user": self.user, "password": self.password}
        # MySQL's driver otherwise reads all rows of a query into memory
        cursor = {"useCursorFetch": "true"} if self.url.startswith("jdbc:mysql:") else {}
        return {**{name: text for name, text in login.items() if text}, **cursor}

    @contextlib.contextmanager
    def connect(self, spark: SparkSession, session: str) -> Iterator[Query]:
        """`session`: a statement that is executed first. Raises SourceError or TransientError with the server's reason."""
        names = jvm(spark)
        properties = names.java.util.Properties()
        for name, text in self.properties.items():
            properties.setProperty(name, text)
        with self.named_errors(spark):
            loader = names.java.lang.Thread.currentThread().getContextClassLoader()
            # not by DriverManager, which sees only drivers on the JVM's own class path
            connection = loader.loadClass(self.driver).newInstance().connect(self.url, properties)
            if connection is None:
                raise SourceError(f"{self.address}: not an address of the driver {self.driver}")
        try:
            with self.named_errors(spark):
                connection.createStatement().execute(session)

            def query(sql: str) -> list[tuple[str | None, ...]]:
                with self.named_errors(spark):
                    return _rows(connection.createStatement().executeQuery(sql))

            yield query
        finally:
            connection.close()

    def read(
        self, spark: SparkSession, sql: str, columns: Sequence[str], ranges: Sequence[str], session: str
    ) -> DataFrame:
        """The rows of a query as texts: one partition for each condition in `ranges`."""
        properties = {
            **self.properties,
            "driver": self.driver,
            "fetchsize": _FETCHED_ROWS,
            "sessionInitStatement": session,
            "customSchema": ", ".join(f"{name} STRING" for name in columns),
        }
        with self.named_errors(spark):
            found = spark.read.jdbc(self.url, f"({sql}) source", predicates=list(ranges), properties=properties)
        return found.select(*columns)

    @contextlib.contextmanager
    def named_errors(self, spark: SparkSession) -> Iterator[None]:
        """Converts errors of the server and its driver, also those of Spark's tasks."""
        try:
            yield
        except Py4JJavaError as error:
            raise self._error(spark, error) or error from error
        except PySparkException as error:
            found = self._task_error(str(error))
            if found is None:
                raise
            raise found from error

    def _task_error(self, text: str) -> TransientError | None:
        """The error of a task that reads, which arrives as text with its stack; None if it is not the server's."""
        found = _OF_SERVER.search(text)
        return TransientError(f"{self.address}: reading stopped: {found[1] or found[2]}") if found else None

    def _error(self, spark: SparkSession, error: Py4JJavaError) -> SourceError | TransientError | None:
        """None if the error is not the server's."""
        sql_error = jvm(spark).java.lang.Class.forName("java.sql.SQLException")
        missing = jvm(spark).java.lang.Class.forName("java.lang.ClassNotFoundException")
        chain = java_causes(error)
        found = next((one for one in chain if sql_error.isInstance(one)), None)
        if found is None:
            if any(map(missing.isInstance, chain)):
                return SourceError(f"{self.address}: the session has no class {self.driver}, the driver")
            return self._task_error(str(error.java_exception))
        reason = str(found.getMessage()).splitlines()[0]
        if str(found.getSQLState()).startswith(_CONNECTION_LOST):
            return TransientError(f"{self.address} does not answer: {reason}")
        return SourceError(f"{self.address}: {reason}")


def _rows(result: Any) -> list[tuple[str | None, ...]]:
    width, rows = result.getMetaData().getColumnCount(), []
    while result.next():
        rows.append(tuple(result.getString(index + 1) for index in range(width)))
    result.close()
    return rows
