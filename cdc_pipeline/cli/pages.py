"""The pages of the documentation that belong to the installed version, as Markdown."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

from cdc_pipeline.errors import DeclarationError

_DISTRIBUTION = "cdc_pipeline"
_FOLDER = "share/doc/cdc_pipeline"
"""Where the wheel installs the pages; the table `data-files` of pyproject.toml."""
_CHECKOUT = Path(__file__).parents[2]


def page_titles() -> dict[str, str]:
    """The title of each page by its name, in alphabetic order. Raises DeclarationError if no pages are installed."""
    titles = {name: file.read_text(encoding="utf-8").partition("\n")[0] for name, file in sorted(_pages().items())}
    return {name: title.lstrip("# ") for name, title in titles.items()}


def read_page(name: str, section: str = "") -> str:
    """The text of the page, or of its first section whose heading begins with `section`, in any case.

    A section includes its subsections. Raises DeclarationError, with the existing names, for one that does not exist.
    """
    pages = _pages()
    if name not in pages:
        raise DeclarationError(f"no page {name!r}: expected one of {', '.join(sorted(pages))}")
    text = pages[name].read_text(encoding="utf-8")
    if not section:
        return text
    headings = [(heading, level) for heading, level in _headings(text) if level > 1]
    for heading, level in headings:
        if heading[level:].strip().lower().startswith(section.lower()):
            lines = text[text.index(f"\n{heading}\n") + 1 :]
            following = (after for after, other in _headings(lines)[1:] if other <= level)
            end = next(following, None)
            return lines if end is None else lines[: lines.index(f"\n{end}\n") + 1]
    titles = ", ".join(heading[level:].strip() for heading, level in headings)
    raise DeclarationError(f"the page {name} has no section {section!r}: expected one of {titles}")


def _headings(text: str) -> list[tuple[str, int]]:
    """(line, level) of the headings, without comments in code."""
    without_code = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [(line, len(line) - len(line.lstrip("#"))) for line in re.findall(r"^#+ .+$", without_code, re.MULTILINE)]


def _pages() -> dict[str, Path]:
    own = _CHECKOUT / "docs"
    # of a checkout, and not of a package that happens to lie beside some other folder `docs`
    if (_CHECKOUT / "cdc_pipeline_tests").is_dir() and own.is_dir():
        files = list(own.glob("*.md"))
    else:
        installed = metadata.files(_DISTRIBUTION) or []
        files = [Path(str(file.locate())) for file in installed if file.match(f"{_FOLDER}/*.md")]
    if not files:
        raise DeclarationError("this installation has no documentation: install cdc_pipeline from its wheel")
    return {file.stem: file for file in files}
