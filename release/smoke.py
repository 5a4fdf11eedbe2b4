"""Installs and uses the packages as users do: without cargo on the PATH, and from a registry on loopback.

    python3 -m release.smoke OUT [--quick | --suites]
    python3 -m release.smoke --published

The default is every available Python, Node and JDK on this machine, and several versions of Kotlin. --quick takes one
of each, and the oldest and the newest Kotlin. Each consumer acquires locks: in memory, and, if there is a server,
nested, renewed, contended by processes, and over TLS. --suites runs the packages' own tests against the installed
packages. --published is the last step of a release: like --quick, with packages of the public registries, which need
some minutes until all of their servers have them. Prints a table.
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
from release.commands import in_one_line
from release.here import Here
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
    parser.add_argument("--suites", action="store_true", help="the packages' own tests instead, on what was installed")
    parser.add_argument("--published", action="store_true", help="what the public registries have, and the crate")
    given = parser.parse_args()
    if bool(given.out) == given.published:
        parser.error("name either OUT or --published")
    if given.published:
        with working() as (work, servers):
            here = Here(Trial(load(), work, servers, patience=1800))
            here.quick()
            here.crate()
        return
    with packed(given.out) as trial:
        here = Here(trial)
        if given.suites:
            suites.run(here)
        elif given.quick:
            here.quick()
        else:
            here.all()
    for line in runtimes.missing:
        print(f"left out: {line}", file=sys.stderr)


@contextlib.contextmanager
def packed(out: Path) -> Iterator[Trial]:
    """A trial of the packages in OUT, with a registry for npm and servers while the block runs."""
    out = out.resolve()
    with working() as (work, servers), serving(out / "packages") as npm:
        yield Trial(load(), work, servers, out, npm)


@contextlib.contextmanager
def working() -> Iterator[tuple[Path, list[str]]]:
    """Yields a temporary folder and the arguments of the consumers: those of a server that runs with and without TLS
    during the block, or none if there is no redis-server.
    """
    with tempfile.TemporaryDirectory(prefix="redlock-smoke-", ignore_cleanup_errors=True) as folder:
        work = Path(folder).resolve()
        if not shutil.which("redis-server"):
            print("no redis-server here: memory:// alone", file=sys.stderr)
            yield work, []
            return
        certificates(work)
        tls = free_port()
        options = ["--tls-port", str(tls), "--tls-cert-file", "server.pem", "--tls-key-file", "server.key"]
        with Server(work, *options, "--tls-auth-clients", "no") as server:
            yield work, [server.url, f"rediss://127.0.0.1:{tls}", str(work / "ca.pem")]


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
