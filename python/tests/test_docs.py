"""Tests of the Python code in the documentation.

The page shows how a block is tested:

- An excerpt follows a link to a file, as in ``[`fenced_sql.py`](../python/examples/fenced_sql.py):``. The file has the
  same text, or the section that the site inserts. These tests check that for all languages.
- A program starts with an import. It runs in a process of its own, and must end with exit code 0. Redis-servers of the
  test's own stand in for each of its URLs. pytest runs a program that has a function `test_…`.
- A fragment is any other block. It may use names that the page does not define.

mypy checks programs and fragments: every attribute and every argument must exist. In a fragment, `client` is a
`redlock.Redlock`.

node/test/docs.test.mjs does the same for JavaScript and TypeScript, tests/docs for Rust, DocsTest.kt for Kotlin and
Java.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Program = Callable[..., subprocess.Popen[str]]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted(ROOT.glob("docs/*.md"))]
CODE = {"python", "js", "ts", "kotlin", "java", "rust"}
# Blocks of these languages hold commands, output and data. No test runs them.
OTHERS = {"sh", "text", "toml", "xml", "sql", "json", "lua", "yaml", ""}
PYTEST = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
ANY_URL = re.compile(r"\b(?:rediss?|unix)[+\w]*://[^\s\"'`]+")
URL = re.compile(r"redis://[\w.-]+(?::\d+)?")


class Block(NamedTuple):
    """A block of code of a page."""

    page: str
    line: int  # of its first line of code
    language: str
    code: str
    file: str | None  # that it is an excerpt of

    @property
    def is_excerpt(self) -> bool:
        return self.file is not None

    @property
    def is_program(self) -> bool:
        """Whether its first line of code is an import; see the module's docstring."""
        return not self.is_excerpt and re.match(r"(#.*\n|\s)*(import|from) ", self.code) is not None

    @property
    def runs_here(self) -> bool:
        """Whether this Python is new enough: a first line `# Python 3.11 or newer` says which one the block needs."""
        least = re.match(r"# Python 3\.(\d+) or newer\n", self.code)
        return least is None or sys.version_info >= (3, int(least[1]))

    @property
    def is_holder(self) -> bool:
        """Whether it is the program of the quick start that holds a lock until it is killed."""
        return self.code.startswith("# hold.py")

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    """Every block of code of a page, without the indentation of a tab or a list."""
    found = []
    lines = iter(enumerate(text.split("\n"), 1))
    excerpt_of = None
    for number, line in lines:
        opening = re.fullmatch(r"( *)```([a-z]*)(?:,[a-z_,]*)?", line)
        if opening is None:
            assert not re.search("```|^ *~~~", line), (
                f"{page}:{number}: a fence that the tests of the documentation do not understand"
            )
            if line.strip():
                link = re.search(r"\[`[^`]+`\]\(([^)#]+)\):$", line)
                excerpt_of = link and link[1]
            continue
        indent, language = opening.groups()
        assert language in CODE | OTHERS, f"{page}:{number}: no block may have the language {language}"
        code = []
        for at, inner in lines:
            if inner == f"{indent}```":
                break
            assert inner.startswith(indent) or not inner.strip(), f"{page}:{at}: less indented than its block"
            assert "```" not in inner, f"{page}:{at}: a fence inside of a block"
            code.append(inner[len(indent) :])
        else:
            raise AssertionError(f"{page}:{number}: the block does not end")
        file = excerpt_of and str((ROOT / page).parent / excerpt_of)
        found.append(Block(page, number + 1, language, "\n".join([*code, ""]), file))
        excerpt_of = None
    return found


