"""The docs name tests, fields, rules and links that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from cdc_pipeline_tests.contracts.cases import CASES
from cdc_pipeline_tests.contracts.sent_cases import SENT_CASES
from cdc_pipeline_tests.dialects import test_canal, test_dataworks, test_ticdc, test_ticdc_storage
from cdc_pipeline_tests.support.lakes import ddl_stories, stories

TESTS = Path(__file__).parent
DOCS = TESTS.parent / "docs"
_ROW = re.compile(r"^\|[^|]*\|[^|]*\|(?P<tests>[^|]*)\|$", re.MULTILINE)


def test_each_row_of_the_ddl_table_names_existing_tests() -> None:
    text = (DOCS / "ddl.md").read_text(encoding="utf-8")
    rows = _ROW.findall(text.split("## Statement, effect, test")[1].split("## Expressions")[0])[2:]
    assert len(rows) > 30
    known = {*stories.STORIES, *ddl_stories.STORIES}
    for row in rows:
        names = re.findall(r"`([^`]+)`", row)
        assert names, row
        for name in names:
            assert name in known or (TESTS / name).exists(), name


def test_the_ddl_table_lists_every_story() -> None:
    text = (DOCS / "ddl.md").read_text(encoding="utf-8")
    assert [name for name in ddl_stories.STORIES if f"`{name}`" not in text] == []


def test_the_pipeline_page_is_up_to_date() -> None:
    """`make docs` generates the page."""
    script = runpy.run_path(str(TESTS.parent / "scripts" / "pipeline_fields.py"))
    assert (DOCS / "pipeline.md").read_text(encoding="utf-8") == script["document"]()


def test_the_table_of_field_rules_is_up_to_date() -> None:
    """`make docs` generates the table."""
    script = runpy.run_path(str(TESTS.parent / "scripts" / "field_rules.py"))
    text = (DOCS / "dialects.md").read_text(encoding="utf-8")
    assert text == script["page"](text)
    assert text.count("| warn |") > 30
    assert text.count("| reject |") > 80


def test_each_field_rule_has_a_clause_and_the_named_test_case() -> None:
    script = runpy.run_path(str(TESTS.parent / "scripts" / "field_rules.py"))
    modules = {
        "dialects/test_ticdc.py": set(test_ticdc._BAD),
        "dialects/test_ticdc_storage.py": {*test_ticdc_storage._BAD, "checkpoint_is_not_ahead"},
        "dialects/test_canal.py": set(test_canal._BAD),
        "dialects/test_dataworks.py": set(test_dataworks._BAD),
    }
    for dialect, form, rule in script["rules_by_form"]():
        assert rule.clause, rule
        test = script["test_of"](dialect, form.name, rule)
        if test.startswith("contracts/"):
            model = form.contract if test == "contracts/cases.py" else form.complete_contract
            cases = (CASES if test == "contracts/cases.py" else SENT_CASES)[model]
            assert rule.name in cases.broken or rule.field in cases.wrong, rule
        else:
            assert rule.name in modules[test], (test, rule)


def test_links_resolve() -> None:
    root = TESTS.parent
    for document in [*DOCS.rglob("*.md"), *root.glob("*.md"), *root.glob("examples/*/*.md")]:
        for path, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", document.read_text(encoding="utf-8")):
            target = document.parent / path if path else document
            assert target.exists(), f"{document.name}: {path}"
            assert not anchor or anchor in _anchors(target), f"{document.name}: {path}#{anchor}"


def _anchors(document: Path) -> set[str]:
    """The anchors that GitHub derives from the headings."""
    text = re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
