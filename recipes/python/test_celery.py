"""The recipe for Celery: a worker with a pool of forked processes, and Redis as its broker."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from celery import Celery

from servers import eventually
from tools import PATIENCE, Program, Service, is_held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from servers import Server

    Start = Callable[..., Program]

ORDER = "order:1"


@pytest.fixture
def send(server: Server) -> Iterator[Callable[..., None]]:
    """Sends a task."""
    with Celery(broker=f"{server.url}/1") as sender:

        def send(task: str, *arguments: object) -> None:
            sender.send_task(f"celery_app.{task}", arguments)

        yield send


def worker(start: Start, server: Server, processes: int = 2, control: str = "") -> Program:
    """Start a worker."""
    app = "controls.celery_app" if control else "celery_app"
    options = ("--loglevel=INFO", f"--concurrency={processes}", "--without-gossip", "--without-mingle")
    program = start(
        sys.executable, "-m", "celery", "-A", app, "worker", *options, BROKER_URL=f"{server.url}/1", CONTROL=control
    )
    program.says(" ready.")
    return program


def test_once_at_a_time(start: Start, server: Server, service: Service, send: Callable[..., None]) -> None:
    program = worker(start, server)
    send("pay", 1)
    charge = service.next()
    send("pay", 1)
    program.says("Retry in")  # it found the lock held, and has left its process
    charge.answer()
    program.says("succeeded", times=2)
    assert service.paid == ["/orders/1"]
    assert service.idle


def test_each_process_of_the_pool_has_locks(
    start: Start, server: Server, service: Service, send: Callable[..., None]
) -> None:
    program = worker(start, server)
    send("pay", 1)
    send("pay", 2)
    charges = [service.next(), service.next()]
    assert is_held(server, "order:1")
    assert is_held(server, "order:2")
    for charge in charges:
        charge.answer()
    program.says("succeeded", times=2)


@pytest.mark.parametrize("locks", ["", ", no locks"])
def test_a_task_that_is_delivered_again(
    start: Start, server: Server, service: Service, send: Callable[..., None], locks: str
) -> None:
    program = worker(start, server, control=f"short visibility{locks}")
    send("pay", 1)
    charge = service.next()
    if locks:  # the control: the second delivery charges, too
        assert service.next().path == charge.path
        return
    program.says("Retry in")
    charge.answer()
    program.says("'paid'")
    program.says("'paid before'")
    assert service.paid == ["/orders/1"]
    assert service.idle


def kill_pool(program: Program) -> None:
    for process in program.children():
        os.kill(process, signal.SIGKILL)


def test_the_task_of_a_killed_process_runs_again(
    start: Start, server: Server, service: Service, send: Callable[..., None]
) -> None:
    program = worker(start, server, control="short leases")
    send("pay", 1)
    service.next()
    kill_pool(program)
    service.next().answer()  # once the lease of the killed process is over
    program.says("succeeded")
    assert service.paid == ["/orders/1"]


def test_control_a_task_that_is_acknowledged_is_lost(
    start: Start, server: Server, service: Service, send: Callable[..., None]
) -> None:
    program = worker(start, server, control="short leases, acknowledged")
    send("pay", 1)
    service.next()
    kill_pool(program)
    program.says("WorkerLostError")
    eventually(lambda: server.cli("-n", "1", "EXISTS", "celery", "unacked") == "0", PATIENCE)
    assert service.idle


def test_a_task_that_the_next_run_does_as_well(
    start: Start, server: Server, service: Service, send: Callable[..., None]
) -> None:
    program = worker(start, server)
    send("refresh_prices")
    prices = service.next()
    send("refresh_prices")
    program.says("'another run is under way'")
    prices.answer()
    program.says("'refreshed'")
    assert service.idle


def test_sigterm_lets_tasks_end(start: Start, server: Server, service: Service, send: Callable[..., None]) -> None:
    program = worker(start, server)
    send("pay", 1)
    charge = service.next()
    program.terminate()
    program.says("Warm shutdown")
    assert is_held(server, ORDER)
    charge.answer()
    program.ends()
    assert service.paid == ["/orders/1"]
    assert not is_held(server, ORDER)
