"""The list of targets is consistent, and so are names of targets elsewhere."""

from __future__ import annotations

import subprocess

import pytest

from release import targets
from release.commands import Refused

RELEASE = targets.load()


def test_no_two_published_targets_share_a_package() -> None:
    published = RELEASE.published()
    assert len({target.npm.platform for target in published}) == len(published)
    assert len({target.in_jar("x") for target in published}) == len(published)
    assert len({(target.rust.split("-")[0], target.system, target.wheel) for target in published}) == len(published)


def test_an_unpublished_target_stands_in_for_a_published_one() -> None:
    platforms = {target.npm.platform for target in RELEASE.published()}
    assert {target.npm.platform for target in RELEASE.targets} == platforms


@pytest.mark.parametrize("target", RELEASE.published(), ids=lambda target: target.rust)
def test_the_loader_of_node_looks_for_the_package(target: targets.Target) -> None:
    command = ["node", "release/tests/asked.cjs", target.npm.os, target.npm.cpu]
    done = subprocess.run(command, cwd=targets.ROOT, check=True, stdout=subprocess.PIPE, text=True)
    assert f"{RELEASE.npm.platforms}-{target.npm.platform}" in done.stdout.split()


def test_an_unknown_target_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(Refused, match=r"^no target m68k-amiga in targets\.json; there are: x86_64-unknown-"):
        RELEASE.target("m68k-amiga")
