"""The service of `kscn serve`: POST /predict, GET /health, /metrics and /openapi.json."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kscn import __version__
from kscn.web import refusals
from kscn.web.batching import MicroBatcher
from kscn.web.bodies import decode, parts_of
from kscn.web.counters import Counters
from kscn.web.limits import RateLimit, read_body, same
from kscn.web.predicting import Predictor

MEGABYTE = 2**20
_PATHS = ("/predict", "/health", "/metrics", "/openapi.json")
# Bodies up to this size are read where they arrive; megabytes of JSON, which would keep everybody
# else waiting, in a thread.
_AT_ONCE = 32 * 1024
# Open without a token: whether the service is up, and how to talk to it.
_OPEN = ("/health", "/openapi.json")


class Prediction(BaseModel):
    """What the model says about one sample."""

    label: int = Field(description="Number of the nearest subspace.")
    probability: float = Field(description="Posterior of that cluster, 0 to 1.")
    residual: float = Field(description="Squared distance to that subspace.")


class Predictions(BaseModel):
    """One prediction per sample, in the order they were sent."""

    predictions: list[Prediction]


class Health(BaseModel):
    """That the service is up, and what it serves."""

    status: str
    model: str
    clusters: int
    shape: list[int]


class Sentence(BaseModel):
    """Why a request was refused."""

    error: str


class Guard:
    """Around everything: counts, limits the rate of each client, and asks for the token."""

    def __init__(self, app: ASGIApp, token: str | None, rate: float, counters: Counters) -> None:
        self._app = app
        self._token = token
        self._limit = RateLimit(rate)
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = scope["path"] if scope["path"] in _PATHS else "other"
        try:
            try:
                self._check(Request(scope), path)
            except refusals.RefusalError as refusal:
                await refusal.response()(scope, receive, note)
            else:
                await self._app(scope, receive, note)
        finally:
            self._counters.request(path, status, time.perf_counter() - began)

    def _check(self, request: Request, path: str) -> None:
        if path == "/health":
            return
        # Before the token, so that nobody can try many of them.
        self._limit.check(request.client.host if request.client else "")
        if self._token is None or path in _OPEN:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not same(given.strip(), self._token):
            raise refusals.RefusalError(
                401,
                "the token is missing or wrong; send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )


def prediction_app(
    predictor: Predictor,
    *,
    token: str | None = None,
    rate: float = 0.0,
    most_bytes: int = 16 * MEGABYTE,
    wait: float = 0.003,
) -> FastAPI:
    """The service as an ASGI application.

    Parameters
    ----------
    predictor : Predictor
        What answers.
    token : str, optional
        Every request but those for /health and /openapi.json must then carry it, as
        `Authorization: Bearer TOKEN`.
    rate : float
        Requests per second that a client may send; 0 for no limit.
    most_bytes : int
        Of the body of a request.
    wait : float
        Seconds that a request may wait for others to be computed with.
    """
    counters = Counters()
    batcher = MicroBatcher(predictor, wait=wait, on_batch=counters.batch)
    app = FastAPI(
        title="kscn",
        version=__version__,
        description="Assigns samples to the subspaces that a run found.",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    refusals.install(app)
    app.add_middleware(Guard, token=token, rate=rate, counters=counters)

    @app.post(
        "/predict",
        response_model=Predictions,
        summary="Label, probability and residual of every sample.",
        responses=_refusals(400, 401, 408, 413, 415, 422, 429, 503),
        openapi_extra={"requestBody": _request_body(predictor.shape)},
    )
    async def predict(request: Request) -> JSONResponse:
        body = await read_body(request, most_bytes)
        kind, parts = await parts_of(body, request.headers.get("content-type", ""))
        if len(body) > _AT_ONCE:
            samples = await asyncio.to_thread(decode, kind, parts, predictor.shape, predictor.white)
        else:
            samples = decode(kind, parts, predictor.shape, predictor.white)
        columns = await batcher.submit(samples)
        names = ("label", "probability", "residual")
        rows = zip(*(column.tolist() for column in columns), strict=True)
        made = [dict(zip(names, row, strict=True)) for row in rows]
        return JSONResponse({"predictions": made})

    @app.get("/health", response_model=Health, summary="Whether the service is up.")
    async def health() -> JSONResponse:
        about = {"model": predictor.kind, "clusters": predictor.n_clusters}
        return JSONResponse({"status": "ok", **about, "shape": list(predictor.shape)})

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        summary="Counts and times, for Prometheus.",
        responses=_refusals(401, 429),
    )
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(counters.text(), media_type="text/plain; version=0.0.4")

    return app


_WHY = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The content type is not known.",
    422: "The samples are not of the shape or kind that the model takes.",
    429: "Too many requests of this client.",
    503: "Too many requests are waiting.",
}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Sentence, "description": _WHY[status]} for status in statuses}


def _request_body(shape: tuple[int, ...]) -> dict[str, Any]:
    """What /predict takes, for the description in OpenAPI."""
    sample: dict[str, Any] = {"type": "number"}
    for length in reversed(shape):
        sample = {"type": "array", "items": sample, "minItems": length, "maxItems": length}
    samples = {"type": "array", "items": sample, "minItems": 1}
    file = {"type": "string", "format": "binary"}
    form = {
        "type": "object",
        "properties": {"files": {"type": "array", "items": file, "minItems": 1}},
        "required": ["files"],
    }
    wrapped = {
        "type": "object",
        "properties": {"samples": samples},
        "required": ["samples"],
        "additionalProperties": False,
    }
    kinds: dict[str, Any] = {
        "application/json": {"schema": {"anyOf": [wrapped, samples]}},
        "application/octet-stream": {"schema": {**file, "description": "a .npy file"}},
    }
    if len(shape) > 1:
        kinds |= {kind: {"schema": file} for kind in ("image/png", "image/jpeg")}
        kinds["multipart/form-data"] = {"schema": form}
    return {"required": True, "content": kinds}
