"""Host, Origin, headers, limits and the owner's cookie, on HTTP and before a WebSocket is accepted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app.security import COOKIE, CSP, MAX_BODY_BYTES
from tests.app.fakes import FakeEngine, Running, running, until


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    """One for all: no test here changes it for the next."""
    with running() as server:
        yield server


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]", "localhost.evil"]
)
@pytest.mark.parametrize("path", ["/", "/api/state", "/healthz", "/static/icon.svg", "/nowhere"])
def test_a_foreign_host_is_refused_everywhere(client: httpx.Client, host: str, path: str) -> None:
    assert client.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:9999", "LOCALHOST", "[::1]:8000"])
def test_a_loopback_host_passes(client: httpx.Client, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "file://", "https://127.0.0.1"]
)
@pytest.mark.parametrize("path", ["/prompts", "/v1/completions", "/api/gate", "/api/engine"])
def test_a_post_from_another_origin_is_refused(client: httpx.Client, origin: str, path: str) -> None:
    assert client.post(path, headers={"Origin": origin}, json={}).status_code == 403


def test_a_delete_from_another_origin_is_refused(client: httpx.Client) -> None:
    assert client.delete("/api/requests/R1", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_post_without_origin_that_a_browser_calls_cross_site_is_refused(client: httpx.Client) -> None:
    assert client.post("/api/gate", headers={"Sec-Fetch-Site": "cross-site"}, json={}).status_code == 403


def test_a_post_from_our_own_origin_passes(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    response = client.post("/api/gate", headers={"Origin": server.url}, json={"action": "nonsense"})
    assert response.status_code == 400


@pytest.mark.parametrize("path", ["/ws", "/ws/engine"])
@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}], ids=str
)
def test_a_websocket_from_elsewhere_is_refused_before_it_is_accepted(
    server: Running, path: str, headers: dict[str, str]
) -> None:
    token = {"Authorization": f"Bearer {server.hub.settings.engine_token}"}
    if "Host" in headers:
        with httpx.Client() as client:
            upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
            key = {"Sec-WebSocket-Key": "MDEyMzQ1Njc4OWFiY2RlZg=="}
            assert client.get(server.url + path, headers={**upgrade, **key, **token, **headers}).status_code == 403
        return
    with pytest.raises(InvalidStatus) as refused, connect(server.ws + path, additional_headers={**token, **headers}):
        pass
    assert refused.value.response.status_code == 403


def test_a_websocket_from_our_own_page_is_accepted(server: Running) -> None:
    with connect(f"{server.ws}/ws", additional_headers={"Origin": server.url}) as socket:
        assert socket.recv(timeout=5)


@pytest.mark.parametrize(
    "header", [None, "Bearer wrong", "Bearer", "Basic abc", "Bearer \u00e9".encode("latin-1").decode("latin-1")]
)
def test_the_engines_socket_needs_its_token(server: Running, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"{server.ws}/ws/engine", additional_headers=headers),
    ):
        pass
    assert refused.value.response.status_code == 403
    assert not any(record.connected for record in server.hub.engines.values())


# -- headers and limits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/api/state", "/nowhere", "/static/icon.svg", "/static/nowhere", "/metrics"])
def test_every_response_carries_the_policy(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"] == CSP
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


def test_a_refusal_carries_the_policy_too(client: httpx.Client) -> None:
    assert client.get("/", headers={"Host": "evil.example"}).headers["content-security-policy"] == CSP


def test_an_unforeseen_fault_answers_with_our_headers_and_without_its_text(
    server: Running, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.hub, "summaries", lambda: 1 / 0)
    response = client.get("/readyz")
    assert response.status_code == 500
    assert response.headers["content-security-policy"] == CSP
    assert "division" not in response.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/gate", "/prompts"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_five_megabyte_body_is_413(client: httpx.Client, engine: FakeEngine, path: str, chunked: bool) -> None:
    body = b"a" * 5_000_000
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    response = client.post(path, content=iter([body]) if chunked else body, headers=headers)
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "body_too_large"


def test_a_body_at_the_limit_is_read(client: httpx.Client, engine: FakeEngine) -> None:
    response = client.post("/v1/completions", content=b" " * MAX_BODY_BYTES)
    assert response.status_code == 400


# -- the cookie ------------------------------------------------------------------------------------------------


def test_the_page_gives_a_cookie_that_scripts_and_other_sites_cannot_use(client: httpx.Client) -> None:
    morsel = SimpleCookie(client.get("/").headers["set-cookie"])[COOKIE]
    assert morsel["httponly"]
    assert morsel["samesite"] == "Strict"
    assert len(morsel.value) >= 32


def test_a_visitor_with_a_cookie_keeps_it(client: httpx.Client) -> None:
    client.get("/")
    assert "set-cookie" not in client.get("/").headers


def test_a_link_from_elsewhere_takes_nobodys_cookie_away(client: httpx.Client) -> None:
    assert "set-cookie" not in client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).headers


def test_the_api_hands_out_no_cookies(client: httpx.Client) -> None:
    assert "set-cookie" not in client.get("/api/state").headers


def test_the_owner_that_others_see_is_not_the_cookie(server: Running, engine: FakeEngine, client: httpx.Client) -> None:
    client.get("/")
    threading.Thread(target=client.post, args=("/prompts",), kwargs={"data": {"prompt": "x"}}, daemon=True).start()
    command = engine.command("submit")
    engine.arrived(command["request"], owner=command["owner"])
    entries = server.hub.ledger.entries
    until(lambda: entries[command["request"]].arrived)
    assert command["owner"]
    assert client.cookies[COOKIE] not in httpx.get(f"{server.url}/api/state").text
