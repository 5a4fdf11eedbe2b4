"""The recipes for the command line: cron, systemd, a container, a migration, the steps of a CI job."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from servers import eventually
from tools import PATIENCE, Program, is_held

if TYPE_CHECKING:
    from collections.abc import Callable
    from configparser import SectionProxy

    from servers import Server

    Start = Callable[..., Program]

FOLDER = Path(__file__).parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", FOLDER.parents[1] / "target"))
REDLOCK = TARGET / "debug" / "redlock"
# Programs of the tests that wait for a file, so that a test chooses when they end.
WAIT = 'while [ ! -e "$GO" ]; do sleep 0.02; done'


@pytest.fixture
def go(tmp_path: Path) -> Path:
    """The file that programs of a test wait for."""
    return tmp_path / "go"


@pytest.fixture
def run(start: Start, tmp_path: Path, go: Path) -> Start:
    """Starts a program with `redlock` in its PATH."""
    assert REDLOCK.exists(), "make cli builds it"

    def run(*command: str, **variables: str) -> Program:
        path = f"{tmp_path}:{REDLOCK.parent}:{os.environ['PATH']}"
        return start(*command, **({"PATH": path, "GO": str(go)} | variables))

    return run


def script(path: Path, text: str) -> Path:
    """Write a shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---- cron ------------------------------------------------------------------------------------------------------------


def crontab(lock: str) -> str:
    """The command of the crontab that uses this lock."""
    (line,) = (line for line in (FOLDER / "crontab").read_text().splitlines() if f"redlock exec {lock} " in line)
    return line.split(maxsplit=5)[5]


@pytest.fixture
def job(run: Start, tmp_path: Path) -> Callable[..., Program]:
    """Runs the line of the crontab, as cron does: by sh, in a session without a terminal."""
    command = crontab("report")
    folder = tmp_path / "machine"
    folder.mkdir()
    shutil.copy(FOLDER / "report.sh", folder)
    script(folder / "sales.sh", f'echo x >>"$SALES"; {WAIT}; echo "sales of $1"')
    (tmp_path / "reports").mkdir()

    def job(**variables: str) -> Program:
        files = {"REPORTS": str(tmp_path / "reports"), "SALES": str(tmp_path / "sales"), "REPORT_DAY": "2026-11-25"}
        return run("sh", "-c", f"cd {shlex.quote(str(folder))} && {command}", **files, **variables)

    return job


def test_cron_makes_a_report_once(job: Callable[..., Program], server: Server, tmp_path: Path, go: Path) -> None:
    sales, report = tmp_path / "sales", tmp_path / "reports" / "2026-11-25"
    first = job()
    eventually(sales.exists, PATIENCE)
    second = job()
    eventually(lambda: server.listeners("report"), PATIENCE)
    go.touch()
    for machine in (first, second):
        assert (machine.ends(), machine.output) == (0, "")  # cron would mail any output
    assert report.read_text() == "sales of 2026-11-25\n"

    late = job()  # the clock of its machine is late
    assert (late.ends(), late.output) == (0, "")
    assert sales.read_text() == "x\n"
    assert [file.name for file in report.parent.iterdir()] == ["2026-11-25"]
    assert not is_held(server, "report")


def test_cron_tells_of_an_outage(job: Callable[..., Program]) -> None:
    program = job(REDLOCK_URL="redis://127.0.0.1:1")
    assert program.ends() == 69
    assert "redlock" in program.output


def test_cron_ticks_once_although_the_job_is_short(run: Start, server: Server, tmp_path: Path) -> None:
    script(tmp_path / "tick.sh", 'echo x >>"$TICKS"')
    command = f"cd {shlex.quote(str(tmp_path))} && {crontab('tick')}"
    for _ in range(3):  # machines whose clocks differ
        machine = run("sh", "-c", command, TICKS=str(tmp_path / "ticks"))
        assert (machine.ends(), machine.output) == (0, "")
    assert (tmp_path / "ticks").read_text() == "x\n"
    assert is_held(server, "tick")  # by nobody


# ---- systemd ---------------------------------------------------------------------------------------------------------


def service() -> SectionProxy:
    """The service section of the unit."""
    unit = ConfigParser(interpolation=None)
    unit.read(FOLDER / "leader.service")
    return unit["Service"]


def leader(run: Start, tmp_path: Path, name: str) -> Program:
    """Start the unit's command, with a daemon that writes its name and ends at SIGTERM."""
    text = f'trap \'echo stopped >>"$LOG"; exit 0\' TERM\necho {name} >>"$LOG"\nwhile :; do sleep 0.02; done'
    daemon = script(tmp_path / name, text)
    redlock, *arguments = shlex.split(service()["ExecStart"])
    assert (redlock, arguments[-1]) == ("/usr/local/bin/redlock", "/usr/local/bin/scheduler")
    return run(str(REDLOCK), *arguments[:-1], str(daemon), LOG=str(tmp_path / "log"))


