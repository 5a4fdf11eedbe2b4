"""The recipe for FastAPI: uvicorn, in one process for each replica."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from servers import eventually, free_port
from tools import PATIENCE, Program, Service, is_held, listens, post

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server

    Start = Callable[..., Program]


def replica(start: Start, app: str = "fastapi_app:app", **variables: str) -> tuple[Program, str]:
    """Start the application, and return its process and its URL."""
    port = free_port()
    program = start(sys.executable, "-m", "uvicorn", f"--port={port}", app, **variables)
    eventually(lambda: listens(port), PATIENCE)
    return program, f"http://127.0.0.1:{port}"


def test_an_order_is_paid_once(start: Start, server: Server, service: Service) -> None:
    (_, here), (_, there) = replica(start), replica(start)
    first = post(f"{here}/orders/1/pay")
    charge = service.next()
    second = post(f"{there}/orders/1/pay")
    eventually(lambda: server.listeners("order:1"), PATIENCE)
    charge.answer()
    assert (first.result(PATIENCE), second.result(PATIENCE)) == (200, 200)
    assert service.paid == ["/orders/1"]
    assert service.idle
    assert int(charge.headers["Fencing-Token"]) > 0


def test_control_without_a_lock_it_is_paid_twice(start: Start, service: Service) -> None:
    _, shop = replica(start, "controls.fastapi_app:app", CONTROL="no locks")
    post(f"{shop}/orders/1/pay")
    assert service.next().path == "/orders/1/charge"
    post(f"{shop}/orders/1/pay")
    assert service.next().path == "/orders/1/charge"


def test_does_not_hang(start: Start, service: Service) -> None:
    _, shop = replica(start)
    first = post(f"{shop}/orders/1/pay")
    charge = service.next()
    assert post(f"{shop}/orders/1/pay").result(PATIENCE) == 409
    charge.answer()
    assert first.result(PATIENCE) == 200


def test_an_outage_is_answered(start: Start) -> None:
    _, shop = replica(start, REDLOCK_URL=f"redis://127.0.0.1:{free_port()}")
    assert post(f"{shop}/orders/1/pay").result(PATIENCE) == 503


def test_a_loss_is_answered(start: Start, server: Server, service: Service) -> None:
    _, shop = replica(start)
    paying = post(f"{shop}/orders/1/pay")
    charge = service.next()
    server.cli("DEL", "order:1")
    charge.answer()
    assert paying.result(PATIENCE) == 503


def test_sigterm_lets_requests_end(start: Start, server: Server, service: Service) -> None:
    program, shop = replica(start)
    paying = post(f"{shop}/orders/1/pay")
    charge = service.next()
    program.terminate()
    program.says("Shutting down")
    assert is_held(server, "order:1")
    charge.answer()
    assert paying.result(PATIENCE) == 200
    program.ends()
    assert not is_held(server, "order:1")


def test_the_end_releases_what_is_held(start: Start, server: Server) -> None:
    program, shop = replica(start, "controls.fastapi_app:app")
    assert post(f"{shop}/hold").result(PATIENCE) == 200
    eventually(lambda: is_held(server, "held"), PATIENCE)
    program.terminate()
    program.ends()
    assert not is_held(server, "held")


def test_control_without_a_close_it_stays_held(start: Start, server: Server) -> None:
    program, shop = replica(start, "controls.fastapi_app:app", CONTROL="never closed")
    assert post(f"{shop}/hold").result(PATIENCE) == 200
    eventually(lambda: is_held(server, "held"), PATIENCE)
    program.terminate()
    program.ends()
    assert is_held(server, "held")
