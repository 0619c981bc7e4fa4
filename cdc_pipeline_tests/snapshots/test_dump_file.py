"""The tables, settings and parts that are found in a file of mysqldump."""

from __future__ import annotations

import pytest

from cdc_pipeline.errors import SourceError
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.dump_file import DumpFile
from cdc_pipeline.snapshots.files import DataFile
from cdc_pipeline_tests.support.exports import EXPORTS, text_of

_HEADER = b"-- MySQL dump 10.13\n--\n-- Host: localhost    Database: d\n/*!50503 SET NAMES utf8mb4 */;\n"
_END = b"-- Dump completed on 2026-11-28  0:27:03\n"
_TABLE = b"CREATE TABLE `t` (\n  `id` int\n) ENGINE=InnoDB;\n"


def _dump(content: bytes, block: int = 1 << 20, part_bytes: int = 1 << 20) -> DumpFile:
    dump = DumpFile(DataFile("d.sql", len(content)), part_bytes)
    dump.read(text_of(content, block))
    return dump


def test_a_table_is_divided_into_parts_at_statements() -> None:
    statement = b"INSERT INTO `t` VALUES (1),(2),(3);\n"
    content = _HEADER + _TABLE + statement * 5 + _END
    table = _dump(content, part_bytes=80).tables[TableName("d", "t")]
    assert [(part.first_row, part.rows) for part in table.files] == [(1, 6), (7, 6), (13, 3)]
    for part in table.files:
        text = content[part.start : part.end]
        assert (text[:6], text[-1:]) == (b"INSERT", b";")


def test_tables_whose_rows_are_not_in_the_file() -> None:
    """mysqldump begins a section for the rows of each table, also of an empty one."""
    data, where = b"--\n-- Dumping data for table `%s`\n--\n", b"-- WHERE:  id > 5\n\n"
    row = b"INSERT INTO `t` VALUES (6);\n"
    without, whole = _dump(_HEADER + _TABLE + _END), _dump(_HEADER + _TABLE + data % b"t" + _END)
    other = _TABLE.replace(b"`t`", b"`a``b`")
    part = _dump(_HEADER + other + data % b"a``b" + _TABLE + data % b"t" + where + row + _END)
    found = {name.table: table.lack for dump in (whole, part) for name, table in dump.tables.items()}
    assert found == {"t": "d.sql: it was exported with --where", "a`b": ""}
    assert whole.tables[TableName("d", "t")].lack == ""
    assert without.tables[TableName("d", "t")].lack.startswith("d.sql: it has no section for rows")


@pytest.mark.parametrize(
    ("charset", "definition", "damaged"),
    [
        (b"utf8mb4", b"`a` text, `j` json) DEFAULT CHARSET=utf8mb4", ""),
        (b"utf8", b"`a` text, `n` int, `j` json, `l` text CHARACTER SET latin1) DEFAULT CHARSET=utf8mb4", "a, j"),
        (b"utf8", b"`a` text) DEFAULT CHARSET=utf8mb3", ""),
        (b"latin1", b"`a` enum('x'), `l` char(9) CHARACTER SET latin1) DEFAULT CHARSET=utf8mb3", "a"),
        (b"binary", b"`a` text) DEFAULT CHARSET=utf8mb4", ""),
    ],
)
def test_a_character_set_that_lacks_characters(charset: bytes, definition: bytes, damaged: str) -> None:
    (table,) = _dump(
        _HEADER.replace(b"utf8mb4", charset) + b"CREATE TABLE `t` (" + definition + b";\n" + _END
    ).tables.values()
    assert (f"of the columns {damaged}." in table.damage) if damaged else not table.damage


@pytest.mark.parametrize("name", ["hex-blob.sql", "mysqldump97.sql"])
def test_blocks_of_any_size_find_the_same(name: str) -> None:
    content = (EXPORTS / "mysqldump" / name).read_bytes()
    assert _dump(content, 61).tables == _dump(content).tables


def test_text_in_routines_and_values_is_no_statement() -> None:
    content = (
        _HEADER
        + _TABLE
        + b"CREATE TABLE `u` (`v` text COMMENT 'CREATE TABLE `x` (');\n"
        + b"DELIMITER ;;\nCREATE PROCEDURE `p`()\nBEGIN\nCREATE TABLE `x` (`id` int);\nINSERT INTO `x` VALUES (1);\nEND ;;\n"
        + b"DELIMITER ;\nINSERT INTO `u` VALUES ('\\nCREATE TABLE `x` (`id` int);\\n');\n"
        + b"/*!50001 CREATE VIEW `v` AS SELECT \n 1 AS `id`*/;\n"
        + b"CREATE TABLE `s` (\n  `next_not_cached_value` bigint\n) ENGINE=InnoDB SEQUENCE=1;\nINSERT INTO `s` VALUES (5);\n"
        + b"USE `e`;\n"
        + _TABLE
        + _END
    )
    found = _dump(content).tables
    assert set(found) == {TableName("d", "t"), TableName("d", "u"), TableName("e", "t")}
    assert found[TableName("d", "t")].files == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_HEADER + _TABLE, "the last line is not '-- Dump completed'"),
        (_HEADER + _TABLE + _END + _HEADER + _TABLE, "is in the file twice"),
        (_HEADER + _TABLE + _END + b"SET a=1;\n", "the last line is not '-- Dump completed'"),
        (_TABLE + _END, "names the database of 't'"),
        (_HEADER + b"INSERT INTO `t` VALUES (1);\n" + _END, r"rows of d\.t without its CREATE TABLE"),
        (_HEADER + _TABLE + b"INSERT INTO `t` VALUES (1),\n(2)\n" + _END, "row 2: "),
        (_HEADER + _TABLE + b"NSERT INTO `t` VALUES (1);\n" + _END, "A statement of mysqldump is expected"),
        (_HEADER.replace(b"utf8mb4", b"gbk") + _TABLE + _END, "--default-character-set=gbk"),
        (_HEADER + b"CREATE TABLE `\xff` (`id` int);\n" + _END, "is not UTF-8"),
    ],
)
def test_damaged_files_are_rejected(content: bytes, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        _dump(content)


def test_a_file_cut_anywhere_is_rejected() -> None:
    content = (EXPORTS / "mysqldump" / "mysqldump97.sql").read_bytes()
    completed = content.index(b"-- Dump completed") + len(b"-- Dump completed")
    for length in [*range(0, completed, 97), completed - 1]:
        with pytest.raises(SourceError):
            _dump(content[:length])


def test_position_and_settings() -> None:
    dump = _dump(
        _HEADER
        + b"/*!40103 SET TIME_ZONE='+00:00' */;\n"
        + b"SET @@GLOBAL.GTID_PURGED=/*!80000 '+'*/ '23b30afc:1-33,\n45b30afc:1-2';\n"
        + b"CHANGE MASTER TO MASTER_LOG_FILE='bin.000002', MASTER_LOG_POS=4;\n"
        + b"/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;\n-- Dump completed\n"
    )
    assert dump.position.binlog.splitlines() == [
        "GTID_PURGED=/*!80000 '+'*/ '23b30afc:1-33,",
        "45b30afc:1-2'",
        "CHANGE MASTER TO MASTER_LOG_FILE='bin.000002', MASTER_LOG_POS=4",
    ]
    assert (dump.settings.charset, dump.settings.time_zone, dump.position.finished) == ("utf8mb4", "+00:00", None)
