"""The jar with the versions of Kotlin and coroutines that its users have: a program compiled against it, and run.

Kotlin 1.9 with coroutines 1.8.1 is the oldest pair, which the jar itself is compiled with; Spring Boot 3.5 manages it.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from release import downloads, runtimes
from release.targets import version
from release.trial import CONSUMERS, run, timed

if TYPE_CHECKING:
    from pathlib import Path

    from release.here import Here

MAIN = "dev.redlock.consumer.UseKt"
# Between trials, with all of Maven Central's that they use; an empty one would take minutes.
REPOSITORY = downloads.FOLDER / "maven"


@dataclass(frozen=True)
class Versions:
    """Those of Kotlin and coroutines, or of the Spring Boot that manages both."""

    kotlin: str = ""
    coroutines: str = ""
    spring: str = ""

    def __str__(self) -> str:
        return f"Spring Boot {self.spring}" if self.spring else f"Kotlin {self.kotlin}, coroutines {self.coroutines}"


OLDEST, NEWEST = Versions("1.9.25", "1.8.1"), Versions("2.4.21", "1.11.0")
ALL = [
    OLDEST,
    Versions("2.0.21", "1.9.0"),
    Versions("2.1.21", "1.10.2"),
    Versions("2.2.21", "1.10.2"),
    Versions("2.3.21", "1.10.2"),
    Versions("2.4.21", "1.8.1"),
    NEWEST,
    Versions(spring="3.5.16"),
    Versions(spring="4.0.9"),
    Versions(spring="4.1.2"),
]


def use(here: Here, jdk: runtimes.Jdk, versions: list[Versions]) -> None:
    """Compile and run the same program with each; a row of the table for each."""
    # The package under trial has the version of the one before.
    shutil.rmtree(REPOSITORY / "dev" / "redlock", ignore_errors=True)
    for each in versions:
        classpath, seconds = _compiled(here, each)
        jar = next(path for path in classpath.split(os.pathsep) if "redlock-core" in path)
        said = run([jdk.java, "-cp", classpath, MAIN], env={**os.environ, "HOME": str(here.trial.work)})
        here.note(f"Maven, {each}", seconds, os.path.getsize(jar), said)


def _compiled(here: Here, versions: Versions) -> tuple[str, float]:
    """A class path with the program, and how long Maven took."""
    project = here.trial.folder("kotlin") / "project"
    shutil.copytree(CONSUMERS / "kotlin", project)
    if versions.spring:
        _under_spring(project, versions.spring)
    settings = {
        "maven.repo.local": REPOSITORY,
        "redlock.version": version(),
        "redlock.repository": f"file://{here.trial.packages / 'maven'}",
    }
    if not versions.spring:
        settings |= {"kotlin.version": versions.kotlin, "coroutines.version": versions.coroutines}
    maven = ["mvn", "-q", "-B", "-ntp", "-f", project, *(f"-D{name}={value}" for name, value in settings.items())]
    seconds = timed(lambda: run([*maven, "package"], env=dict(os.environ)))
    listed = (project / "target" / "classpath").read_text().strip()
    return f"{project / 'target' / 'classes'}{os.pathsep}{listed}", seconds


def _under_spring(project: Path, spring: str) -> None:
    pom = (project / "spring.xml").read_text()
    (project / "pom.xml").write_text(pom.replace("@SPRING@", spring))
