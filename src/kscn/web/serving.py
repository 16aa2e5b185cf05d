"""The service of `kscn serve`: POST /predict, GET /health, /metrics and /openapi.json."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from numpy.typing import NDArray
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kscn import __version__
from kscn.web.batching import MicroBatcher
from kscn.web.bodies import IMAGES, parts_of
from kscn.web.predicting import Predictor
from kscn.web.requests import (
    Guard,
    RateLimit,
    RefusalError,
    Room,
    install_refusals,
    is_address,
    named_host,
    read_body,
    same,
)

MEGABYTE = 2**20
# Rows of an answer that are written while everybody else waits.
_ROWS_AT_ONCE = 1000
_PATHS = ("/predict", "/health", "/metrics", "/openapi.json")
# Bytes of all bodies that arrive or are decoded at a time, if that is not less than four of them.
_TOGETHER = 256 * MEGABYTE
# Open without a token: whether the service is up, and how to talk to it.
_OPEN = ("/health", "/openapi.json")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


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

    status: str = "ok"
    model: str
    clusters: int
    shape: list[int]


class Sentence(BaseModel):
    """Why a request was refused."""

    error: str


class Counters:
    """Requests by path and status, their times, and the batches they were computed in."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series for each of these
        self.registry = own = CollectorRegistry()
        self.requests = Counter(
            "kscn_requests", "Requests answered.", ("path", "status"), registry=own
        )
        self.seconds = Histogram(
            "kscn_request_seconds",
            "Time from the request to its answer.",
            buckets=_SECONDS,
            registry=own,
        )
        self._batches = Counter("kscn_batches", "Batches computed.", registry=own)
        self._batched = Counter("kscn_batched_requests", "Requests in them.", registry=own)
        self._samples = Counter("kscn_samples", "Samples in them.", registry=own)

    def batch(self, requests: int, samples: int) -> None:
        """Count a batch that goes to the model."""
        self._batches.inc()
        self._batched.inc(requests)
        self._samples.inc(samples)


