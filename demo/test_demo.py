"""A short form of the demo must succeed and report all events."""

import re
import subprocess
import sys
from pathlib import Path


def test_the_demo_keeps_every_promise() -> None:
    command = [sys.executable, str(Path(__file__).with_name("demo.py")), "--seconds", "16", "--workers", "4"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = dict(re.findall(r"│ (.+?) +│ +(\S+)", done.stdout))
    assert int(rows["grants"]) > 50, done.stdout
    assert (rows["overlaps"], rows["lost updates"], rows["tokens out of order"]) == ("0", "0", "0"), done.stdout
    grants = dict(re.findall(r"│ (.+?) +│ +[12] │ +(\d+) │", done.stdout))
    assert list(grants) == ["Python", "Node", "Python asyncio", "Kotlin"], done.stdout
    assert all(int(count) > 0 for count in grants.values()), done.stdout
    for event in ("is frozen", "is thawed", "is killed", "in quarantine", "killed with -9"):
        assert event in done.stdout, done.stdout
