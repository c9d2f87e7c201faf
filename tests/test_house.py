"""The rules of the house: who may import what, what the page may contain, what is installed and shipped."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app import joined

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("app", "engine", "static", "templates")
WEB = {"starlette", "uvicorn"}
TORCH = {"torch", "transformers", "triton"}
NO_TORCH_NO_MSGSPEC = ("scheduler", "block_pool", "request", "events", "config", "runner")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """The top-level names that a module imports anywhere, inside functions and type-checking blocks too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def loaded_by(*imports: str) -> set[str]:
    """The top-level modules in a fresh interpreter after these imports."""
    code = f"import sys; import {', '.join(imports)}; print(*{{m.split('.')[0] for m in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


# -- who imports what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", modules("engine"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_engine_module_imports_no_web_framework(path: Path) -> None:
    assert not imported(path) & (WEB | {"app"})


@pytest.mark.parametrize("path", modules("engine"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_only_the_frontend_imports_jinja2_and_only_the_publisher_the_wire(path: Path) -> None:
    allowed = {"frontend": {"jinja2"}, "publisher": {"msgspec", "websockets"}}.get(path.stem, set())
    assert not (imported(path) & {"jinja2", "msgspec", "websockets"}) - allowed


@pytest.mark.parametrize("path", modules("app"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_app_module_imports_no_torch(path: Path) -> None:
    assert not imported(path) & TORCH


@pytest.mark.parametrize("name", NO_TORCH_NO_MSGSPEC)
def test_the_plain_python_part_of_the_engine_loads_neither_torch_nor_msgspec(name: str) -> None:
    assert not loaded_by(f"engine.{name}") & (TORCH | {"msgspec", "numpy"})


def test_the_core_loads_without_torch() -> None:
    assert not loaded_by("engine.core") & (TORCH | WEB)


def test_the_app_loads_without_torch() -> None:
    assert not loaded_by("app.main", "app.cli") & TORCH


# -- what the page may contain -----------------------------------------------------------------------------------


def own_files(*suffixes: str) -> list[Path]:
    """Files of static/ and templates/ that we wrote."""
    found = [p for folder in ("static", "templates") for p in (ROOT / folder).rglob("*") if p.suffix in suffixes]
    return sorted(p for p in found if "vendor" not in p.parts)


OUTSIDE = re.compile(
    r"""(?:https?|wss?)://(?!www\.w3\.org/|127\.0\.0\.1|localhost)[\w[]   # a full address
      | (?:src|href|action)\s*=\s*["']?//                                   # the same without its scheme
      | url\(\s*["']?//""",
    re.VERBOSE | re.IGNORECASE,
)


@pytest.mark.parametrize(
    "path", own_files(".html", ".js", ".css", ".svg"), ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_page_file_names_no_outside_address(path: Path) -> None:
    assert [m.group() for m in OUTSIDE.finditer(path.read_text(encoding="utf-8"))] == []


class Inline(HTMLParser):
    """Collects what a strict content security policy would block."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._script = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name.lower(): value or "" for name, value in attrs}
        self._script = tag == "script" and given.get("type") != "application/json"  # data is not run
        if tag == "style":
            self.found.append("<style>")
        self.found += [f"<{tag} {name}>" for name in given if name == "style" or re.match(r"on|hx-on", name)]
        self.found += [f"<{tag} {name}={value}>" for name, value in given.items() if "javascript:" in value.lower()]

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_data(self, data: str) -> None:
        if self._script and data.strip():
            self.found.append("<script> with a body")


@pytest.mark.parametrize("path", own_files(".html"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_template_has_nothing_inline(path: Path) -> None:
    parser = Inline()
    parser.feed(path.read_text(encoding="utf-8"))
    assert parser.found == []


IMPORT = re.compile(r"""^\s*(?:import\b|export\b[^;"'`(]*?\bfrom\b)[^;"'`(]*?["']([^"']+)["']""", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
DYNAMIC = re.compile(r"""\bawait import\("([^"]+)"\)""")
UNSAFE = re.compile(r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|cssText)")


@pytest.mark.parametrize("path", own_files(".js"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_script_is_a_module_with_named_exports_and_relative_static_imports(path: Path) -> None:
    source = COMMENT.sub("", path.read_text(encoding="utf-8"))
    dynamic = DYNAMIC.findall(source) if path.name == "later.js" else []
    for name in IMPORT.findall(source) + dynamic:
        assert name.startswith("./") or name.startswith("../"), name
        assert (path.parent / name).is_file(), name
    assert not re.search(r"^\s*export\s+default\b", source, re.MULTILINE)
    assert len(re.findall(r"\bimport\s*\(", source)) == len(dynamic)


@pytest.mark.parametrize("path", own_files(".js"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_script_is_written_so_that_it_can_be_joined(path: Path) -> None:
    source = COMMENT.sub("", path.read_text(encoding="utf-8"))
    assert len(joined.IMPORT.findall(source)) == len(re.findall(r"^import\b", source, re.MULTILINE))
    assert len(joined.EXPORT.findall(source)) == len(re.findall(r"^export\b", source, re.MULTILINE))
    assert [line for line in source.splitlines() if line.count("`") % 2] == []
    texts = re.findall(r'"[^"\n]*"|`[^`\n]*`', path.read_text(encoding="utf-8"))
    assert [text for text in texts if "/** @" in text] == []


def test_every_style_sheet_is_in_a_page() -> None:
    """In the one of all pages, or linked by a template."""
    linked = "".join(path.read_text(encoding="utf-8") for path in own_files(".html"))
    joined_sheets = (ROOT / "static/css" / joined.SHEET).read_text(encoding="utf-8")
    sheets = [path.name for path in own_files(".css") if path.name != joined.SHEET]
    assert [name for name in sheets if f'@import "{name}";' not in joined_sheets and f"/{name}" not in linked] == []


@pytest.mark.parametrize("path", own_files(".js"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_script_never_turns_text_into_markup_or_code(path: Path) -> None:
    assert UNSAFE.findall(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", own_files(".html"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_template_never_switches_escaping_off(path: Path) -> None:
    assert not re.search(r"\|\s*safe\b|autoescape\s+false", path.read_text(encoding="utf-8"))


# -- how `make test` finds its tests -----------------------------------------------------------------------------


def test_every_browser_test_is_marked_as_one() -> None:
    """Playwright leaves an event loop running in its process: other tests must not come into it."""
    files = (ROOT / "tests" / "browser").glob("test_*.py")
    mark = re.compile(r"^pytestmark = pytest\.mark\.browser$", re.MULTILINE)
    assert [path.name for path in files if not mark.search(path.read_text(encoding="utf-8"))] == []


def test_browser_tests_lie_in_the_folder_that_make_test_looks_for_them_in() -> None:
    folder = re.search(r"^BROWSER_TESTS = \$\(or \$\(ARGS\),(\S+)\)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert folder
    marked = re.compile(r"\bmark\.(?:browser|alone)\b")
    found = [path for path in modules("tests") if marked.search(path.read_text(encoding="utf-8"))]
    assert [path for path in found if ROOT / folder[1] not in path.parents] == []


# -- the scripts' types ------------------------------------------------------------------------------------------


def test_every_script_is_in_the_folder_whose_types_are_checked() -> None:
    checked = re.search(r"^\t\$\(CHECK_TYPES\) (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert checked
    assert [path for path in own_files(".js") if ROOT / checked[1] not in path.parents] == []


@pytest.mark.parametrize("path", own_files(".js"), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_script_is_left_out_of_the_check_of_types(path: Path) -> None:
    assert not re.search(r"@ts-(?:nocheck|ignore|expect-error)", path.read_text(encoding="utf-8"))


# -- vendored files ----------------------------------------------------------------------------------------------


def check_vendored(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / ".ci" / "vendored.py", folder]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_vendored_files_are_those_recorded() -> None:
    assert check_vendored(ROOT / "static" / "vendor").returncode == 0


def test_a_changed_and_an_unrecorded_vendored_file_are_named(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "static" / "vendor", tmp_path / "vendor")
    name = next(iter(json.loads((folder / "VENDOR.json").read_text(encoding="utf-8"))))
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    (folder / "stray.js").write_text("", encoding="utf-8")
    done = check_vendored(folder)
    assert done.returncode == 1
    assert f"{name} has sha256" in done.stderr
    assert "stray.js is not recorded" in done.stderr


# -- what is committed and shipped -------------------------------------------------------------------------------


def tracked() -> Iterator[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout: nothing says which files are committed")
    return (ROOT / name for name in done.stdout.split("\0") if name)


def test_no_committed_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    here = [re.escape(str(p)) for p in (ROOT, Path.home()) if len(p.parts) > 2]
    machine = re.compile("|".join([*here, r"(?<![\w.])/(?:home|Users|root)/\w"]).encode())
    own = Path(__file__).resolve()
    assert [p.name for p in tracked() if p.is_file() and p != own and machine.search(p.read_bytes())] == []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the committed tree's shipped folders."""
    source = tmp_path_factory.mktemp("source")
    for name in SHIPPED:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", out, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("*.whl"))


def test_a_wheel_carries_every_module_template_and_static_file(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    ours = [p for name in SHIPPED for p in (ROOT / name).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    names = sorted(p.relative_to(ROOT).as_posix() for p in ours)
    assert [n for n in names if re.sub("^(static|templates)/", r"app/\1/", n) not in shipped] == []
    assert not [n for n in shipped if n.split("/")[0] not in ("app", "engine") and ".dist-info" not in n]


def test_an_installed_wheel_finds_its_static_files_and_templates(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel]
    subprocess.run(command, check=True, capture_output=True)
    code = "from app import assets; print(assets.find('static'), assets.find('templates'), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], cwd=site, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str(site / "app" / "static"), str(site / "app" / "templates")]


# -- README ------------------------------------------------------------------------------------------------------


def test_the_readme_names_only_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:app|engine|static|templates|tests|\.ci)/[\w./-]+)`", text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_the_readme_documents_every_flag_of_serve() -> None:
    command = [sys.executable, "-m", "app", "serve", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]+", done.stdout)) - {"--help"}
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("--[no-]", "--no-")
    documented = set(re.findall(r"--[a-z][\w-]+", text))
    documented |= {"--" + flag.removeprefix("--no-") for flag in documented if flag.startswith("--no-")}
    assert sorted(flags - documented) == []
