"""Tries the jar with the versions of Kotlin and coroutines of its users: compiles a program against it and runs that.

The jar is compiled with the oldest combination, Kotlin 1.9 with coroutines 1.8.1, which is also Spring Boot 3.5's.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from release import runtimes
from release.commands import run
from release.trial import CONSUMERS

if TYPE_CHECKING:
    from release.here import Here
    from release.runtimes import Runtime

MAIN = "dev.redlock.consumer.UseKt"
# The local Maven repository, kept between trials: filling an empty one takes minutes.
REPOSITORY = runtimes.FOLDER / "maven"


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


def use(here: Here, jdk: Runtime, versions: list[Versions]) -> None:
    """Compile and run the same program with each of these versions; add a row to the table for each."""
    # The previous trial's package has the same version, so Maven would not fetch the new one.
    shutil.rmtree(REPOSITORY / "dev" / "redlock", ignore_errors=True)
    for each in versions:
        project = here.trial.folder("kotlin") / "project"
        shutil.copytree(CONSUMERS / "kotlin", project)
        settings = {"maven.repo.local": str(REPOSITORY)}
        if each.spring:
            spring = (project / "spring.xml").read_text()
            (project / "pom.xml").write_text(spring.replace("@SPRING@", each.spring))
        else:
            settings |= {"kotlin.version": each.kotlin, "coroutines.version": each.coroutines}
        classpath, seconds = here.maven(project, dict(os.environ), settings)
        jar = next(path for path in classpath if "redlock-core" in path.name)
        command = [jdk.path, "-cp", os.pathsep.join(map(str, classpath)), MAIN]
        said = run(command, env={**os.environ, "HOME": str(here.trial.work)})
        here.note(f"Maven, {each}", seconds, jar.stat().st_size, said)
