"""Tries the jar with the versions of Kotlin and coroutines of its users: compiles a program against it and runs that.

The jar is compiled with the oldest combination, Kotlin 1.9 with coroutines 1.8.1, which is also Spring Boot 3.5's.
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
# The local Maven repository, kept between trials: filling an empty one takes minutes.
REPOSITORY = downloads.FOLDER / "maven"


@dataclass(frozen=True)
class Versions:
    """The versions of Kotlin and coroutines, or that of the Spring Boot that manages both."""

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
    """Compile and run the same program with each of these versions; add a row to the table for each."""
    # The previous trial's package has the same version, so Maven would not fetch the new one.
    shutil.rmtree(REPOSITORY / "dev" / "redlock", ignore_errors=True)
    for each in versions:
        classpath, seconds = _compiled(here, each)
        jar = next(path for path in classpath.split(os.pathsep) if "redlock-core" in path)
        said = run([jdk.java, "-cp", classpath, MAIN], env={**os.environ, "HOME": str(here.trial.work)})
        here.note(f"Maven, {each}", seconds, os.path.getsize(jar), said)


def _compiled(here: Here, versions: Versions) -> tuple[str, float]:
    """Compile the program; return its class path and Maven's time in seconds."""
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