BLOCKS = [block for page in PAGES for block in blocks_of(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PROGRAMS = [block for block in PYTHON if block.is_program and not block.is_holder]


def check_excerpt(block: Block) -> None:
    """Fail unless the file has all parts of an excerpt; a line `...` stands for what is left out."""
    assert block.file is not None
    text = Path(block.file).read_text(encoding="utf-8")
    snippet = re.fullmatch(r'--8<-- "([^":]+)(?::(\w+))?"\n', block.code)
    if snippet:  # the site inserts the text
        file, section = snippet.groups()
        assert (ROOT / file).samefile(block.file), f"{block}: inserts {file} below a link to {block.file}"
        assert not section or text.count(f"--8<-- [start:{section}]\n") == 1, f"{block}: no section {section} in {file}"
        return
    for part in re.split(r"\n\n\.\.\.\n\n+", block.code.rstrip("\n")):
        assert part in text, f"{block}: not in {block.file}:\n{part}"


def check_run(block: Block, program: Program, folder: Path) -> None:
    """Run a program, and fail if it fails."""
    makes_client = re.search(r"\b(Redis|Redlock)\(", block.code)
    assert "://" in block.code or not makes_client, f"{block}: would use a server that runs already: name a URL"
    # A URL with a name in braces is made by the program, for a server of its own.
    urls = {url for url in ANY_URL.findall(block.code) if "{" not in url}
    for url in urls:
        assert URL.fullmatch(url), f"{block}: the tests have no server for {url}"
    with ExitStack() as servers:
        started = {url: servers.enter_context(Server()).url for url in urls}
        code = ANY_URL.sub(lambda match: started.get(match[0], match[0]), block.code)
        # Errors name the line of the page.
        code = "\n" * (block.line - 1) + code
        if re.search(r"^def test_", code, re.M):
            file = folder / "test_block.py"
            file.write_text(code, encoding="utf-8")
            process = program(PYTEST, "-q", "-p", "no:cacheprovider", str(file))
        else:
            process = program(code)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, f"{block}:\n{out}{err}"
    assert "Exception ignored" not in err, f"{block}:\n{err}"


def check_types(blocks: Iterable[Block], folder: Path) -> dict[Block, list[str]]:
    """Check blocks with mypy; return the errors of each. Lines in the errors are those of the page."""
    files = {}
    errors: dict[Block, list[str]] = {}
    for block in blocks:
        # After a syntax error mypy checks no other file.
        try:
            compile(block.code, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        except SyntaxError as error:
            errors[block] = [f"{block.page}:{block.line - 1 + (error.lineno or 1)}: {error.msg}"]
            continue
        program = block.is_program
        ignored = "" if program else ', "name-defined", "top-level-await"'
        # A program for redis-py may replace its class.
        options = f'# mypy: disable-error-code="misc, assignment{ignored}"'
        names = "import redlock, redlock.asyncio; from redlock import Redlock; client: Redlock"
        before = [options, "" if program else names]
        assert block.line > len(before), f"{block}: no room for the header"
        file = folder / f"block_{len(files)}.py"
        padding = "\n" * (block.line - len(before) - 1)
        file.write_text("\n".join(before) + "\n" + padding + block.code, encoding="utf-8")
        files[file.name] = block
    (folder / "mypy.ini").write_text("[mypy]\ncheck_untyped_defs = True\nstrict_optional = False\n")
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--no-error-summary", "--hide-error-context"]
    done = subprocess.run([*command, *files], cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors |= {block: [] for block in files.values()}
    for line in done.stdout.splitlines():
        file, said = line.split(":", 1)
        block = files[file]
        errors[block].append(f"{block.page}:{said}")
    return errors


@pytest.fixture(scope="session")
def type_errors(tmp_path_factory: pytest.TempPathFactory) -> dict[Block, list[str]]:
    """The errors that mypy finds in programs and fragments."""
    return check_types(
        [block for block in PYTHON if block.runs_here and not block.is_excerpt], tmp_path_factory.mktemp("blocks")
    )


def with_each(blocks: list[Block]) -> pytest.MarkDecorator:
    """Run a test with each block."""
    return pytest.mark.parametrize("block", blocks, ids=str)


def needs_new_python(block: Block) -> None:
    """Skip a block that this Python is too old for."""
    if not block.runs_here:
        pytest.skip(block.code.splitlines()[0])


@with_each([block for block in BLOCKS if block.is_excerpt])
def test_excerpt(block: Block) -> None:
    check_excerpt(block)


@with_each(PROGRAMS)
def test_program(block: Block, program: Program, tmp_path: Path) -> None:
    needs_new_python(block)
    check_run(block, program, tmp_path)


@with_each([block for block in PYTHON if not block.is_excerpt])
def test_types(block: Block, type_errors: dict[Block, list[str]]) -> None:
    needs_new_python(block)
    assert not type_errors[block], "\n".join(type_errors[block])


def test_holder(program: Program, server: Server) -> None:
    """The quick start's program shuts out a second one; once it is killed and its lease over, another one gets in."""
    (block,) = (block for block in PYTHON if block.is_holder)
    code, replaced = URL.subn(server.url, block.code)
    assert replaced == 1
    # The page shows the output of the first, the second and the third program. Numbers and names differ.
    shown = [block.code for block in BLOCKS if block.page == "docs/quickstart.md" and block.language == "text"]
    number = re.compile(r"(?<=held by pid )\d+ \(.+\) on .+ for [\d.]+s|\d{2,}")

    first = program(code)
    printed = [first.stdout.readline()]
    second = program(code)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, err
    printed.append(out)
    first.kill()
    first.wait(60)
    assert 0 < int(server.cli("PTTL", "demo")) <= 5000, "nothing releases the lock, and its lease is 5 s long"
    server.cli("PEXPIRE", "demo", "1")
    printed.append(program(code).stdout.readline())
    assert [number.sub("N", line) for line in printed] == [number.sub("N", line) for line in shown]
    tokens = [int(printed[at].split()[-1]) for at in (0, 2)]
    assert tokens[0] < tokens[1]


# ---- the tests above find broken blocks -----------------------------------------------------------------------------

HEAD = "# Title\n\nText.\n\n"


def planted(code: str, language: str = "python") -> Block:
    """Put a block into a tab of a page, and read it again."""
    inside = "".join(f"    {line}\n" for line in code.splitlines())
    (block,) = blocks_of("page.md", f'{HEAD}=== "Python"\n\n    ```{language}\n{inside}    ```\n')
    assert block.code == code
    return block


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ('import redlock\nredlock.Redlock("memory://", watchdoc=1)\n', "watchdoc"),
        ('# comment\n\nfrom redlock import Redlock\nRedlock("redis://a").lock("x").acqire()\n', "line 11.*acqire"),
        ('import redlock\nwith redlock.Redlock("memory://").lock("x" as lease:\n    pass\n', "SyntaxError"),
        ("import redlock\n\n\ndef test_fails():\n    assert redlock.LockTimeout is None\n", "1 failed"),
        ("import redis\n\nredis.Redis().ping()\n", "name a URL"),
        ('import redlock\nredlock.Redlock("redis://u:p@a:1").ping()\n', "no server for redis://u:p@a:1"),
    ],
)
def test_broken_program(code: str, error: str, program: Program, tmp_path: Path) -> None:
    block = planted(code)
    assert block.is_program
    with pytest.raises(AssertionError, match=f"(?s){error}"):
        check_run(block, program, tmp_path)


def test_broken_types(tmp_path: Path) -> None:
    blocks = {
        planted("async with client.lock('x') as lease:\n    ...\n"): 'no attribute "__aenter__"',
        planted("redlock.lock('x', weight=1)\n"): '"weight"',
        planted("with redlock.semafore('x', 1):\n    ...\n"): '"semafore"',
        planted("client.lock('x').acquire().tokken\n"): '"tokken"',
        planted("lease = client.lock('x'\n"): "never closed",
        planted("import redlock\n\n\ndef later():\n    run(redlock.lock('x'))\n"): '"run" is not defined',
        planted(
            "# the names of the reader's own are known\nwith client.lock(name) as lease:\n    run(lease.token)\n"
        ): "",
    }
    errors = check_types(blocks, tmp_path)
    for block, expected in blocks.items():
        said = "\n".join(errors[block])
        if expected:
            assert expected in said
            last = block.line + len(block.code.splitlines()) - 1
            assert last - 1 <= int(said.split(":")[1]) <= last, said
        else:
            assert not said


def test_broken_excerpt() -> None:
    text = (
        "[`x`](docs/quickstart.md):\n\n```text\nkill -9 4711\n\n...\n\n## 5. Next\n```\n\n```text\nkill -9 4711\n```\n"
    )
    quoted, not_quoted = blocks_of("page.md", text)
    check_excerpt(quoted)
    assert not not_quoted.is_excerpt
    with pytest.raises(AssertionError, match="not in"):
        check_excerpt(quoted._replace(code=quoted.code.replace("Next", "Last")))


@pytest.mark.parametrize(
    ("code", "error"),
    [('"x.py:a"', ""), ('"x.py"', ""), ('"x.py:b"', "no section b"), ('"README.md"', "inserts README.md below a link")],
)
def test_broken_snippet(code: str, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "README.md").touch()
    (tmp_path / "x.py").write_text("# --8<-- [start:a]\n1\n# --8<-- [end:a]\n")
    (block,) = blocks_of("page.md", f"[`x.py`](x.py):\n\n```python\n--8<-- {code}\n```\n")
    with pytest.raises(AssertionError, match=error) if error else nullcontext():
        check_excerpt(block)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```pyhton\nimport redlock\n```\n", "page.md:5: no block may"),
        ("```python\nimport redlock\n", "page.md:5: the block does not end"),
        ("~~~python\nimport redlock\n~~~\n", "page.md:5: a fence that"),
        ("```python\nimport redlock\n    ```\n", "page.md:7: a fence inside"),
        ("    ```python\n  import redlock\n    ```\n", "page.md:6: less indented"),
        ("> ```python\n> import redlock\n> ```\n", "page.md:5: a fence that"),
        ('```{.python title="x"}\nimport redlock\n```\n', "page.md:5: a fence that"),
    ],
)
def test_broken_page(text: str, error: str) -> None:
    with pytest.raises(AssertionError, match=error):
        blocks_of("page.md", HEAD + text)


def test_every_language_is_found() -> None:
    """The pages are read, and so are the blocks in their tabs."""
    languages = {
        page: {block.language for block in BLOCKS if block.page == page} for page in ("README.md", "docs/quickstart.md")
    }
    assert languages["docs/quickstart.md"] >= {"python", "js", "kotlin", "java", "rust"}
    assert languages["README.md"] >= {"python", "js", "kotlin", "java", "rust"}
