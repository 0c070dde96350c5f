# SPDX-License-Identifier: Apache-2.0
"""What is asked of a service, and how its answers are read."""

import httpx

LINES = {"lines": ["a"]}
JSON = "application/json"


def translations(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [one["translation"] for one in reply.json()["translations"]]


def refused(reply: httpx.Response, status: int, part: str) -> None:
    """Answered by one sentence."""
    assert reply.status_code == status, reply.text
    (message,) = reply.json().values()
    assert part in message and message.endswith(".") and "\n" not in message
