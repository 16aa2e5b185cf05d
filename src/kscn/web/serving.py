"""The service of `kscn serve`: POST /predict, GET /health and /openapi.json."""

import asyncio
import hmac
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from numpy.typing import NDArray
from pydantic import BaseModel
from starlette.middleware.trustedhost import TrustedHostMiddleware

from kscn import __version__
from kscn.web.batching import MicroBatcher
from kscn.web.bodies import FORM, IMAGES, JSON, NPY, read_parts
from kscn.web.predicting import Predictor
from kscn.web.requests import RefusalError, install_refusals

MEGABYTE = 2**20
# The names of this machine by which it is asked; an address of IPv6 has brackets in a request.
LOCAL = ("127.0.0.1", "localhost", "::1")
_Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))]


class Prediction(BaseModel):
    """The nearest subspace, the probability of that cluster, and the squared distance to it."""

    label: int
    probability: float
    residual: float


class Predictions(BaseModel):
    """One prediction per sample, in the order they were sent."""

    predictions: list[Prediction]


def prediction_app(
    predictor: Predictor,
    *,
    token: str | None = None,
    most_bytes: int = 16 * MEGABYTE,
    seconds: float = 30.0,
    wait: float = 0.003,
) -> FastAPI:
    """The service as an ASGI application.

    With a `token`, requests for predictions must carry it, as `Authorization: Bearer TOKEN`.
    Without one, requests must name this machine as `LOCAL` does: web pages can point other names at
    it (DNS rebinding), and would read what is served here as if it were their own. A body may have
    `most_bytes` and take `seconds` to arrive; a request waits `wait` seconds for others to be
    computed with.
    """
    batcher, decoding = MicroBatcher(predictor, wait=wait), asyncio.Lock()
    app = FastAPI(
        title="kscn",
        version=__version__,
        description="Assigns samples to the subspaces that a run found.",
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
    )
    install_refusals(app)
    if token is None:
        hosts = [f"[{host}]" if ":" in host else host for host in LOCAL]
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)

    async def check_token(credentials: _Credentials) -> None:
        given = "" if credentials is None else credentials.credentials
        if not hmac.compare_digest(given.encode(errors="replace"), str(token).encode()):
            raise RefusalError(
                401, "the token is missing or wrong; send the header Authorization: Bearer TOKEN."
            )

    @app.post(
        "/predict",
        response_model=Predictions,
        responses={status: {} for status in (400, 401, 408, 413, 415, 422, 503)},
        openapi_extra={"requestBody": _request_body(predictor.shape)},
        dependencies=[Depends(check_token)] if token is not None else [],
    )
    async def predict(request: Request) -> JSONResponse:
        """Label, probability and residual of every sample in the body."""
        kind, parts = await read_parts(request, most_bytes, seconds)
        async with decoding:  # one at a time: two would take twice the memory and not be faster
            samples = await asyncio.to_thread(predictor.read, kind, parts)
        columns = await batcher.submit(samples)
        return await asyncio.to_thread(_answer, columns)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        """That the service is up, and what it serves."""
        about = {"model": predictor.kind, "clusters": predictor.n_clusters}
        return {"status": "ok", **about, "shape": predictor.shape}

    return app


def _answer(columns: tuple[NDArray, ...]) -> JSONResponse:
    rows = zip(*(column.tolist() for column in columns), strict=True)
    names = Prediction.model_fields
    return JSONResponse({"predictions": [dict(zip(names, row, strict=True)) for row in rows]})


def _request_body(shape: tuple[int, ...]) -> dict[str, Any]:
    """What /predict takes, for the description in OpenAPI."""
    sample: dict[str, Any] = {"type": "number"}
    for length in reversed(shape):
        sample = {"type": "array", "items": sample, "minItems": length, "maxItems": length}
    samples = {"type": "array", "items": sample, "minItems": 1}
    file = {"type": "string", "format": "binary"}
    files = {"type": "array", "items": file, "minItems": 1}
    schemas: dict[str, dict[str, Any]] = {
        JSON: {"type": "object", "properties": {"samples": samples}, "required": ["samples"]},
        NPY: file,
        FORM: {"type": "object", "properties": {"files": files}, "required": ["files"]},
        **dict.fromkeys(IMAGES, file),
    }
    return {"required": True, "content": {kind: {"schema": schemas[kind]} for kind in schemas}}
