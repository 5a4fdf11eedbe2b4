// Tests the blocks of JavaScript and TypeScript in the documentation: the pages, and the comments of the sources that
// are the reference. The page shows how a block is tested:
//
// - An excerpt follows a link to a file. python/tests/test_docs.py compares the two, and checks the fences of all blocks.
// - A program starts with an import. It runs in a process of its own and must end with exit code 0. Redis-servers of the
//   test's own stand in for its URLs.
// - A fragment is any other block. It may use names that the page does not define. A fragment of the reference runs,
//   too; such names are functions that do nothing then.
//
// The TypeScript compiler checks programs and fragments. In a fragment, `client` is a `Redlock`.

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import ts from "typescript";
import { FIXTURES } from "./foreign.mjs";
import { PACKAGE, run, start } from "./scripts.mjs";
import { Server } from "./servers.mjs";

const ROOT = join(PACKAGE, "..");
const pages = readdirSync(ROOT, { withFileTypes: true })
  .flatMap((entry) =>
    entry.isDirectory() ? [`${entry.name}/README.md`] : entry.name === "README.md" ? [entry.name] : [],
  )
  .concat(readdirSync(join(ROOT, "docs")).map((name) => `docs/${name}`))
  .filter((name) => name.endsWith(".md"));
const references = readdirSync(join(PACKAGE, "src"), { recursive: true })
  .map((name) => `node/src/${name}`)
  .filter((name) => name.endsWith("ts"));

/**
 * @typedef {object} Block A block of code of a page or of the reference, without the indentation of a tab.
 * @property {string} page
 * @property {number} line The line of the page in which the code begins.
 * @property {string} language
 * @property {string} code
 * @property {boolean} isProgram
 */

/**
 * The blocks of a page that are not excerpts.
 *
 * @returns {Block[]}
 */
