"""The recipe for Django: gunicorn with two workers, SQLite, and the management command in processes of its own."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servers import eventually, free_port
from tools import PATIENCE, Program, Service, is_held, listens, post

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server

    Start = Callable[..., Program]

ORDER = "shop:order:1"
REPORT = "shop:daily-report"


@pytest.fixture(scope="module")
def tables() -> str:
    """The statements that make the tables, as Django writes them."""
    variables = {"DATABASE": ":memory:", "REDLOCK_URL": "memory://", "SHOP_URL": ""}
    variables |= {"DJANGO_SETTINGS_MODULE": "shop.settings", "PYTHONPATH": "../../python"}
    program = """if True:
        import django
        from django.db import connection
        from django.apps import apps

        django.setup()
        with connection.schema_editor(collect_sql=True) as editor:
            for model in apps.get_models():
                editor.create_model(model)
        print(*editor.collected_sql, sep="\\n")
    """
    command = [sys.executable, "-c", program]
    return subprocess.run(
        command, cwd=Path(__file__).parent, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True
    ).stdout


@pytest.fixture
def database(tmp_path: Path, tables: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a database with one order."""
    file = str(tmp_path / "shop.sqlite3")
    monkeypatch.setenv("DATABASE", file)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "shop.settings")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(tables)
        connection.execute("INSERT INTO shop_order VALUES (1, 0)")
    return file


def execute(database: str, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(database)) as connection, connection:
        return connection.execute(statement).fetchall()


def website(start: Start, **variables: str) -> str:
    """Start the shop with two worker processes, and return its URL."""
    port = free_port()
    command = ("gunicorn", "--workers=2", f"--bind=127.0.0.1:{port}", "shop.wsgi")
    start(sys.executable, "-m", *command, **variables)
    eventually(lambda: listens(port), PATIENCE)
    return f"http://127.0.0.1:{port}"


# ---- the view --------------------------------------------------------------------------------------------------------


def test_commits_before_it_releases(start: Start, server: Server, service: Service, database: str) -> None:
    shop = website(start, DJANGO_SETTINGS_MODULE="controls.settings")
    first = post(f"{shop}/orders/1/pay")
    service.next().answer()
    commit = service.next()
    assert commit.path == "/commit"
    assert is_held(server, ORDER)
    second = post(f"{shop}/orders/1/pay")
    eventually(lambda: server.listeners(ORDER))  # it waits, and has not read the order yet

    commit.answer()
    service.next().answer()  # the commit of the second request, which had nothing to do
    assert (first.result(PATIENCE), second.result(PATIENCE)) == (200, 200)
    assert service.paid == ["/orders/1"]
    assert service.idle
    assert not is_held(server, ORDER)


def test_control_a_release_before_the_commit_charges_twice(start: Start, service: Service, database: str) -> None:
    shop = website(start, DJANGO_SETTINGS_MODULE="controls.settings")
    post(f"{shop}/early/1/pay")
    service.next().answer()
    assert service.next().path == "/commit"  # the first request has released, and not committed
    post(f"{shop}/early/1/pay")
    charge = service.next()  # the second one read the order as it was before
    assert charge.path == "/orders/1/charge"


def test_refuses_an_outer_transaction(start: Start, server: Server, service: Service, database: str) -> None:
    shop = website(start, DJANGO_SETTINGS_MODULE="controls.settings")
    assert post(f"{shop}/refused/1/pay").result(PATIENCE) == 500
    assert service.idle  # it failed before it charged
    assert not is_held(server, ORDER)


def test_does_not_hang(start: Start, server: Server, service: Service, database: str) -> None:
    shop = website(start)
    first = post(f"{shop}/orders/1/pay")
    charge = service.next()
    assert post(f"{shop}/orders/1/pay").result(PATIENCE) == 409
    charge.answer()
    assert first.result(PATIENCE) == 200
    assert execute(database, "SELECT paid FROM shop_order") == [(1,)]


def test_an_outage_is_answered(start: Start, database: str) -> None:
    shop = website(start, REDLOCK_URL=f"redis://127.0.0.1:{free_port()}")
    assert post(f"{shop}/orders/1/pay").result(PATIENCE) == 503


def test_a_loss_is_answered(start: Start, server: Server, service: Service, database: str) -> None:
    shop = website(start)
    paying = post(f"{shop}/orders/1/pay")
    charge = service.next()
    server.cli("DEL", ORDER)
    charge.answer()
    assert paying.result(PATIENCE) == 503


# ---- the command -----------------------------------------------------------------------------------------------------


def report(start: Start, **variables: str) -> Program:
    return start(sys.executable, "-m", "django", "daily_report", "--day=2030-01-31", **variables)


def test_the_report_is_made_once(start: Start, server: Server, service: Service, database: str) -> None:
    first = report(start)
    computing = service.next()
    second = report(start)
    eventually(lambda: server.listeners(REPORT), PATIENCE)
    computing.answer()
    assert (first.ends(), second.ends()) == (0, 0)
    assert (first.output, second.output) == ("done\n", "done before\n")
    assert service.idle

    # A machine whose clock is late: the lock is free again.
    late = report(start)
    assert (late.ends(), late.output) == (0, "done before\n")
    assert service.idle


def test_another_machine_takes_over(start: Start, server: Server, service: Service, database: str) -> None:
    first = report(start, REDLOCK_WATCHDOG="0.5")
    service.next()
    second = report(start)
    eventually(lambda: server.listeners(REPORT), PATIENCE)
    first.kill()
    service.next().answer()
    assert second.ends() == 0
    assert execute(database, "SELECT count(*) FROM shop_report") == [(1,)]


def test_the_command_releases_at_sigterm(start: Start, server: Server, service: Service, database: str) -> None:
    job = report(start)
    service.next()
    job.terminate()
    assert job.ends() == 143
    assert not is_held(server, REPORT)
    assert execute(database, "SELECT count(*) FROM shop_report") == [(0,)]
