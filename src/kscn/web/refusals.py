"""Requests that are turned down: a status of 4xx (or 503 when busy) and one sentence as JSON."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kscn.errors import KscnError

if TYPE_CHECKING:
    from collections.abc import Mapping


class RefusalError(KscnError):
    """A request that is not answered, with the status that says why.

    Parameters
    ----------
    status : int
        Of HTTP.
    sentence : str
        What was given, what was expected, what to do.
    headers : mapping, optional
        Of the answer, such as Retry-After.
    """

    def __init__(
        self, status: int, sentence: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """The answer."""
        return refused(self.status, str(self), self.headers)


def refused(status: int, sentence: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An answer that says no."""
    return JSONResponse({"error": sentence}, status, dict(headers or {}))


def install(app: FastAPI) -> None:
    """Make every fault of a request one sentence."""

    async def on_refusal(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RefusalError)
        return error.response()

    async def on_kscn_error(_: Request, error: Exception) -> JSONResponse:
        return refused(422, str(error))

    async def on_http(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return refused(error.status_code, f"{error.detail}.", error.headers)

    async def on_arguments(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return refused(422, f"{where} cannot be used: {first['msg']}.")

    async def on_bug(_: Request, error: Exception) -> JSONResponse:
        return refused(500, f"{HTTPStatus(500).phrase}: this is a fault in kscn.")

    app.add_exception_handler(RefusalError, on_refusal)
    app.add_exception_handler(KscnError, on_kscn_error)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_arguments)
    app.add_exception_handler(Exception, on_bug)
