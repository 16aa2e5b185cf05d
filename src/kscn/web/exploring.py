"""The page of `kscn explore` and what its script asks for, for whoever knows the token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kscn.web.explorer import LARGEST_PAGE, Explorer
from kscn.web.requests import (
    Guard,
    RefusalError,
    install_refusals,
    named_host,
    read_body,
    same,
)

# In one edit: more numbers than anybody selects.
_MOST_BYTES = 2 * 2**20
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def page_path(token: str) -> str:
    """Where the page is.

    Browsers send a cookie to every port of its host, so other programs on this machine would see
    it; but only to the path that it is for, and this one they cannot know.
    """
    return f"/{_derived(token, 'page')}/"


def cookie_for(host: str, token: str) -> tuple[str, str]:
    """Name and value of the cookie that lets in at `host`, with its port, and nowhere else."""
    host = host.lower()
    return f"kscn-{host.replace(':', '-')}", _derived(token, f"cookie {host}")


def _derived(token: str, use: str) -> str:
    digest = hmac.digest(token.encode(), use.encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest[:24]).decode()


class CookieGuard(Guard):
    """Lets in who carries the token in the address, or the cookie that this sets.

    The page is bound to this machine, but other programs and other web pages are on it too: a
    request must name this host (against names that were pointed at it), and one that changes
    something must come from this page.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        super().__init__(app)
        self._token = token
        self._page = page_path(token)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, below the path of the page or not."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope.get("path", "").startswith(self._page):
            scope = {**scope, "path": scope["path"][len(self._page) - 1 :]}
        await super().__call__(scope, receive, with_headers)

    def check(self, request: Request) -> Response | None:
        """Refuse other hosts, other pages and wrong tokens; a right token becomes a cookie."""
        if named_host(request) not in ("127.0.0.1", "localhost"):
            raise RefusalError(
                421, "this page answers on 127.0.0.1 only; open the address that was printed."
            )
        host = request.headers["host"]
        origin = request.headers.get("origin")
        if origin is not None and origin != f"http://{host}":
            raise RefusalError(403, "another page may not ask for this.")
        given = request.query_params.get("token")
        name, value = cookie_for(host, self._token)
        cookie = request.cookies.get(name, "")
        if not (same(cookie, value) if given is None else same(given, self._token)):
            raise RefusalError(
                401, "the token is missing or wrong; open the address that kscn explore printed."
            )
        if given is None or request.scope["path"] != "/":
            return None
        # The address without the token: it stays out of the history and of screenshots.
        answer = RedirectResponse(self._page, 303)
        answer.set_cookie(name, value, path=self._page, httponly=True, samesite="lax")
        return answer


def explorer_app(explorer: Explorer, token: str) -> FastAPI:
    """The page as an ASGI application; its functions run in threads."""
    app = FastAPI(title="kscn explore", docs_url=None, redoc_url=None, openapi_url=None)
    install_refusals(app)
    app.add_middleware(CookieGuard, token=token)
    own = files("kscn.web") / "templates"
    style = (files("kscn.report") / "templates" / "report.css").read_text(encoding="utf-8")
    html, css, js = (
        (own / f"explore.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")
    )

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(html)

    @app.get("/explore.css")
    def styles() -> Response:
        return Response(f"{style}\n{css}", media_type="text/css")

    @app.get("/explore.js")
    def script() -> Response:
        return Response(js, media_type="text/javascript")

    @app.get("/api/state")
    def state() -> dict[str, Any]:
        return explorer.state()

    @app.get("/api/members")
    def members(cluster: int, sort: str, page: int = 0, size: int = 60) -> dict[str, Any]:
        return explorer.page(cluster, sort, page, size)

    @app.get("/api/samples/{index}")
    def sample(index: int, sort: str = "index", size: int = 60) -> dict[str, Any]:
        return explorer.sample(index, sort, min(max(1, size), LARGEST_PAGE))

    @app.post("/api/edits")
    async def edit(request: Request) -> dict[str, Any]:
        body = await read_body(request, _MOST_BYTES)
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise RefusalError(415, "an edit must be sent as application/json.")
        return await run_in_threadpool(_edited, explorer, body)

    @app.get("/labels.csv")
    def labels_csv() -> StreamingResponse:
        return StreamingResponse(explorer.csv(), media_type="text/csv", headers=_file("labels.csv"))

    @app.get("/labels.parquet")
    def labels_parquet() -> Response:
        content = explorer.parquet()
        kind = "application/vnd.apache.parquet"
        return Response(content, media_type=kind, headers=_file("labels.parquet"))

    return app


def _edited(explorer: Explorer, body: bytes) -> dict[str, Any]:
    """Make an edit, which `Grouping` checks: so it does with those of a journal from elsewhere."""
    try:
        entry = json.loads(body)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        raise RefusalError(422, "an edit must be a JSON object.")
    if entry.get("edit") == "split":  # the page says how many parts, not which
        said = explorer.split(entry.get("cluster"), entry.get("parts", 2))
    else:
        said = explorer.edit(entry)
    return {"said": said, "state": explorer.state()}


def _file(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}
