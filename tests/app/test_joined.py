"""The page's scripts and styles in few files (app/joined.py)."""

from __future__ import annotations

import os
import re
from pathlib import Path

import httpx
import pytest

from app.joined import MAIN, SHEET, Joined, join_scripts, join_sheet

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A page of three modules, one of them later."""
    scripts = {
        "main.js": "/** The page. */\n"
        'import { open } from "./later.js";\nimport { a as b } from "./panels/a.js";\n\nopen(b);\n',
        "later.js": 'export async function open(x) {\n  (await import("./panels/c.js")).c(x);\n}\n',
        "panels/a.js": '// One.\nimport { d } from "../d.js";\n\nexport const a = d("/* kept */; // kept");\n',
        "panels/c.js": 'import { d } from "../d.js";\nimport { e } from "../e.js";\n\nexport const c = d + e;\n',
        "d.js": "/** {@link\n * x} */\nexport function d(x) {\n  return /** @type {number} */ (x); // said\n}\n",
        "e.js": "export const e = 1;\n",
    }
    sheets = {"page.css": '/* All. */\n\n@import "x.css";\n@import "y.css";\n', "x.css": "x {}\n", "y.css": "y {}\n"}
    for name, text in {
        **{f"js/{k}": v for k, v in scripts.items()},
        **{f"css/{k}": v for k, v in sheets.items()},
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def defined(text: str) -> list[str]:
    return sorted(re.findall(r'^define\("([^"]+)"', text, re.MULTILINE))


def test_what_is_needed_at_once_is_in_the_main_script(folder: Path) -> None:
    main = join_scripts(folder / "js")[MAIN]
    assert defined(main) == ["d.js", "later.js", "main.js", "panels/a.js"]
    assert main.endswith('use("main.js");\n')


def test_what_is_imported_later_is_a_script_of_its_own_with_what_only_it_needs(folder: Path) -> None:
    later = join_scripts(folder / "js")["panels/c.js"]
    assert defined(later) == ["e.js", "panels/c.js"]
    assert later.endswith('export const { c } = use("panels/c.js");\n')


def test_imports_become_uses_by_the_path_they_mean(folder: Path) -> None:
    main = join_scripts(folder / "js")[MAIN]
    assert 'const { a: b } = use("panels/a.js");' in main
    assert 'const { d } = use("d.js");' in main
    assert not re.search(r"^(import|export) (?!function (define|use)\b)", main, re.MULTILINE)


def test_comments_are_left_out_and_text_is_not(folder: Path) -> None:
    main = join_scripts(folder / "js")[MAIN]
    assert "The page." not in main
    assert "One." not in main
    assert "@link" not in main
    assert '"/* kept */; // kept"' in main
    assert "return (x);\n" in main


def test_style_sheets_keep_their_order(folder: Path) -> None:
    assert join_sheet(folder / "css") == "x {}\ny {}\n"


def test_a_changed_file_is_joined_anew(folder: Path) -> None:
    joined = Joined(folder)
    assert "e = 1" in joined.files()["panels/c.js"]
    (folder / "js/e.js").write_text("export const e = 2;\n", encoding="utf-8")
    os.utime(folder / "js/e.js", ns=(1, 1))
    assert "e = 2" in joined.files()["panels/c.js"]


def test_every_module_of_the_page_is_joined_once() -> None:
    files = join_scripts(ROOT / "static/js")
    first = defined(files[MAIN])
    assert len(first) == len(set(first))
    assert not any(set(defined(text)) & set(first) for name, text in files.items() if name != MAIN)


@pytest.mark.parametrize("name", [MAIN, SHEET, "panels/roofline.js"])
def test_a_joined_file_is_compressed_and_asked_about_each_time(client: httpx.Client, name: str) -> None:
    response = client.get(f"/joined/{name}")
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["cache-control"] == "no-cache"
    again = client.get(f"/joined/{name}", headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_no_other_file_is_joined(client: httpx.Client) -> None:
    assert client.get("/joined/format.js").status_code == 404
    assert client.get("/joined/../app/main.py").status_code == 404
