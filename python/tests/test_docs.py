"""Tests of the Python code in the documentation: the pages, and the docstrings of the package.

The page shows how a block is tested:

- An excerpt follows a link to a file, as in ``[`fenced_sql.py`](../python/examples/fenced_sql.py):``. The file has the
  same text, or the section that the site inserts. These tests check that for all languages.
- A program starts with an import. It runs in a process of its own, and must end with exit code 0. Redis-servers of the
  test's own stand in for each of its URLs. pytest runs a program that has a function `test_…`.
- A fragment is any other block. It may use names that the page does not define. A fragment of a docstring runs, too;
  such names are mocks then.

mypy checks programs and fragments: every attribute and every argument must exist. In a fragment, `client` is a
`redlock.Redlock`; in the docstrings of `redlock.asyncio` it is one of that module.

node/test/docs.test.mjs does the same for JavaScript and TypeScript, tests/docs for Rust, DocsTest.kt for Kotlin and
Java.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import subprocess
import sys
import textwrap
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import redlock
from redlock import _native
from servers import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Program = Callable[..., subprocess.Popen[str]]

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted(ROOT.glob("docs/*.md"))]
# The package that is tested: that of the checkout, or an installed one.
PACKAGE = Path(redlock.__file__).parent
STUBS = PACKAGE / "_native.pyi"
# Code whose docstrings are the reference.
SOURCES = [STUBS, *sorted(PACKAGE.glob("**/*.py"))]
CODE = {"python", "js", "ts", "kotlin", "java", "rust"}
# Blocks of these languages hold commands, output and data. No test runs them.
OTHERS = {"sh", "text", "toml", "ini", "xml", "sql", "json", "lua", "yaml", ""}
PYTEST = "import pytest, sys; sys.exit(pytest.main(sys.argv[1:]))"
# Runs a fragment, which may await.
FRAGMENT = """
import ast, asyncio, sys
code = compile(sys.argv[1], sys.argv[2], "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
main = eval(code, {"__name__": "__main__"})
if main is not None:
    asyncio.run(main)
"""
ANY_URL = re.compile(r"\b(?:rediss?|unix)[+\w]*://[^\s\"'`]+")
URL = re.compile(r"redis://[\w.-]+(?::\d+)?")


class Block(NamedTuple):
    """A block of code of a page or of a docstring."""

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
    def is_of_reference(self) -> bool:
        """Whether it is of a docstring."""
        return self.page.startswith("python/redlock/")

    @property
    def module(self) -> str:
        """The module whose `Redlock` a fragment's `client` is."""
        return "redlock.asyncio" if self.page == "python/redlock/asyncio.py" else "redlock"

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


def docstrings_of(page: str, code: str) -> str:
    """The docstrings of Python code, in the lines where they stand. All other lines are empty."""
    lines = code.split("\n")
    kept = [""] * len(lines)
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            assert node.end_lineno
            inside = slice(node.lineno - 1, node.end_lineno)
            unfenced = re.sub(r"(?ms)^( *)```.*?^\1```$", "", "\n".join(lines[inside]))
            assert not re.search(rf"\n\n {{{node.col_offset + 4}}}", unfenced), f"{page}:{node.lineno}: no fence"
            kept[inside] = lines[inside]
    return "\n".join(kept)


def read_blocks(file: Path) -> list[Block]:
    """Every block of code of a page, or of the docstrings of a module."""
    is_source = file.is_relative_to(PACKAGE)
    page = f"python/redlock/{file.relative_to(PACKAGE)}" if is_source else str(file.relative_to(ROOT))
    text = file.read_text(encoding="utf-8")
    return blocks_of(page, text if file.suffix == ".md" else docstrings_of(page, text))


BLOCKS = [block for file in [*PAGES, *SOURCES] for block in read_blocks(file)]
PYTHON = [block for block in BLOCKS if block.language == "python"]
PROGRAMS = [block for block in PYTHON if block.is_program and not block.is_holder]
EXAMPLES = [block for block in PYTHON if block.is_of_reference and not block.is_program]


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


def header_of(block: Block) -> str:
    """The line before a fragment that runs: it defines `client`, and mocks for the reader's own names."""
    used = {node.id for node in ast.walk(ast.parse(block.code)) if isinstance(node, ast.Name)}
    mocks = "".join(f"{name} = " for name in sorted(used - {"redlock", "client", *dir(builtins)}))
    kind = "AsyncMock" if block.module == "redlock.asyncio" else "MagicMock"
    client = f'client = {block.module}.Redlock(os.environ["REDLOCK_URL"])'
    return f"import os, unittest.mock, redlock.asyncio; {client}; {mocks or '_ = '}unittest.mock.{kind}()"


def check_run(block: Block, program: Program, folder: Path) -> None:
    """Run a program or a fragment, and fail if it fails."""
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
        if not block.is_program:
            process = program(FRAGMENT, header_of(block) + code, block.page)
        elif re.search(r"^def test_", code, re.M):
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
        names = f"import redlock, redlock.asyncio; from redlock import Redlock; client: {block.module}.Redlock"
        before = [options, "" if program else names]
        code = block.code
        if not program and block.module == "redlock.asyncio":
            before.append("async def fragment() -> None:")
            code = textwrap.indent(code, "    ")
        assert block.line > len(before), f"{block}: no room for the header"
        file = folder / f"block_{len(files)}.py"
        padding = "\n" * (block.line - len(before) - 1)
        file.write_text("\n".join(before) + "\n" + padding + code, encoding="utf-8")
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


@with_each(EXAMPLES)
def test_example(block: Block, program: Program, tmp_path: Path) -> None:
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


def test_help_of_native_classes() -> None:
    """help() of a native class says what the stubs say, whose examples are tested."""
    compared = 0
    for kind in ast.parse(STUBS.read_text(encoding="utf-8")).body:
        if isinstance(kind, ast.ClassDef):
            native = getattr(_native, kind.name)
            for part, value in [(kind, native), *((one, getattr(native, one.name)) for one in functions_of(kind))]:
                if stub := ast.get_docstring(part):
                    assert inspect.getdoc(value) == stub, f"{kind.name}, line {part.lineno} of {STUBS.name}"
                    compared += 1
    assert compared > 30


def functions_of(kind: ast.ClassDef) -> list[ast.FunctionDef]:
    """The methods and properties of a class."""
    return [part for part in kind.body if isinstance(part, ast.FunctionDef)]


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


DOCSTRING = '''"""A module.

```text
no Python
```
"""


class Lock:
    """A lock.

    ```python
    lease = {call}
    ```
    """

    code = """
```python
no docstring
```
"""
'''


@pytest.mark.parametrize(
    ("page", "call", "error"),
    [
        ("_sync.py", "client.lock('x').acquire() if wanted else report(None)", ""),
        ("_sync.py", "client.lock('').acquire()", "_sync.py.*line 13.*InvalidArgument"),
        ("_sync.py", "client.lock(", "never closed"),
        ("asyncio.py", "await client.lock('x').acquire() if wanted else await report(None)", ""),
        ("asyncio.py", "await client.lock('').acquire()", "asyncio.py.*line 13.*InvalidArgument"),
        ("asyncio.py", "await client.lock('x').acqire()", "acqire"),
    ],
)
def test_broken_example(page: str, call: str, error: str, program: Program, tmp_path: Path) -> None:
    page = f"python/redlock/{page}"
    _, block = blocks_of(page, docstrings_of(page, DOCSTRING.format(call=call)))
    assert block.code == f"lease = {call}\n"
    assert (block.line, block.is_of_reference, block.is_program) == (13, True, False)
    with pytest.raises((AssertionError, SyntaxError), match=f"(?s){error}") if error else nullcontext():
        check_run(block, program, tmp_path)


def test_example_without_a_fence() -> None:
    with pytest.raises(AssertionError, match="module.py:2: no fence"):
        docstrings_of("module.py", 'class Lock:\n    """A lock.\n\n        lock.acquire()\n    """\n')


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
    """The pages are read, and so are the blocks in their tabs and in docstrings."""
    languages = {
        page: {block.language for block in BLOCKS if block.page == page} for page in ("README.md", "docs/quickstart.md")
    }
    assert languages["docs/quickstart.md"] >= {"python", "js", "kotlin", "java", "rust"}
    assert languages["README.md"] >= {"python", "js", "kotlin", "java", "rust"}
    for module in ("__init__.py", "_native.pyi", "_sync.py", "asyncio.py", "compat/redis_py/__init__.py"):
        assert any(block.page == f"python/redlock/{module}" for block in PYTHON), module
