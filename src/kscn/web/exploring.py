"""The page of `kscn explore` and what its script asks for, for whoever knows the token."""

import base64
import hashlib
import hmac
import json
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.middleware.trustedhost import TrustedHostMiddleware

from kscn.web.explorer import Explorer
from kscn.web.requests import RefusalError, install_refusals, read_body, response_of

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


def _same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())


def _let_in(request: Request, token: str) -> Response | None:
    """Refuse other pages and wrong tokens; a right token in the address becomes a cookie.

    The page is bound to this machine, but other programs and other web pages are on it too: what
    changes something must come from this page.
    """
    host, page = request.headers["host"], page_path(token)
    if request.headers.get("origin", f"http://{host}") != f"http://{host}":
        raise RefusalError(403, "another page may not ask for this.")
    name, value = cookie_for(host, token)
    given = request.query_params.get("token")
    if not (_same(request.cookies.get(name, ""), value) if given is None else _same(given, token)):
        raise RefusalError(
            401, "the token is missing or wrong; open the address that kscn explore printed."
        )
    if given is None or request.url.path != page:
        return None
    # The address without the token: it stays out of the history and of screenshots.
    answer = RedirectResponse(page, 303)
    answer.set_cookie(name, value, path=page, httponly=True, samesite="lax")
    return answer


def explorer_app(
    explorer: Explorer, token: str, *, most_bytes: int = 2 * 2**20, seconds: float = 30.0
) -> FastAPI:
    """The page as an ASGI application; its functions run in threads.

    An edit may have `most_bytes`, more than anybody selects, and take `seconds` to arrive.
    """
    app = FastAPI(title="kscn explore", docs_url=None, redoc_url=None, openapi_url=None)
    install_refusals(app)

    @app.middleware("http")
    async def guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        try:
            answer = _let_in(request, token) or await call_next(request)
        except RefusalError as refusal:
            answer = response_of(refusal)
        answer.headers.update(_HEADERS)
        return answer

    # Names that were pointed at this machine from elsewhere (DNS rebinding) are refused first.
    hosts = ["127.0.0.1", "localhost"]
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    page = APIRouter()
    own = files("kscn.web") / "templates"
    html, css, js = (
        (own / f"explore.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")
    )
    css = (files("kscn.report") / "templates" / "report.css").read_text(encoding="utf-8") + css
    page.get("/")(lambda: HTMLResponse(html))
    page.get("/explore.css")(lambda: Response(css, media_type="text/css"))
    page.get("/explore.js")(lambda: Response(js, media_type="text/javascript"))
    page.get("/labels.csv")(lambda: _download(explorer, "csv", "text/csv"))
    page.get("/labels.parquet")(lambda: _download(explorer, "parquet", "application/octet-stream"))
    page.get("/api/state")(explorer.state)
    page.get("/api/members")(explorer.members)
    page.get("/api/samples/{index}")(explorer.sample)

    @page.post("/api/edits")
    async def edit(request: Request) -> dict[str, Any]:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise RefusalError(415, "an edit must be sent as application/json.")
        body = await read_body(request, most_bytes, seconds)
        return await run_in_threadpool(_edited, explorer, body)

    app.include_router(page, prefix=page_path(token)[:-1])
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


def _download(explorer: Explorer, kind: str, media_type: str) -> Response:
    """The labels as a file of that kind."""
    headers = {"Content-Disposition": f'attachment; filename="labels.{kind}"'}
    return Response(explorer.export(kind), media_type=media_type, headers=headers)
