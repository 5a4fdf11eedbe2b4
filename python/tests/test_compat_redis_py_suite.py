"""Runs redis-py's own tests of its locks on the compatible locks.

pip fetches the source distribution of the installed redis-py once; it contains the tests. The tests in `NOT_RUN` check
how a wait is implemented and not its result. Each has its reason there, with our own test that replaces it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

if TYPE_CHECKING:
    from servers import Server

CLOCK = (
    "replaces the clock of redis.lock, and counts the calls of its sleep: the core waits otherwise. "
    "test_compat_redis_py has how long it waits instead"
)
NOT_RUN = {
    "tests/test_lock.py::TestLock::test_blocking_timeout": CLOCK,
    "tests/test_lock.py::TestLock::test_context_manager_blocking_timeout": CLOCK,
    "tests/test_asyncio/test_lock.py::TestLock::test_blocking_timeout": CLOCK,
}
# The numbers of tests in redis-py 8; an older version may have fewer.
LEAST = {"tests/test_lock.py": 25, "tests/test_asyncio/test_lock.py": 50}


# Packages that redis-py's tests need. They have a folder of their own: otherwise, pytest-asyncio would be a plugin of
# every other test suite too.
TOOLS = ["pytest", "pytest-asyncio", "packaging"]


def pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def suite() -> tuple[Path, Path]:
    """Return the folders of redis-py's sources, tests included, and of the tools that they need."""
    name = f"redis-{redis.__version__}"
    folder = Path(sys.prefix) / "peers"
    folder.mkdir(exist_ok=True)
    if not (folder / "tools").exists():
        with tempfile.TemporaryDirectory(dir=folder) as fetched:
            pip("install", "--target", fetched, *TOOLS)
            Path(fetched).rename(folder / "tools")
            Path(fetched).mkdir()
    if not (folder / name).exists():
        with tempfile.TemporaryDirectory(dir=folder) as fetched:
            pip("download", "--no-deps", "--no-binary", ":all:", "--dest", fetched, f"redis=={redis.__version__}")
            (archive,) = Path(fetched).glob("*.tar.gz")
            with tarfile.open(archive) as contents:
                contents.extractall(fetched, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
            (Path(fetched) / name).rename(folder / name)
    return folder / name, folder / "tools"


@pytest.mark.parametrize("path", LEAST)
def test_redis_py_passes_its_own_tests_with_this_lock(path: str, server: Server, tmp_path: Path) -> None:
    (sources, tools), report = suite(), tmp_path / "report.xml"
    # Only the tests are linked, so that they import the installed package.
    (tmp_path / "tests").symlink_to(sources / "tests")
    not_run = [option for test in NOT_RUN for option in ("--deselect", test)]
    command = [sys.executable, "-m", "pytest", "-p", "redis_py_swapped", "-p", "no:cacheprovider", path, *not_run]
    options = ["--asyncio-mode=auto", f"--redis-url={server.url}/9", f"--rootdir={tmp_path}", f"--junitxml={report}"]
    done = subprocess.run(
        [*command, *options, "-c", os.devnull, "-q"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{Path(__file__).parent}:{tools}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = ET.parse(report).getroot()
    ran = {name: int(result.attrib[name]) for name in ("tests", "skipped", "failures", "errors")}
    assert ran["skipped"] == ran["failures"] == ran["errors"] == 0, ran
    assert ran["tests"] >= LEAST[path]
    print(f"redis-py {redis.__version__}, {path}: {ran['tests']} passed")
