"""Views of chosen panels: which names there are, and who may put one into a frame."""

from __future__ import annotations

import httpx
import pytest

from app.embed import PICTURES
from tests.app.processes import Served

HTML = {"accept": "text/html"}


def page(shared: Served, query: str, **headers: str) -> httpx.Response:
    return shared.client.get(f"/{query}", headers=HTML | headers)


@pytest.mark.parametrize("query", ["", "?present=1", "?panel=gate", "?panel=kv,prompts", "?panel=knobs,kv", "?panel="])
def test_what_has_controls_in_it_is_framed_by_nobody(shared: Served, query: str) -> None:
    headers = page(shared, query).headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("query", ["?panel=kv", "?panel=slots,kv&present=1", "?panel=%20KV,,kv"])
def test_pictures_alone_may_be_framed_and_are_as_strict_in_all_else(shared: Served, query: str) -> None:
    headers = page(shared, query).headers
    policy = headers["content-security-policy"]
    assert "frame-ancestors" not in policy
    assert "x-frame-options" not in headers
    assert "form-action 'none'" in policy
    assert "script-src 'self'" in policy
    assert headers["x-content-type-options"] == "nosniff"


def test_a_frame_on_another_site_gets_no_cookie(shared: Served) -> None:
    assert "set-cookie" not in page(shared, "?panel=kv", **{"sec-fetch-site": "cross-site"}).headers


def test_a_panel_that_does_not_exist_is_404_and_all_names_are_listed(shared: Served) -> None:
    response = page(shared, "?panel=kv,roof%3Cb%3E")
    assert response.status_code == 404
    assert "There is no panel &#39;roof&lt;b&gt;&#39;; the panels are prompts, slots, timeline, kv," in response.text
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]


def test_every_picture_is_a_panel_of_the_page(shared: Served) -> None:
    for name in PICTURES:
        assert page(shared, f"?panel={name}").status_code == 200
