"""Views of chosen panels alone, `/?panel=kv,slots`: for slides, which show them in a frame.

Who may frame them. A page with controls is never framed: a site that lays it invisibly under its own buttons would
have its visitors press ours (clickjacking). A view of pictures alone has nothing to press that moves the engine (nor
keys, see static/js/embed.js), the framing site can read none of it, and the cookie that owns requests is SameSite, so
it does not come along: a frame shows public facts, and no text. So pictures may be framed by anybody, slides in a file
included, and a view with any other panel in it by nobody.
"""

from __future__ import annotations

import re

from starlette.responses import Response

from app.problems import Problem
from app.security import FRAMED_CSP
from engine.errors import shown

PICTURES = frozenset({"slots", "timeline", "kv", "queue", "anatomy", "latency", "roofline", "memory", "self"})
_PANEL = re.compile(r'<section class="panel[^"]*" id="panel-([a-z_-]+)"')


def asked_panels(query: str | None) -> list[str]:
    """The names in `?panel=`; none for the whole page."""
    return list(dict.fromkeys(name for part in (query or "").split(",") if (name := part.strip().lower())))


def present_alone(names: list[str], page: Response) -> None:
    """Check the names against the rendered page, and let it be framed if it may be. Raises Problem."""
    known = _PANEL.findall(bytes(page.body).decode())
    for name in names:
        if name not in known:
            raise Problem(404, f"There is no panel {shown(name)}; the panels are {', '.join(known)}.", param="panel")
    if PICTURES.issuperset(names):
        page.headers["Content-Security-Policy"] = FRAMED_CSP
