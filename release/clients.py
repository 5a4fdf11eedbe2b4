"""The registries of a release: their addresses, HTTP requests to them, and calls of their clients.

A credential is never in a file, on a command line, or in the environment of a client that does not need it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from release.refused import Refused

# Each of these credentials permits its holder to publish.
SECRETS = (
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "CARGO_REGISTRY_TOKEN",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "MAVEN_GPG_KEY",
    "MAVEN_GPG_PASSPHRASE",
    "MAVEN_PASSWORD",
    "MAVEN_USERNAME",
    "NPM_TOKEN",
    "TWINE_PASSWORD",
)
IDENTITY = "ACTIONS_ID_TOKEN_REQUEST_TOKEN"


class Unanswered(Refused):
    """A registry did not answer, or answered with a temporary error. A retry may succeed."""


@dataclass(frozen=True)
class Registries:
    """The addresses of all registries. Tests use others."""

    crates: str = "https://index.crates.io"
    cargo: tuple[str, ...] = ()
    """Options of cargo for a registry other than crates.io."""

    pypi: str = "https://pypi.org/simple"
    pypi_upload: str = "https://upload.pypi.org/legacy/"
    npm: str = "https://registry.npmjs.org"
    maven: str = "https://repo1.maven.org/maven2"
    central: str = "https://central.sonatype.com/api/v1/publisher"
    patience: float = 1800
    """For how many seconds to poll a registry for an upload."""

    pause: float = 10
    """The pause between two polls, in seconds."""


def get(url: str, accept: str = "*/*") -> bytes | None:
    """The content at a URL, or None if it does not exist (404 or 410)."""
    request = urllib.request.Request(url, headers={"Accept": accept, "User-Agent": "redlock-release"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()
    except urllib.error.HTTPError as error:
        if error.code in (404, 410):
            return None
        raise refusal(error)(f"{url} answers {error.code} {error.reason}") from error
    except OSError as error:
        raise Unanswered(f"{url} does not answer: {error}") from error


def refusal(error: urllib.error.HTTPError) -> type[Refused]:
    """The exception for an HTTP error: `Unanswered` for 5xx and 429, else `Refused`."""
    return Unanswered if error.code >= 500 or error.code == 429 else Refused


def attempts(registries: Registries) -> Iterable[None]:
    """Yields once at once, and then after each pause until the patience is over."""
    end = time.monotonic() + registries.patience
    yield
    while time.monotonic() < end:
        time.sleep(registries.pause)
        yield


def run(*command: str | Path, cwd: Path | None = None, secrets: Iterable[str] = (), **environment: str) -> None:
    """Run a client whose environment has these secrets and no others."""
    inherited = {name: value for name, value in os.environ.items() if name not in SECRETS or name in secrets}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=inherited | environment, check=False)
    if done.returncode:
        words = " ".join(str(word) for word in command[1:3])
        raise Refused(
            f"{Path(command[0]).name} {words} failed; its messages are above. Run the same command again to continue"
        )


def without(program: str) -> list[str]:
    """A line that names the program if it is not on the PATH, else nothing."""
    return [] if shutil.which(program) else [f"{program} on the PATH"]


def say(line: str) -> None:
    """Print a line without buffering, because clients write into the same log."""
    print(line, flush=True)
