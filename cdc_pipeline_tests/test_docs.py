"""The docs name tests, fields, rules and links that exist."""

from __future__ import annotations

import gzip
import json
import re
import runpy
from pathlib import Path
from typing import Any

import dagster as dg

from cdc_pipeline.cli.pages import read_page
from cdc_pipeline_tests.contracts.cases import CASES
from cdc_pipeline_tests.contracts.sent_cases import SENT_CASES
from cdc_pipeline_tests.dialects import test_canal, test_dataworks, test_ticdc, test_ticdc_storage
from cdc_pipeline_tests.support.lakes import ddl_stories, stories

TESTS = Path(__file__).parent
ROOT = TESTS.parent
DOCS = ROOT / "docs"
BESIDE = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages of the site beside `docs/`."""
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
    script = runpy.run_path(str(ROOT / "scripts" / "pipeline_fields.py"))
    assert (DOCS / "pipeline.md").read_text(encoding="utf-8") == script["document"]()


def test_the_table_of_field_rules_is_up_to_date() -> None:
    """`make docs` generates the table."""
    script = runpy.run_path(str(ROOT / "scripts" / "field_rules.py"))
    text = (DOCS / "dialects.md").read_text(encoding="utf-8")
    assert text == script["page"](text)
    assert text.count("| warn |") > 30
    assert text.count("| reject |") > 80


def test_each_field_rule_has_a_clause_and_the_named_test_case() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "field_rules.py"))
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
    others = [*(ROOT / "data" / "captures").rglob("*.md"), *ROOT.glob("examples/*/*.md")]
    documents = [*DOCS.rglob("*.md"), *ROOT.glob("*.md"), *others]
    assert [wrong for document in documents for wrong in _wrong_links(document)] == []


def test_wrong_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text(
        "# A `b`: c\n\n## Twice\n\n## Twice\n\n```sh\n# comment\n```\n", encoding="utf-8"
    )
    right = [
        "there.md",
        "there.md#a-b-c",
        "there.md#twice-1",
        "#here",
        "https://example.org/x#y",
        "mailto:a@example.org",
    ]
    wrong = ["gone.md", "there.md#gone", "there.md#twice-2", "there.md#comment", "#gone", "picture.png"]
    forms = ["[text]({})", "![text]({})", "[text](<{}>)", '[text]({} "title")', "[text]: {}", '<img src="{}">']
    document = tmp_path / "document.md"
    for form in forms:
        lines = [form.format(link) for link in right + wrong]
        document.write_text("\n\n".join(["# Here", *lines, "`[code](gone.md)`", "```\n[code](gone.md)\n```"]), "utf-8")
        assert _wrong_links(document) == [f"document.md: {link}" for link in wrong], form


def _wrong_links(document: Path) -> list[str]:
    """Relative links of the document to a file or a heading that does not exist."""
    found = []
    for link in _links(document):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            found.append(f"{document.name}: {link}")
    return found


def _links(document: Path) -> list[str]:
    """The relative targets of links and pictures, without those in code."""
    text = re.sub(r"`[^`]*`", "", _without_fences(document))
    targets = re.findall(r"""\]\(<?([^)>\s]+)|^\[[^]]+\]:\s+(\S+)|\b(?:href|src)="([^"]+)\"""", text, re.MULTILINE)
    return [link for link in map("".join, targets) if not re.match(r"[a-z]+:", link)]


def _anchors(document: Path) -> set[str]:
    """The anchors that GitHub derives from the headings. Equal headings get -1, -2."""
    headings = re.findall(r"^#+ (.+)$", _without_fences(document), re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {f"{slug}-{before}" if (before := slugs[:n].count(slug)) else slug for n, slug in enumerate(slugs)}


def _without_fences(document: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_messages_of_the_code_name_existing_pages_and_sections() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "cdc_pipeline").rglob("*.py"))
    for page in re.findall(r"\bdocs/[a-z/-]+\.md", text):
        assert (ROOT / page).exists(), page
    named = re.findall(r"`cdc-pipeline docs ([a-z-]+) ?([^`]*)`", text)
    assert len([section for _, section in named if section]) > 8
    for page, section in named:
        assert read_page(page, section).startswith("#" if section else "# "), f"{page}: {section}"


def test_the_job_that_deletes_old_runs() -> None:
    """The code of docs/operations.md: runs that ended before the limit go, of this pipeline only."""
    section = read_page("operations", "Dagster's storage")
    names: dict[str, Any] = {}
    code = section.partition("```python\n")[2].partition("```")[0].replace("days=14", "days=0")
    exec(compile(code, "operations.md", "exec", dont_inherit=True), names)  # Dagster needs evaluated annotations

    @dg.job
    def work() -> None: ...

    with dg.DagsterInstance.ephemeral() as instance:
        of_pipeline = {"cdc/pipeline": "orders"}
        ended = work.execute_in_process(instance=instance, tags=of_pipeline)
        other = work.execute_in_process(instance=instance, tags={"cdc/pipeline": "eu"})
        running = instance.create_run_for_job(work, tags=of_pipeline, status=dg.DagsterRunStatus.STARTED)
        cleaning = names["delete_old_runs"].execute_in_process(instance=instance)
        assert {run.run_id for run in instance.get_runs()} == {other.run_id, running.run_id, cleaning.run_id}
        assert instance.all_logs(ended.run_id) == []


def test_the_example_of_a_message_is_a_line_of_a_capture() -> None:
    found = re.search(r"```json\n(\{\"topic\".*\n)```", (DOCS / "quickstart.md").read_text(encoding="utf-8"))
    assert found
    assert (
        found[1] in gzip.decompress((ROOT / "data" / "captures" / "shop" / "part-0001.jsonl.gz").read_bytes()).decode()
    )


def test_the_index_and_the_site_have_every_page() -> None:
    pages = sorted([*(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")), *BESIDE])
    assert sorted(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)) == pages
    indexed = {link.removeprefix("../").partition("#")[0] for link in _links(DOCS / "index.md")}
    assert sorted({"index.md", *indexed}) == pages


def test_links_stay_on_the_site() -> None:
    """MkDocs has the pages of docs/, and those that scripts/site_pages.py adds."""
    pages = {*DOCS.rglob("*"), *(ROOT / name for name in BESIDE)}
    for page in pages:
        if page.suffix == ".md":
            targets = {(page.parent / link.partition("#")[0]).resolve() for link in _links(page) if link[0] != "#"}
            assert targets <= pages, page


def test_lists_are_nested_as_mkdocs_reads_them() -> None:
    """By four spaces. GitHub reads two or three as well."""
    for page in [*DOCS.rglob("*.md"), *(ROOT / name for name in BESIDE)]:
        assert re.findall(r"^ {1,3}(?:[-*]|\d+\.) .*", _without_fences(page), re.MULTILINE) == [], page
        assert re.findall(r"^ {1,3}```", page.read_text(encoding="utf-8"), re.MULTILINE) == [], page


def test_the_diagram_of_the_architecture_shows_the_asset_graph() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    diagram = text.split("```mermaid")[1].split("```")[0]
    arrows = set(re.findall(r"^ +(\w+) --> (\w+)$", diagram, re.MULTILINE))
    assets = json.loads((TESTS / "snapshots" / "asset_graph.json").read_text(encoding="utf-8"))["assets"]
    named = {name: name.split("/")[1] for name in assets}
    assert arrows == {
        ("source", "raw_topic_snapshot"),
        *((named[parent], named[name]) for name, asset in assets.items() for parent in asset["parents"]),
    }
    for name, asset in assets.items():
        if asset["checks"]:
            (blocking, others) = re.findall(
                rf"^\| `{named[name]}[`/][^|]*\|[^|]*\|([^|]*)\|([^|]*)\|$", text, re.MULTILINE
            )[0]
            for check, kind in asset["checks"].items():
                assert f"`{check}`" in (blocking if kind == "blocking" else others), (name, check)
