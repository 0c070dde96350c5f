# SPDX-License-Identifier: Apache-2.0
"""Ports of this machine."""

import socket


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return one.getsockname()[1]
