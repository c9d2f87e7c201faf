"""Where the page's files are: `static/` and `templates/`.

A checkout (and an editable install) keeps both folders beside `app/`; an installed wheel carries them inside it,
so that nothing as generic as `static` lands at the top of site-packages. The inner folder wins where both exist.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def find(name: str) -> Path:
    """The folder `name` ("static" or "templates"). Raises FileNotFoundError that says where it was looked for."""
    candidates = (_PACKAGE / name, _PACKAGE.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"The folder {name!r} is missing; looked in {candidates[0]} and {candidates[1]}.")