function blocksOf(page, text, languages = "js|ts") {
  const fences = new RegExp(`^( *)\`\`\`(${languages})\\b.*\\n([^]*?)^\\1\`\`\`$`, "gm");
  return [...text.matchAll(fences)].flatMap(({ index, 1: indent, 2: language, 3: indented }) => {
    const before = text.slice(0, index);
    if (/\[`[^`]+`\]\([^)]+\):\n\n$/.test(before)) return [];
    const code = indented.replace(new RegExp(`^${indent}`, "gm"), "");
    const isProgram = /^(\/\/.*\n|\s)*import /.test(code);
    return [{ page, line: before.split("\n").length + 1, language, code, isProgram }];
  });
}

/** The TSDoc comments of a source, in their lines and without their stars. All other lines are empty. */
const commentsOf = (source) =>
  source.replace(/^ *\/\*\*[\s\S]*?\*\/|.+/gm, (part) =>
    /^ *\/\*\*/.test(part) ? part.replace(/^ *(\/\*\*|\* ?)/gm, "") : "",
  );

const read = (page, languages) => {
  try {
    const text = readFileSync(join(ROOT, page), "utf8");
    return blocksOf(page, page.endsWith(".md") ? text : commentsOf(text), languages);
  } catch (error) {
    // A folder without a README.md.
    if (error.code === "ENOENT") return [];
    throw error;
  }
};
const blocks = [...pages, ...references].flatMap((page) => read(page));
const isOfReference = ({ page }) => page.startsWith("node/src/");
const isHolder = ({ code }) => code.startsWith("// hold.mjs");
const url = /\b(?:rediss?|unix)[+\w]*:\/\/[^\s"'`]+/g;

/** The line before a fragment that runs: it defines the names of the package, `client`, and the reader's own names. */
const header = (names) => `
  import * as redlock from "redlock-core";
  const own = Object.fromEntries(${JSON.stringify(names)}.map((name) => [name, async () => {}]));
  Object.assign(globalThis, own, redlock, { client: new redlock.Redlock(process.env.REDLOCK_URL) });
`;

/** Runs a program to its end, or a fragment that uses these names of the reader's own; fails if it fails. */
async function check(t, block, names = []) {
  const { page, line, language, code, isProgram } = block;
  const where = `${page}:${line}`;
  assert(
    code.includes("://") || !/new Red(is|lock)\(/.test(code),
    `${where}: would use a server that runs already: name a URL`,
  );
  const servers = new Map();
  for (const [one] of code.matchAll(url)) {
    if (one.includes("{") || servers.has(one)) continue;
    assert.match(one, /^redis:\/\/[\w.-]+(:\d+)?$/, `${where}: the tests have no server for ${one}`);
    servers.set(one, await Server.of(t));
  }
  let source = code.replace(url, (one) => servers.get(one)?.url ?? one);
  if (language === "ts") {
    const moduleDetection = ts.ModuleDetectionKind.Force;
    const compilerOptions = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext, moduleDetection };
    source = ts.transpileModule(source, { compilerOptions }).outputText;
  }
  // The clients of ioredis keep a process alive.
  if (source.includes('from "ioredis"')) source += "process.exit();\n";
  // Errors name the line of the page.
  source = (isProgram ? "" : header(names).replaceAll("\n", "")) + "\n".repeat(line - 1) + source;
  const REDLOCK_URL = isOfReference(block) ? (await Server.of(t)).url : undefined;
  // Without NODE_TEST_CONTEXT, a program with tests of its own prints their results as text.
  const env = { NODE_TEST_CONTEXT: undefined, REDLOCK_URL };
  const { code: status, stdout, stderr } = await run(t, source, { cwd: FIXTURES, env });
  assert.equal(status, 0, `${where}:\n${stdout}${stderr}`);
}

/** Names that a fragment may use. */
const ambient = `
  declare var client: import("redlock-core").Redlock;
  declare var lock: typeof import("redlock-core").lock;
  declare var using: typeof import("redlock-core").using;
`;
/** The name of the reader's own that an error calls unknown; undefined if it is a misspelt name from above. */
const unknownName = (code, message) =>
  [2304, 2552, 18004].includes(code) && !/Did you mean '(client|lock|using)'/.test(message)
    ? /'([^']+)'/.exec(message)[1]
    : undefined;

/**
 * The errors that the compiler finds in each block, and the names of the reader's own in each fragment. The lines of the
 * errors are those of the page.
 *
 * @param {Block[]} checked
 * @returns {{ errors: Map<Block, string[]>, names: Map<Block, Set<string>> }}
 */
function typesOf(checked) {
  const options = {
    target: ts.ScriptTarget.ES2022,
    lib: ["lib.es2024.d.ts", "lib.esnext.disposable.d.ts"],
    module: ts.ModuleKind.Node20,
    moduleDetection: ts.ModuleDetectionKind.Force,
    types: ["node"],
    typeRoots: [join(PACKAGE, "node_modules/@types")],
    allowJs: true,
    checkJs: true,
    strict: false,
    noEmit: true,
    skipLibCheck: true,
    // The compiler does not find node-redlock's types by the package's name.
    paths: { redlock: [join(FIXTURES, "node_modules/redlock/dist/index.d.ts")] },
  };
  const file = (name) => join(FIXTURES, name);
  const sources = new Map([[file("ambient.d.cts"), ambient]]);
  const files = new Map();
  for (const block of checked) {
    const name = file(`block${files.size}.${block.language === "ts" ? "mts" : "mjs"}`);
    sources.set(name, "\n".repeat(block.line - 1) + block.code);
    files.set(name, block);
  }
  const host = ts.createCompilerHost(options);
  const { fileExists, readFile, getSourceFile } = host;
  host.fileExists = (name) => sources.has(name) || fileExists(name);
  host.readFile = (name) => sources.get(name) ?? readFile(name);
  host.getSourceFile = (name, version, ...rest) =>
    sources.has(name) ? ts.createSourceFile(name, sources.get(name), version) : getSourceFile(name, version, ...rest);
  const errors = new Map(checked.map((block) => [block, []]));
  const names = new Map(checked.map((block) => [block, new Set()]));
  for (const problem of ts.getPreEmitDiagnostics(ts.createProgram([...sources.keys()], options, host))) {
    const message = ts.flattenDiagnosticMessageText(problem.messageText, "\n");
    const block = files.get(problem.file?.fileName);
    assert(block, `${problem.file?.fileName}: ${message}`);
    const name = block.isProgram ? undefined : unknownName(problem.code, message);
    if (name !== undefined) {
      names.get(block).add(name);
      continue;
    }
    const { line } = problem.file.getLineAndCharacterOfPosition(problem.start);
    errors.get(block).push(`${block.page}:${line + 1}: ${message} (TS${problem.code})`);
  }
  return { errors, names };
}

const types = typesOf(blocks);

for (const block of blocks.filter((block) => block.isProgram && !isHolder(block))) {
  test(`${block.page}:${block.line}: a program`, (t) => check(t, block));
}

for (const block of blocks.filter((block) => isOfReference(block) && !block.isProgram)) {
  test(`${block.page}:${block.line}: an example of the reference`, (t) => check(t, block, [...types.names.get(block)]));
}

test("the types of programs and fragments", async (t) => {
  for (const [{ page, line }, errors] of types.errors) {
    await t.test(`${page}:${line}`, () => assert.deepEqual(errors, []));
  }
});

// Once the first program is killed and its lease over, another one gets in.
test("the quick start: a second program is shut out", async (t) => {
  const holders = blocks.filter(isHolder);
  assert.equal(holders.length, 1);
  const server = await Server.of(t);
  const code = holders[0].code.replace(url, server.url);
  // The page shows the output of the first, the second and the third program. Numbers and names differ.
  const shown = read("docs/quickstart.md", "text").map((block) => block.code);

  const first = start(t, code);
  await first.says("\n");
  const second = await run(t, code);
  assert.equal(second.code, 0, second.stderr);
  first.child.kill("SIGKILL");
  await first.ended;
  const left = Number(server.cli("PTTL", "demo"));
  assert(left > 0 && left <= 5_000, `nothing releases the lock, and its lease is 5 s long, not ${left} ms`);
  server.cli("PEXPIRE", "demo", 1);
  const third = start(t, code);
  await third.says("\n");
  const printed = [first.stdout, second.stdout, third.stdout];
  const masked = (texts) =>
    texts.map((text) => text.replace(/(?<=held by pid )\d+ \(.+\) on .+ for [\d.]+s|\d{2,}/g, "N"));
  assert.deepEqual(masked(printed), masked(shown));
  const [before, after] = [first, third].map(({ stdout }) => BigInt(stdout.trim().split(" ").at(-1)));
  assert(before < after);
});

// ---- the tests above find broken blocks -----------------------------------------------------------------------------

/** A block in a tab of a page, read again. */
function planted(code, language = "js") {
  const inside = code.replace(/^(?=.)/gm, "    ");
  const [block, ...others] = blocksOf(
    "page.md",
    `# Title\n\n=== "Node"\n\n    \`\`\`${language}\n${inside}    \`\`\`\n\nText\n`,
  );
  assert.deepEqual(others, []);
  assert.deepEqual([block.code, block.line], [code, 6]);
  return block;
}

const IMPORT = 'import { Redlock } from "redlock-core";\n\n';
/** @type {[what: string, block: Block, error: RegExp][]} */
const broken = [
  ["an option that does not exist", planted(`${IMPORT}new Redlock("memory://", { watchdoc: 1 });\n`), /watchdoc/],
  ["a failure", planted(`${IMPORT}await new Redlock("redis://a").acquire("");\n`), /InvalidArgument/],
  ["a syntax error", planted(`${IMPORT}await new Redlock("memory://".acquire("x");\n`), /SyntaxError/],
  [
    "in TypeScript",
    planted(`${IMPORT}const x: number = new Redlock("memory://").nothing();\n`, "ts"),
    /nothing is not a f/,
  ],
  [
    "a test that fails",
    planted('import { test } from "node:test";\n\ntest("it", () => {\n  throw new Error("no");\n});\n'),
    /fail 1/,
  ],
  ["no end", planted(`${IMPORT}await new Promise(() => {});\n`), /13/],
  ["no URL", planted('import Redis from "ioredis";\n\nawait new Redis().ping();\n'), /name a URL/],
  ["an unknown URL", planted(`${IMPORT}new Redlock("redis://u:p@a");\n`), /no server for redis:\/\/u:p@a/],
];
for (const [what, block, error] of broken) {
  test(`a broken program: ${what}`, async (t) => {
    assert(block.isProgram);
    await assert.rejects(check(t, block), error);
  });
}

test("broken types", () => {
  const expected = new Map([
    [planted("await client.lock('x', { weight: 1 }).acquire();\n"), /^page.md:6: .*weight/],
    [planted("await client.lock('x', { weight: 1 }).acquire();\n", "ts"), /^page.md:6: .*weight/],
    [planted("await client.aquire('x');\n"), /^page.md:6: .*aquire/],
    [planted("const lease = await client.acquire('x';\n"), /^page.md:6: .*expected/],
    [planted(`${IMPORT}export const later = () => run(Redlock);\n`), /^page.md:8: .*run/],
    [planted("await using('x', (signal) => run(signal.lost));\n"), /^page.md:6: .*lost/],
    [planted("await clientt.acquire('x');\n"), /^page.md:6: .*'clientt'/],
    [planted("await using('x', (signal) => run({ signal, user, at: url }));\n"), /^$/],
  ]);
  for (const [block, errors] of typesOf([...expected.keys()]).errors)
    assert.match(errors.join("\n"), expected.get(block));
});

const COMMENT = `const a = "\`\`\`ts";
/** One line. */
/**
 * Acquires.
 *
 * @example
 * \`\`\`ts
 * CALL
 * \`\`\`
 */
  /**
   * \`\`\`text
   * no code
   * \`\`\`
   */
`;
/** @type {[call: string, error: RegExp | undefined][]} */
const examples = [
  ["await report(await client.acquire('x'));", undefined],
  ["await report(await client.acquire(''));", /InvalidArgument[\s\S]*:8:/],
  ["await client.aquire('x');", /aquire is not a function/],
];
for (const [call, error] of examples) {
  test(`${error ? "a broken example" : "an example"} of the reference: ${call}`, async (t) => {
    const [block, ...others] = blocksOf("node/src/lock.ts", commentsOf(COMMENT.replace("CALL", call)));
    assert.deepEqual([others, block.code, block.line, block.isProgram], [[], `${call}\n`, 8, false]);
    assert(isOfReference(block));
    const checked = check(t, block, ["report"]);
    await (error ? assert.rejects(checked, error) : checked);
  });
}

test("the fences of the reference", () => {
  const rest = (comments) => comments.replace(/^(@example\n)?```(js|ts|text)\n[\s\S]*?^```$/gm, "");
  for (const name of references) {
    const comments = commentsOf(readFileSync(join(ROOT, name), "utf8"));
    assert.doesNotMatch(rest(comments), /```|@example/, `${name}: an example that no test reads`);
  }
  for (const comment of ["@example\nlock();\n", "```\nlock();\n```\n", "```tsx\nlock();\n```\n"])
    assert.match(rest(`${comment}\n\`\`\`ts\nlock();\n\`\`\`\n`), /```|@example/);
});

test("the reader's own names in a fragment", () => {
  const block = planted("const report = await load(url);\nawait client.acquire(report.name);\n");
  assert.deepEqual([...typesOf([block]).names.get(block)], ["load", "url"]);
});

test("excerpts are left to their own test", () => {
  const fence = "```js\nbroken(\n```\n";
  assert.deepEqual(blocksOf("page.md", `[\`x.mjs\`](../node/examples/x.mjs):\n\n${fence}`), []);
  assert.equal(blocksOf("page.md", `[\`x.mjs\`](../node/examples/x.mjs):\n\ntext\n\n${fence}`).length, 1);
});

test("pages are read", () => {
  const reference = ["index", "client", "default", "errors", "lease", "lock", "compat/redlock"];
  const expected = ["README.md", "node/README.md", "docs/quickstart.md", "docs/locks.md"];
  for (const page of [...expected, ...reference.map((name) => `node/src/${name}.ts`)])
    assert(
      blocks.some((block) => block.page === page),
      page,
    );
});
