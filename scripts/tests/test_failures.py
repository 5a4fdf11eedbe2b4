"""scripts/failures lists the failed tests of each runner, with their messages and the commands that run one alone."""
# ruff: noqa: E501 -- reports, and lists, have long lines

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

NEXTEST = """<testsuites name="nextest-run" tests="3" failures="2" errors="0" time="3.010">
  <testsuite name="redlock-tests::values" tests="3" disabled="0" errors="0" failures="2">
    <testcase name="it_passes" classname="redlock-tests::values" time="0.004"></testcase>
    <testcase name="it_fails" classname="redlock-tests::values" time="0.004">
      <failure message="thread &apos;it_fails&apos; (7) panicked at tests/tests/values.rs:303:5" type="test failure with exit code 101">thread &apos;it_fails&apos; (7) panicked at tests/tests/values.rs:303:5:
assertion `left == right` failed: one and one
  left: 2
 right: 3
stack backtrace:
   0: __rustc::rust_begin_unwind</failure>
      <system-out>running 1 test</system-out>
    </testcase>
    <testcase name="inner::it_hangs" classname="redlock-tests::values" time="3.002">
      <failure type="test timeout"></failure>
    </testcase>
  </testsuite>
</testsuites>"""

NODE = """<testsuites>
<testcase file="test/lock.test.mjs" name="outer &#62; it fails (once)"><failure message="1 == 2">AssertionError: 1 == 2&#10;    at node:assert&#10;    at file:///x/node/test/lock.test.mjs:8:9</failure></testcase>
<testcase file="test/loss.test.mjs" name=""><failure message="test failed">test failed</failure></testcase>
</testsuites>"""

SUREFIRE = """<testsuite name="dev.redlock.LockTest" tests="2" errors="0" failures="1">
  <testcase name="it passes" classname="dev.redlock.LockTest" time="0.02"/>
  <testcase name="it fails, with a comma" classname="dev.redlock.LockTest" time="0.02">
    <failure message="expected: &lt;1&gt; but was: &lt;2&gt;" type="org.opentest4j.AssertionFailedError"><![CDATA[org.opentest4j.AssertionFailedError: expected: <1> but was: <2>
\tat org.junit.jupiter.api.AssertionUtils.fail(AssertionUtils.java:38)
\tat dev.redlock.LockTest.it fails, with a comma(LockTest.kt:13)
]]></failure>
  </testcase>
</testsuite>"""

PYTEST = """import threading, pytest

@pytest.fixture
def broken():
    raise OSError("no server")

class TestAll:
    @pytest.mark.parametrize("what", ["a b", "c"])
    def test_one(self, what):
        assert [1, 2] == [1, 3], what

def test_setup(broken): ...

@pytest.mark.timeout(0.5)
def test_hangs():
    threading.Event().wait()

def test_passes(): ...
"""


def listed(folder: Path, runner: str, report: str, command: list[str], code: int, *, where: str = ".") -> str:
    """The list that a copy of the script prints for a step with this test report."""
    (folder / "scripts").mkdir(exist_ok=True)
    shutil.copy(ROOT / "scripts/failures", folder / "scripts")
    step = {"name": "x", "title": "Tests", "target": "x-test", "folder": where, "command": command}
    step |= {"exit": code, "why": f"exit {code}", "report": [runner, report]}
    result = folder / "result.json"
    result.write_text(json.dumps(step))
    done = subprocess.run([folder / "scripts/failures", result], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1
    return done.stdout


def test_nextest(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(NEXTEST)
    command = [f"{tmp_path}/target/cargo-nextest", "nextest", "run", "--features", "shuttle"]
    assert listed(tmp_path, "nextest", "junit.xml", command, 100).endswith("""== Failed: 2. Not run: 0.\x1b[0m

1. redlock-tests::values it_fails
     thread 'it_fails' (7) panicked at tests/tests/values.rs:303:5:
     assertion `left == right` failed: one and one
       left: 2
      right: 3
   alone: target/cargo-nextest nextest run --features shuttle -E 'binary_id(=redlock-tests::values) & test(=it_fails)'

2. redlock-tests::values inner::it_hangs
     test timeout
   alone: target/cargo-nextest nextest run --features shuttle -E 'binary_id(=redlock-tests::values) & test(=inner::it_hangs)'
""")


def test_node(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(NODE)
    command = ["node", "--test", "--import=./test/limits.mjs", "--test-timeout=9", "test/lock.test.mjs"]
    assert listed(tmp_path, "node", "report.xml", command, 1, where="node").endswith("""== Failed: 2. Not run: 0.\x1b[0m

1. node/test/lock.test.mjs outer > it fails (once)
     AssertionError: 1 == 2
         at file:///x/node/test/lock.test.mjs:8:9
   alone: (cd node && node --test --import=./test/limits.mjs '--test-name-pattern=^it fails \\(once\\)$' test/lock.test.mjs)

2. node/test/loss.test.mjs
     test failed
   alone: (cd node && node --test --import=./test/limits.mjs test/loss.test.mjs)
""")


def test_surefire(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/TEST-dev.redlock.LockTest.xml").write_text(SUREFIRE)
    assert listed(tmp_path, "surefire", "reports", ["mvn", "-q", "surefire:test"], 1).endswith("""== Failed: 1. Not run: 0.\x1b[0m

1. dev.redlock.LockTest it fails, with a comma
     org.opentest4j.AssertionFailedError: expected: <1> but was: <2>
     \tat dev.redlock.LockTest.it fails, with a comma(LockTest.kt:13)
   alone: mvn -q surefire:test '-Dtest=dev.redlock.LockTest#it fails? with a comma'
""")


def test_pytest_itself(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_it.py").write_text(PYTEST)
    (tmp_path / "tests/test_not_importable.py").write_text("import nothing_of_this_name")
    # The options of the Makefile.
    options = ["--rootdir=.", "-o", "junit_family=xunit1", "--junitxml=report.xml", "--continue-on-collection-errors"]
    options.append("--timeout=30")
    done = subprocess.run([sys.executable, "-m", "pytest", *options, "tests"], cwd=tmp_path, stdout=subprocess.PIPE)
    printed = listed(tmp_path, "pytest", "report.xml", [".venv/bin/pytest", "tests"], done.returncode)
    for alone in (
        ".venv/bin/pytest 'tests/test_it.py::TestAll::test_one[a b]'",
        ".venv/bin/pytest 'tests/test_it.py::TestAll::test_one[c]'",
        ".venv/bin/pytest tests/test_it.py::test_setup",
        ".venv/bin/pytest tests/test_it.py::test_hangs",
        ".venv/bin/pytest tests/test_not_importable.py",
    ):
        assert f"   alone: {alone}\n" in printed, printed
    assert "test_passes" not in printed
    for said in (
        "AssertionError: a b",
        "tests/test_it.py:10: AssertionError",
        "OSError: no server",
        "nothing_of_this_name",
    ):
        assert said in printed, printed
    assert "Timeout" in printed


def test_a_report_that_is_cut_off(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text(NEXTEST[:300])
    printed = listed(tmp_path, "nextest", "junit.xml", ["cargo"], 100)
    assert "1. junit.xml cannot be read\n" in printed
