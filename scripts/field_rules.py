"""Writes the table of all field rules in docs/dialects.md, from the models that hold them (`make docs`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cdc_pipeline.contracts.rules import rules_of
from cdc_pipeline.dialects.decode import EXPECTATIONS
from cdc_pipeline.dialects.registry import DIALECTS

if TYPE_CHECKING:
    from cdc_pipeline.contracts.rules import Rule
    from cdc_pipeline.dialects.dialect import Form

PAGE = Path(__file__).parents[1] / "docs" / "dialects.md"
BEGIN, END = "<!-- field rules: made by scripts/field_rules.py, held by a test -->\n", "<!-- end of field rules -->\n"
_HEAD = (
    "| rule | of | what must hold | where a document says it | field | severity | test |\n"
    "|---|---|---|---|---|---|---|\n"
)
_NAMES = {"ticdc": "TiCDC", "canal": "Canal", "dataworks": "DataWorks"}
_AGREEMENT = "contracts/test_agreement.py"
_OF_FORMS = {"isDdl.equal_to"}
"""What a message is taken for by these: none can break them."""
VALUE = (
    "`value_has_type`",
    "a row, when it is merged",
    "each value is in the range of its column's type, and written as such a value is",
    "Integer types; Binary and Blob types",
    "data",
    "reject",
    "`mysql/types/test_spark_types.py`, `mysql/types/test_wire_values.py`",
)


def table() -> str:
    """The table, a row for each rule of each dialect."""
    rows = [_row(words) for words in (*_of_json(), *_of_forms(), VALUE)]
    return _HEAD + "".join(rows)


def test_of(dialect: str, form: str, rule: Rule) -> str:
    """The file with the messages that break a rule, below `cdc_pipeline_tests`."""
    if rule.name in _OF_FORMS:
        return "contracts/cases.py"
    if rule.warn:
        return "contracts/sent_cases.py" if not _is_decoded(dialect, form, rule) else "contracts/cases.py"
    return "dialects/test_ticdc_storage.py" if form.startswith("ticdc_storage") else f"dialects/test_{dialect}.py"


def rules_by_form() -> list[tuple[str, Form, Rule]]:
    """Dialect, form and rule, those of messages as they are sent among them, each once for a form."""
    found = []
    for dialect in sorted(DIALECTS, key=lambda dialect: list(_NAMES).index(dialect.name)):
        for form in dialect.forms:
            contracts = [form.contract, *([form.sent] if form.sent is not None else [])]
            rules = dict.fromkeys(rule for contract in contracts for rule in rules_of(contract))
            found += [(dialect.name, form, rule) for rule in rules]
    return found


def _is_decoded(dialect: str, form: str, rule: Rule) -> bool:
    forms = {found.name: found.contract for known in DIALECTS if known.name == dialect for found in known.forms}
    return rule in rules_of(forms[form])


def _of_json() -> list[tuple[str, ...]]:
    named = {rule.name for _, _, rule in rules_by_form()}
    tests = {"dialect_is_declared": "`dialects/test_recognition.py`"}
    return [
        (f"`{name}`", "any record", words, "", "", "reject", tests.get(name, "`dialects/test_ticdc.py`"))
        for name, (words, _) in EXPECTATIONS.items()
        if name not in named
    ]


def _of_forms() -> list[tuple[str, ...]]:
    """One row for a rule of a dialect, whatever the number of forms that have it."""
    found: dict[tuple[str, Rule], list[str]] = {}
    tests: dict[tuple[str, Rule], str] = {}
    for dialect, form, rule in rules_by_form():
        found.setdefault((dialect, rule), []).append(form.name.removeprefix(f"{dialect}_").replace("_", " "))
        tests.setdefault((dialect, rule), test_of(dialect, form.name, rule))
    return [
        (
            f"`{rule.name}`",
            f"{_NAMES[dialect]}: {', '.join(forms)}",
            rule.expected,
            rule.clause,
            f"`{rule.field}`" if rule.field else "",
            "warn" if rule.warn else "reject",
            f"`{tests[dialect, rule]}`",
        )
        for (dialect, rule), forms in found.items()
    ]


def _row(words: tuple[str, ...]) -> str:
    return "| " + " | ".join(text.replace("|", "\\|") for text in words) + " |\n"


def page(text: str) -> str:
    """The page with the table in its place."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"wrote the field rules of {PAGE.name}; the agreement of Pandera and SQL on each is in {_AGREEMENT}")
