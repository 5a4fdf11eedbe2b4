"""The recipes for Kubernetes: the programs get the signals that a kubelet sends, and the manifests fit the schemas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import kubernetes_validate
import pytest
import yaml

from servers import eventually
from tools import PATIENCE, Program, Service, is_held

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server

    Start = Callable[..., Program]


def pod_of(manifest: str) -> tuple[dict[str, object], dict[str, object]]:
    """Check a manifest against the schema of its kind, and return it with the spec of its pods."""
    resource = yaml.safe_load((Path(__file__).parent / manifest).read_text())
    kubernetes_validate.validate(resource, "1.34", strict=True)
    spec = resource["spec"]
    return resource, spec.get("jobTemplate", {"spec": spec})["spec"]["template"]["spec"]


def pod(start: Start, manifest: str, **variables: str) -> Program:
    """Start a program by the command of its manifest."""
    command = pod_of(manifest)[1]["containers"][0]["command"]
    assert command[0] == "python"
    return start(sys.executable, *command[1:], **variables)


# ---- the Deployment --------------------------------------------------------------------------------------------------


def test_one_pod_leads_and_another_one_follows(start: Start, server: Server, service: Service) -> None:
    first = pod(start, "leader.yaml")
    step = service.next()
    second = pod(start, "leader.yaml")
    eventually(lambda: server.listeners("invoices"), PATIENCE)

    first.terminate()
    step.answer()  # the step ends, and then the program
    assert first.ends() == 0
    next_step = service.next()  # at once: the lease of the first pod would last 30 s
    assert int(next_step.headers["Fencing-Token"]) > int(step.headers["Fencing-Token"])
    assert service.idle
    second.terminate()
    next_step.answer()
    assert second.ends() == 0
    assert not is_held(server, "invoices")


def test_sigterm_ends_a_standby(start: Start, server: Server, service: Service) -> None:
    pod(start, "leader.yaml")
    service.next()
    second = pod(start, "leader.yaml")
    eventually(lambda: server.listeners("invoices"), PATIENCE)
    second.terminate()
    assert second.ends() == 0
    assert is_held(server, "invoices")


def test_control_without_a_handler_the_lock_stays(start: Start, server: Server, service: Service) -> None:
    without = "import signal, leader; signal.signal = lambda *_: None; leader.main()"
    program = start(sys.executable, "-c", without)
    service.next()
    program.terminate()
    assert program.ends() == -15
    assert is_held(server, "invoices")


def test_control_a_shell_passes_no_signal_on(start: Start, server: Server, service: Service) -> None:
    shell = start("sh", "-c", f"{sys.executable} leader.py; true")
    step = service.next()
    shell.terminate()
    assert shell.ends() == -15
    step.answer()
    service.next()  # it goes on


def test_an_outage_does_not_end_the_program(start: Start, own_server: Server, service: Service) -> None:
    own_server.stop()
    program = pod(start, "leader.yaml", REDLOCK_URL=own_server.url)
    program.says("connection refused")
    own_server.start()
    service.next()
    assert is_held(own_server, "invoices")


# ---- the CronJob -----------------------------------------------------------------------------------------------------


def report(start: Start, job: str = "report-29000000") -> Program:
    return pod(start, "report.yaml", JOB_NAME=job)


def test_a_report_is_made_once(start: Start, server: Server, service: Service) -> None:
    first = report(start)
    sales = service.next()
    second = report(start)
    eventually(lambda: server.listeners("report"), PATIENCE)
    sales.answer()
    assert (first.ends(), second.ends()) == (0, 0)
    assert (first.output, second.output) == ("done\n", "done before\n")
    assert service.idle

    tomorrow = report(start, "report-29001440")
    service.next().answer()
    assert tomorrow.ends() == 0
    assert len(service.documents) == 2


def test_sigterm_releases(start: Start, server: Server, service: Service) -> None:
    first = report(start)
    service.next()
    first.terminate()
    assert first.ends() == 143
    assert not is_held(server, "report")
    second = report(start)
    service.next().answer()
    assert second.ends() == 0


# ---- the manifests ---------------------------------------------------------------------------------------------------


def test_the_grace_is_longer_than_what_it_is_for() -> None:
    folder = Path(__file__).parent
    longest = 30  # the time-out of a step, and of a request
    assert f"timeout={longest}" in (folder / "leader.py").read_text()
    assert f"timeout={longest}" in (folder.parent / "python" / "fastapi_app.py").read_text()
    wait, release = 2, 1
    assert pod_of("leader.yaml")[1]["terminationGracePeriodSeconds"] > longest + wait + release
    web = pod_of("web.yaml")[1]
    hook = web["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert web["terminationGracePeriodSeconds"] > hook + longest + wait + release


def test_control_a_wrong_field_does_not_fit() -> None:
    resource, pod = pod_of("leader.yaml")
    pod["terminationGracePeriod"] = 45
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(resource, "1.34", strict=True)
