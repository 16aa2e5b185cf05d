"""What a client gets whose request cannot be answered: a status, and one sentence as JSON."""

import asyncio

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from kscn.errors import KscnError


class RefusalError(KscnError):
    """A request that is not answered: the HTTP status that says why, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def response_of(error: Exception) -> JSONResponse:
    """The answer to a request that met an error."""
    status, sentence, headers = 500, "Internal Server Error: this is a fault in kscn.", None
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        status, sentence = 422, f"{where} cannot be used: {first['msg']}."
    elif isinstance(error, HTTPException):
        status, sentence, headers = error.status_code, f"{error.detail}.", error.headers
    elif isinstance(error, KscnError):
        status, sentence = getattr(error, "status", 422), str(error)
    return JSONResponse({"error": sentence}, status, headers)


def install_refusals(app: FastAPI) -> None:
    """Make every fault of a request one sentence."""

    async def respond(_: Request, error: Exception) -> JSONResponse:
        return response_of(error)

    for kind in (KscnError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, respond)


async def read_body(request: Request, most_bytes: int, seconds: float) -> bytes:
    """The body of a request, or a refusal once it is larger than that or takes longer."""
    declared, body = request.headers.get("content-length", ""), bytearray()
    too_large = RefusalError(413, f"the body is larger than {most_bytes:,} bytes; send less.")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > most_bytes):
        raise too_large
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.stream():
                body += piece
                if len(body) > most_bytes:
                    raise too_large
    except TimeoutError:
        raise RefusalError(408, f"the body took more than {seconds:g} s; send it faster.") from None
    except ClientDisconnect:
        raise RefusalError(400, "the connection ended before the body did.") from None
    return bytes(body)
