"""MkDocs hook: adds CHANGELOG.md and CONTRIBUTING.md, which lie beside docs/, to the site, and adapts links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File  # type: ignore[import-not-found]  # only .venv-docs has mkdocs

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("CHANGELOG.md", "CONTRIBUTING.md")
_LINK_TO_PAGE = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, PAGES))}))")


def on_files(files: Any, config: Any) -> Any:
    for page in PAGES:
        files.append(File.generated(config, page, abs_src_path=str(ROOT / page)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    if page.file.src_uri in PAGES:
        return markdown.replace("](docs/", "](")
    return _LINK_TO_PAGE.sub(r"](\1", markdown)
