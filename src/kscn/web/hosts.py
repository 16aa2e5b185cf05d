"""The host that a request names.

A web page elsewhere can point a name of its own at this machine (DNS rebinding) and then read what
is served here as if it were its own. Its requests name that host; it cannot make them name an
address.
"""

from __future__ import annotations

import ipaddress
import re

from fastapi import Request

from kscn.web.refusals import RefusalError

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.IGNORECASE)


def named_host(request: Request) -> str:
    """The host without its port, in lower case; a header that is none is refused."""
    found = _HOST.fullmatch(request.headers.get("host", ""))
    if found is None or (found[1] and not is_address(found[1])):
        raise RefusalError(
            400, "the header Host names no host; send the address that is asked, with its port."
        )
    return (found[1] or found[2]).lower()


def is_address(host: str) -> bool:
    """Whether a host is given by number."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
