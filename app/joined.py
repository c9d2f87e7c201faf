"""The page's scripts and styles in few files: a phone then asks for three things and not for a hundred.

Contract. `/joined/main.js` does what `static/js/main.js` does, with all that it imports: each module is a function that
is called once, when it is first needed, and returns its exports. A module that is imported dynamically, by a literal
path, is a file of its own beside it, with what only it needs. `/joined/page.css` is `static/css/page.css` with the
files that it imports. Comments and indentation are left out; a comment that ends a line may stay if it quotes. Nothing
is built beforehand: the files under `static/` are what is written, read and tested, and are joined anew when one of
them has changed.

It relies on the house's rules for scripts, which tests/test_house.py holds: imports and exports by name, each on a line
of its own, no cycles; a comment over several lines begins its line; no text says `/** @`; no template goes over several
lines.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

MAIN = "main.js"
SHEET = "page.css"
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css"}

IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export ((?:async )?(?:function\*?|const|class) (\w+))", re.MULTILINE)
LATER = re.compile(r'\bawait import\("([^"]+)"\)')
_SHEET_IMPORT = re.compile(r'^@import "([^"]+)";\n', re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?:(?!\*/).)*\*/|//[^\n]*)[ \t]*\n", re.MULTILINE | re.DOTALL)
_TYPE = re.compile(r"/\*\* @(?:(?!\*/)[^\n])*\*/ ?")
_ASIDE = re.compile(r"(?<=[;,{}]) (?://[^\n\"'`]*|/\*(?:(?!\*/)[^\n\"'`])*\*/)$", re.MULTILINE)
_BLANK = re.compile(r"\n\s*")  # empty lines, and indentation

_LOADER = """\
const makers = new Map();
const modules = new Map();
export function define(name, make) {
  if (!makers.has(name)) makers.set(name, make);
}
export function use(name) {
  if (!modules.has(name)) modules.set(name, makers.get(name)());
  return modules.get(name);
}
"""


class Joined:
    """The joined files of a `static/` folder, by their path below `/joined/`."""

    def __init__(self, static: Path) -> None:
        self._static = static
        self._stamp: dict[Path, int] = {}
        self._files: dict[str, str] = {}

    def files(self) -> dict[str, str]:
        stamp = {path: path.stat().st_mtime_ns for kind in ("js", "css") for path in (self._static / kind).rglob("*.*")}
        if stamp != self._stamp:
            self._files = {**join_scripts(self._static / "js"), SHEET: join_sheet(self._static / "css")}
            self._stamp = stamp
        return self._files

    async def serve(self, request: Request) -> Response:
        """GET /joined/{path}"""
        name: str = request.path_params["path"]
        text = self.files().get(name)
        if text is None:
            raise HTTPException(404)
        etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        known = [each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")]
        if etag in known:
            return Response(status_code=304, headers=headers)
        return Response(text, media_type=MEDIA_TYPES[Path(name).suffix], headers=headers)


def join_scripts(folder: Path) -> dict[str, str]:
    """The joined scripts: the main one, and one for each module that it, or a later one, imports dynamically."""
    sources = {path.relative_to(folder).as_posix(): _bare(path) for path in sorted(folder.rglob("*.js"))}
    first = _needed(sources, MAIN, frozenset())
    files = {MAIN: _LOADER + "".join(_defined(name, sources[name]) for name in first) + f'use("{MAIN}");\n'}
    waiting = list(first)
    while waiting:
        name = waiting.pop()
        for found in LATER.findall(sources[name]):
            entry = _beside(name, found)
            if entry not in files:
                needed = _needed(sources, entry, frozenset(first))
                files[entry] = _later(entry, needed, sources)
                waiting += needed
    return files


def join_sheet(folder: Path) -> str:
    """The style sheet with those that it imports, in their order."""
    text = _bare(folder / SHEET)
    return _SHEET_IMPORT.sub(lambda found: _bare(folder / found[1]), text)


def _bare(path: Path) -> str:
    """A file without comments that take whole lines, name a type or end a line, and without indentation."""
    text = path.read_text(encoding="utf-8")
    for comment in (_COMMENT, _TYPE, _ASIDE):
        text = comment.sub("", text)
    return _BLANK.sub("\n", text).lstrip()


def _beside(name: str, path: str) -> str:
    """What a relative path means in a module: "../format.js" in "panels/kv.js" is "format.js"."""
    here = name.split("/")[:-1]
    for part in path.split("/"):
        if part == "..":
            here.pop()
        elif part != ".":
            here.append(part)
    return "/".join(here)


def _needed(sources: dict[str, str], entry: str, had: frozenset[str]) -> list[str]:
    """A module and all that it imports statically, but for those that are there already."""
    needed = [entry]
    for name in needed:
        for _, path in IMPORT.findall(sources[name]):
            other = _beside(name, path)
            if other not in had and other not in needed:
                needed.append(other)
    return needed


def _defined(name: str, source: str) -> str:
    """A module as a function: its imports are uses of others, its exports what it returns."""
    exports = ", ".join(word for _, word in EXPORT.findall(source))
    used = IMPORT.sub(lambda found: f'const {{{_renamed(found[1])}}} = use("{_beside(name, found[2])}");\n', source)
    body = EXPORT.sub(lambda found: found[1], used)
    return f'define("{name}", () => {{\n{body}return {{ {exports} }};\n}});\n'


def _renamed(names: str) -> str:
    return names.replace(" as ", ": ")


def _later(entry: str, needed: list[str], sources: dict[str, str]) -> str:
    exports = ", ".join(word for _, word in EXPORT.findall(sources[entry]))
    parts = "".join(_defined(name, sources[name]) for name in needed)
    return f'import {{ define, use }} from "/joined/{MAIN}";\n{parts}export const {{ {exports} }} = use("{entry}");\n'