def test_systemd_one_machine_runs_the_daemon(run: Start, server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = leader(run, tmp_path, "first")
    eventually(log.exists, PATIENCE)
    second = leader(run, tmp_path, "second")
    eventually(lambda: server.listeners("scheduler"), PATIENCE)
    first.terminate()  # KillMode=mixed
    assert first.ends() == 0
    eventually(lambda: log.read_text() == "first\nstopped\nsecond\n", PATIENCE)
    second.terminate()
    assert second.ends() == 0
    assert not is_held(server, "scheduler")


def test_systemd_restarts_after_each_end() -> None:
    unit = service()
    assert (unit["Restart"], unit["KillMode"]) == ("always", "mixed")


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    assert analyze, "the package systemd has it"
    unit = (FOLDER / "leader.service").read_text()
    # It wants the programs to exist.
    for program in ("/usr/local/bin/redlock", "/usr/local/bin/scheduler"):
        unit = unit.replace(program, "/bin/true")
    (tmp_path / "leader.service").write_text(unit)
    verified = subprocess.run(
        [analyze, "verify", "--man=no", str(tmp_path / "leader.service")], capture_output=True, text=True, check=False
    )
    assert "leader.service" not in verified.stderr, verified.stderr


# ---- a container -----------------------------------------------------------------------------------------------------


def test_a_container_ends_with_the_program(run: Start, server: Server, tmp_path: Path) -> None:
    log = tmp_path / "log"
    worker = script(tmp_path / "worker", "trap 'exit 3' TERM\necho ready >\"$LOG\"\nwhile :; do sleep 0.02; done")
    # As the first process of a PID namespace, as in a container.
    namespace = ("unshare", "--map-root-user", "--fork", "--pid", "--mount-proc", "--")
    container = run(*namespace, "./entrypoint.sh", str(worker), LOG=str(log))
    eventually(log.exists, PATIENCE)
    assert is_held(server, "worker")
    (first,) = container.children()
    os.kill(first, signal.SIGTERM)  # as the runtime does
    assert container.ends() == 3
    assert not is_held(server, "worker")


# ---- a migration -----------------------------------------------------------------------------------------------------


def test_replicas_migrate_one_after_the_other(run: Start, server: Server, tmp_path: Path, go: Path) -> None:
    log = tmp_path / "log"
    migration = script(tmp_path / "migration", f'echo begins >>"$LOG"; {WAIT}; echo ends >>"$LOG"')
    replicas = [run("./migrate.sh", str(migration), LOG=str(log))]
    eventually(log.exists, PATIENCE)
    replicas.append(run("./migrate.sh", str(migration), LOG=str(log)))
    eventually(lambda: server.listeners("migrate-main"), PATIENCE)
    go.touch()
    assert [replica.ends() for replica in replicas] == [0, 0]
    assert log.read_text() == "begins\nends\n" * 2


def test_a_failed_migration_fails_the_deploy(run: Start, tmp_path: Path) -> None:
    assert run("./migrate.sh", str(script(tmp_path / "migration", "exit 4"))).ends() == 4


# ---- the steps of a CI job -------------------------------------------------------------------------------------------


def test_ci_jobs_use_the_environment_one_after_the_other(run: Start, server: Server, tmp_path: Path) -> None:
    leases = [tmp_path / f"lease-{job}" for job in (1, 2)]
    assert run("./ci-acquire.sh", LEASE=str(leases[0])).ends() == 0
    assert leases[0].stat().st_mode & 0o77 == 0
    second = run("./ci-acquire.sh", LEASE=str(leases[1]))
    eventually(lambda: server.listeners("staging"), PATIENCE)
    assert run("./ci-release.sh", LEASE=str(leases[0])).ends() == 0
    assert second.ends() == 0
    assert run("./ci-release.sh", LEASE=str(leases[1])).ends() == 0
    assert not is_held(server, "staging")
    assert not any(lease.exists() for lease in leases)


def test_ci_a_lost_lease_fails_the_job(run: Start, server: Server, tmp_path: Path) -> None:
    lease = str(tmp_path / "lease")
    assert run("./ci-acquire.sh", LEASE=lease).ends() == 0
    server.cli("DEL", "staging")
    assert run("./ci-release.sh", LEASE=lease).ends() == 79


def test_ci_without_a_lease_there_is_nothing_to_release(run: Start, tmp_path: Path) -> None:
    assert run("./ci-release.sh", LEASE=str(tmp_path / "lease")).ends() == 0
