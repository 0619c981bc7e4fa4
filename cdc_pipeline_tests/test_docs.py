"""What the documents name is there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from cdc_pipeline_tests.mirrors import ddl_stories, stories

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
_ROW = re.compile(r"^\|[^|]*\|[^|]*\|(?P<tests>[^|]*)\|$", re.MULTILINE)


def test_every_statement_of_the_table_of_ddl_names_tests_that_are_there() -> None:
    text = (DOCS / "ddl.md").read_text(encoding="utf-8")
    rows = _ROW.findall(text.split("## Statement, effect, test")[1].split("## Expressions")[0])[2:]
    assert len(rows) > 30
    known = {*stories.STORIES, *ddl_stories.STORIES}
    for row in rows:
        names = re.findall(r"`([^`]+)`", row)
        assert names, row
        for name in names:
            assert name in known or (TESTS / name).exists(), name


def test_every_story_of_ddl_is_in_the_table() -> None:
    text = (DOCS / "ddl.md").read_text(encoding="utf-8")
    assert [name for name in ddl_stories.STORIES if f"`{name}`" not in text] == []


def test_every_field_of_a_pipeline_is_documented_as_it_is() -> None:
    """`make docs` writes the page anew."""
    script = runpy.run_path(str(TESTS.parent / "scripts" / "pipeline_fields.py"))
    assert (DOCS / "pipeline.md").read_text(encoding="utf-8") == script["document"]()


def test_links_of_the_documents_lead_somewhere() -> None:
    for document in [*DOCS.rglob("*.md"), *TESTS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