class ServiceGuard(Guard):
    """Counts, limits the rate of each client, and asks for the token.

    Without a token, only requests that name this host by its address or by `host` are answered.
    """

    def __init__(
        self, app: ASGIApp, token: str | None, host: str, rate: float, counters: Counters
    ) -> None:
        super().__init__(app)
        self._token = token
        self._hosts = ("localhost", host.lower())
        self._limit = RateLimit(rate)
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take a request, and count it."""
        began, status = time.perf_counter(), 500

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await super().__call__(scope, receive, note)
        finally:
            if scope["type"] == "http":
                path = scope["path"] if scope["path"] in _PATHS else "other"
                self._counters.requests.labels(path, str(status)).inc()
                self._counters.seconds.observe(time.perf_counter() - began)

    def check(self, request: Request) -> None:
        """Refuse other hosts, too many requests, and wrong tokens."""
        host, path = named_host(request), request.scope["path"]
        if self._token is None and host not in self._hosts and not is_address(host):
            raise RefusalError(
                421,
                f"this service has no token and does not answer for {host[:80]}; ask for it by "
                "its address, such as 127.0.0.1, or start it with --token.",
            )
        if path == "/health":
            return
        # Before the token, so that nobody can try many of them.
        self._limit.check(request.client.host if request.client else "")
        if self._token is None or path in _OPEN:
            return
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not same(given.strip(), self._token):
            raise RefusalError(
                401,
                "the token is missing or wrong; send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )


class Service:
    """What is behind the addresses; see `prediction_app`."""

    def __init__(self, predictor: Predictor, most_bytes: int, wait: float) -> None:
        self.counters = Counters()
        self._predictor, self._most_bytes = predictor, most_bytes
        self._batcher = MicroBatcher(predictor, wait=wait, on_batch=self.counters.batch)
        self._room, self._decoding = Room(max(_TOGETHER, 4 * most_bytes)), asyncio.Lock()

    async def predict(self, request: Request) -> JSONResponse:
        """Label, probability and residual of every sample in the body."""
        read, kind = self._predictor.read, request.headers.get("content-type", "")
        with self._room.share() as take:
            body = await read_body(request, self._most_bytes, take)
            if len(body) <= self._predictor.at_once:
                samples = read(*await parts_of(body, kind))
            else:
                # In a thread, as megabytes of JSON would keep everybody else waiting; and one at
                # a time, as two would take twice the memory and not be faster.
                async with self._decoding:
                    samples = await asyncio.to_thread(read, *await parts_of(body, kind))
            del body
        columns = await self._batcher.submit(samples)
        if len(samples) > _ROWS_AT_ONCE:
            return await asyncio.to_thread(_answer, columns)
        return _answer(columns)

    async def health(self) -> Health:
        """That the service is up, and what it serves."""
        served = self._predictor
        return Health(model=served.kind, clusters=served.n_clusters, shape=list(served.shape))

    async def metrics(self) -> PlainTextResponse:
        """All counts."""
        text = generate_latest(self.counters.registry).decode()
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


def prediction_app(
    predictor: Predictor,
    *,
    token: str | None = None,
    host: str = "localhost",
    rate: float = 0.0,
    most_bytes: int = 16 * MEGABYTE,
    wait: float = 0.003,
) -> FastAPI:
    """The service as an ASGI application.

    With a `token`, every request but those for /health and /openapi.json must carry it, as
    `Authorization: Bearer TOKEN`. Without one, requests must name the service by an address, as
    localhost or as `host`: web pages can point other names at it. A client may send `rate` requests
    per second (0 for no limit) with bodies of `most_bytes`, and a request waits `wait` seconds for
    others to be computed with.
    """
    service = Service(predictor, most_bytes, wait)
    app = FastAPI(
        title="kscn",
        version=__version__,
        description="Assigns samples to the subspaces that a run found.",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    install_refusals(app)
    app.add_middleware(ServiceGuard, token=token, host=host, rate=rate, counters=service.counters)
    app.post(
        "/predict",
        response_model=Predictions,
        summary="Label, probability and residual of every sample.",
        responses=_refusals(400, 401, 408, 413, 415, 421, 422, 429, 503),
        openapi_extra={"requestBody": _request_body(predictor.shape)},
    )(service.predict)
    app.get("/health", summary="Whether the service is up.", responses=_refusals(400, 421))(
        service.health
    )
    app.get(
        "/metrics",
        response_class=PlainTextResponse,
        summary="Counts and times, for Prometheus.",
        responses=_refusals(400, 401, 421, 429),
    )(service.metrics)
    return app


def _answer(columns: tuple[NDArray, ...]) -> JSONResponse:
    names = ("label", "probability", "residual")
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return JSONResponse({"predictions": [dict(zip(names, row, strict=True)) for row in rows]})


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Sentence} for status in statuses}


def _request_body(shape: tuple[int, ...]) -> dict[str, Any]:
    """What /predict takes, for the description in OpenAPI."""
    sample: dict[str, Any] = {"type": "number"}
    for length in reversed(shape):
        sample = {"type": "array", "items": sample, "minItems": length, "maxItems": length}
    samples = {"type": "array", "items": sample, "minItems": 1}
    file = {"type": "string", "format": "binary"}

    def only(name: str, items: dict[str, Any]) -> dict[str, Any]:
        return {"type": "object", "properties": {name: items}, "required": [name]}

    wrapped = only("samples", samples) | {"additionalProperties": False}
    kinds: dict[str, Any] = {
        "application/json": {"schema": {"anyOf": [wrapped, samples]}},
        "application/octet-stream": {"schema": {**file, "description": "a .npy file"}},
    }
    if len(shape) > 1:
        files = {"type": "array", "items": file, "minItems": 1}
        kinds |= {kind: {"schema": file} for kind in IMAGES}
        kinds["multipart/form-data"] = {"schema": only("files", files)}
    return {"required": True, "content": kinds}
