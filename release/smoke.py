"""Installs and uses the packages as users do: without cargo on the PATH, and from a registry on loopback.

    python3 -m release.smoke OUT [--quick] [--root NAME]... [--suites]
    python3 -m release.smoke --published [--patience SECONDS]

The default is every available Python, Node and JDK on this machine, and several versions of Kotlin. --quick takes one
of each, and the oldest and the newest Kotlin. --root uses the root of another kind of machine instead. Each consumer
acquires locks: in memory, and, if there is a server, nested, renewed, contended by processes, and over TLS. --suites
runs the packages' own tests against the installed packages. --published is the last step of a release: like --quick,
with packages of the public registries, which need some minutes until all of their servers have them. Prints a table.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from release import runtimes, suites
from release.emulated import elsewhere, roots
from release.here import Here
from release.refused import in_one_line
from release.registry import serving
from release.targets import ROOT, load
from release.trial import Trial

# For the servers of the Python tests.
sys.path.append(str(ROOT / "python" / "tests"))
from servers import Server, free_port


@in_one_line("release.smoke")
def main() -> None:
    parser = argparse.ArgumentParser(prog="python3 -m release.smoke", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="one Python, one Node, one JDK, two Kotlins")
    parser.add_argument("--root", action="append", choices=list(roots.RECIPES), default=[], help="there, not here")
    parser.add_argument("--suites", action="store_true", help="the packages' own tests instead, on what was installed")
    parser.add_argument("--published", action="store_true", help="what the public registries have, and the crate")
    parser.add_argument("--patience", metavar="SECONDS", type=float, default=1800, help="with --published: try again")
    given = parser.parse_args()
    if bool(given.out) == given.published:
        parser.error("name either OUT or --published")
    with tempfile.TemporaryDirectory(prefix="redlock-smoke-", ignore_cleanup_errors=True) as folder:
        work = Path(folder).resolve()
        with locking(work) as servers:
            if given.published:
                here = Here(Trial(load(), work, servers, patience=given.patience))
                here.quick()
                here.crate()
                return
            out = given.out.resolve()
            with serving(out / "packages") as npm:
                attempt(Trial(load(), work, servers, out, npm), given)
    for line in runtimes.missing:
        print(f"left out: {line}", file=sys.stderr)


def attempt(trial: Trial, given: argparse.Namespace) -> None:
    """Try the packages as the options say."""
    if given.suites:
        suites.run(Here(trial))
    elif given.quick:
        Here(trial).quick()
    elif not given.root:
        Here(trial).all()
    for name in given.root:
        elsewhere.run(trial, name)


@contextlib.contextmanager
def locking(work: Path) -> Iterator[list[str]]:
    """Runs a server with and without TLS; yields the arguments of the consumers, none if there is no redis-server."""
    if not shutil.which("redis-server"):
        print("no redis-server here: memory:// alone", file=sys.stderr)
        yield []
        return
    certificates(work)
    tls = free_port()
    options = ["--tls-port", str(tls), "--tls-cert-file", "server.pem", "--tls-key-file", "server.key"]
    with Server(work, *options, "--tls-auth-clients", "no") as server:
        yield [server.url, f"rediss://127.0.0.1:{tls}", str(work / "ca.pem")]


def certificates(folder: Path) -> None:
    """Make a private certificate authority, and its certificate for a server on loopback."""
    new = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    (folder / "extensions").write_text("subjectAltName=IP:127.0.0.1\n")
    for command in (
        f"req -x509 {new} -keyout ca.key -out ca.pem -subj /CN=private -days 2",
        f"req {new} -keyout server.key -out server.csr -subj /CN=127.0.0.1",
        "x509 -req -in server.csr -out server.pem -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions -days 2",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)


if __name__ == "__main__":
    main()
