from __future__ import annotations

import pytest

from cdc_pipeline.mysql.ddl.shown_statement import without_literals


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("ALTER TABLE `t` ADD c INT DEFAULT 5", "ALTER TABLE `t` ADD c INT DEFAULT 5"),
        ("ALTER TABLE t\n  ADD c TEXT\tDEFAULT 'a@b.org'", "ALTER TABLE t ADD c TEXT DEFAULT '…'"),
        ("x 'it''s', 'a\\'b', \"q\"\"r\" y", "x '…', '…', \"…\" y"),
        ("ADD `it's` INT DEFAULT 'v'", "ADD `it's` INT DEFAULT '…'"),
        ("DEFAULT 'not closed", "DEFAULT '…'"),
        ("DEFAULT 'not closed\\", "DEFAULT '…'"),
        ("a" * 300, "a" * 199 + "…"),
        ("DEFAULT '" + "secret" * 100 + "'", "DEFAULT '…'"),
        ("", ""),
    ],
)
def test_text_without_literals(statement: str, shown: str) -> None:
    assert without_literals(statement) == shown
