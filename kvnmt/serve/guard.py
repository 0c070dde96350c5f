# SPDX-License-Identifier: Apache-2.0
"""Who may ask: a token, and nobody by way of somebody's browser."""

import base64
import hmac
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from kvnmt.errors import UserError
from kvnmt.serve.limits import Refusal

LEAST_TOKEN = 16  # characters
TOKEN = re.compile(rf"[!-~][ -~]{{{LEAST_TOKEN - 2},}}[!-~]")
USUAL = {"http": ":80", "https": ":443"}  # ports, which browsers leave out
PLACE = re.compile(r"([\w.-]+|\[[0-9a-f:.]+\])(:[0-9]+)?", re.ASCII)
VARIABLE = "KVNMT_TOKEN"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Guard:
    """What a request must bring."""

    token: str | None = None  # None: nothing
    hosts: frozenset[str] | None = None  # by which it may call us; None: by any name
    origins: tuple[str, ...] = ()  # other pages whose scripts may ask

    def check(self, headers: Mapping[str, str]) -> None:
        """Refuses who may not ask.

        A foreign page may make its reader's browser send requests here: by a name that
        leads to this machine, or from the page's own origin. The headers show both.
        """
        origin = headers.get("origin")
        try:
            name = urlsplit(f"//{headers.get('host', '')}").hostname
            asking = urlsplit(origin or "").netloc
        except ValueError:
            raise Refusal(403, "Host or Origin is no address.") from None
        if self.hosts is not None and name not in self.hosts:
            raise Refusal(
                403,
                "without a token the service answers under this machine's own names "
                "alone; start it with --token, or let the proxy send Host: localhost.",
            )
        same = origin is None or asking == headers.get("host")
        if not same and origin not in self.origins:
            raise Refusal(403, "pages of this origin may not ask; see --origins.")
        if not self.knows(headers):
            raise Refusal(
                401,
                "a token is needed: send the header 'Authorization: Bearer TOKEN', or "
                "the token as the password of a browser.",
            )

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether the token is there, if there must be one; in constant time."""
        if self.token is None:
            return True
        given = _given(headers.get("authorization", ""))
        return hmac.compare_digest(given, self.token.encode())


def guard_of(host: str, token: str | None, origins: tuple[str, ...] = ()) -> Guard:
    """The guard of a service at an address.

    Raises:
        UserError: Others can reach the address and there is no token, or a weak one;
            or an origin is none.
    """
    origins = tuple(_origin(text) for text in origins)
    if token is not None and not TOKEN.fullmatch(token):
        raise UserError(
            f"the token must have {LEAST_TOKEN} characters of ASCII at least, and no "
            "blank or line feed at its ends; make one with: openssl rand -hex 16"
        )
    if is_local(host):
        # A name that leads here from elsewhere brings no token.
        return Guard(token, LOCAL | {host} if token is None else None, origins)
    if token is None:
        raise UserError(
            f"--host {host} lets other machines ask, so a token is needed: give "
            f"--token, or set {VARIABLE}."
        )
    return Guard(token, None, origins)


def is_local(host: str) -> bool:
    """Whether an address is reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _origin(text: str) -> str:
    """An origin as browsers write it: without the usual port, a name in ASCII."""
    try:
        scheme, place, *rest = urlsplit(text.lower().removesuffix("/"))
    except ValueError:
        scheme, place, rest = "", "", []
    place = place.removesuffix(USUAL.get(scheme, ""))
    if scheme not in USUAL or not PLACE.fullmatch(place) or any(rest):
        raise UserError(
            f"--origins {text} is no origin; write the beginning of the page's "
            "address alone, as https://example.org."
        )
    return f"{scheme}://{place}"


def _given(authorization: str) -> bytes:
    """The token of a header; nothing if there is none."""
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode("utf-8", "replace")
    if scheme.lower() == "basic":
        with suppress(ValueError):
            return base64.b64decode(rest, validate=True).partition(b":")[2]
    return b""
