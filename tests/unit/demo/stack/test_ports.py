"""Ports for servers that bind them later."""

from __future__ import annotations

import socket

from demo.stack.stack import free_port


def test_free_port_can_be_bound_and_is_none_that_a_client_may_be_lent_meanwhile() -> None:
    for port in (free_port() for _ in range(20)):
        assert port < 32_768  # where Linux begins to lend; others begin higher
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))
