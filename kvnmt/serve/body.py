# SPDX-License-Identifier: Apache-2.0
"""The body of a request, read within its limits.

Who sends too much, or may not ask, is sending still. Were the connection closed then,
it would be reset, and the client might not hear why. So its body is read to the end,
unless that takes too long.
"""

import asyncio

from starlette.requests import ClientDisconnect, Request

from kvnmt.serve.limits import GONE, Limits, Refusal

PATIENCE = 16  # times the size of a body that is read, to be thrown away


async def read_body(request: Request, limits: Limits, kept: bool = True) -> bytes:
    """The body, or nothing if it is not to be kept.

    Raises:
        Refusal: It is too large, or does not arrive.
    """
    most, body, size = 1024 * limits.kilobytes, bytearray(), 0
    try:
        async with asyncio.timeout(limits.sending):
            async for part in request.stream():
                size += len(part)
                if size > PATIENCE * most:
                    break
                body += part if kept and size <= most else b""
            else:
                request.state.ended = True
    except TimeoutError:
        raise Refusal(
            408, f"the request had not arrived after {limits.sending:g} s."
        ) from None
    except ClientDisconnect:
        raise Refusal(GONE, "the client went away.") from None
    if size > most:
        raise Refusal(
            413,
            f"the body has more than {limits.kilobytes} KiB; send fewer lines in a "
            "request.",
        )
    return bytes(body)


def has_ended(request: Request) -> bool:
    """Whether a body was read to its end, so that another request may follow."""
    return getattr(request.state, "ended", False)
