// Tests of the package in other tools: Jest, Vitest, and TypeScript with several module settings.
// `npm install --no-save --ignore-scripts` in test/fixtures installs them.

import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FIXTURES, program as run } from "./foreign.mjs";
import { PACKAGE } from "./scripts.mjs";
import { Server } from "./servers.mjs";

for (const [runner, ...args] of [
  ["jest", "--rootDir", "jest", "--runInBand", "--detectOpenHandles"],
  ["jest", "--rootDir", "jest", "--runInBand", "--detectLeaks"],
  ["jest", "--rootDir", "jest", "--maxWorkers", "2"],
  ["vitest", "run", "--root", "vitest", "--pool", "forks"],
  ["vitest", "run", "--root", "vitest", "--pool", "threads"],
  ["vitest", "run", "--root", "vitest", "--pool", "vmThreads"],
]) {
  test(`${[runner, ...args].join(" ")} ends by itself, without warnings`, async (t) => {
    const program = join(FIXTURES, "node_modules/.bin", runner);
    assert(existsSync(program), "run `npm install --no-save --ignore-scripts` in node/test/fixtures first");
    const server = await Server.of(t);
    const { status, printed } = await run(program, args, { REDLOCK_URL: server.url });
    assert.equal(status, 0, printed);
    assert.doesNotMatch(printed, /open handle|did not exit|MaxListeners|leak|close timed out|RedlockWarning/i);
    // A worker process may be killed before it releases its locks. With --runInBand, Jest's own process releases them.
    if (args.includes("--runInBand")) assert.deepEqual(server.locks(), []);
  });
}

const TSC = join(PACKAGE, "node_modules/typescript/bin/tsc");

for (const [file, ...options] of [
  ["esm.mts", "--module", "node16"],
  ["cjs.cts", "--module", "node16"],
  ["esm.mts", "--module", "node20"],
  ["plain.ts", "--module", "esnext", "--moduleResolution", "bundler"],
  ["plain.ts", "--module", "preserve", "--moduleResolution", "bundler", "--exactOptionalPropertyTypes"],
]) {
  test(`types: ${file} with ${options.join(" ")}`, async (t) => {
    const out = mkdtempSync(join(FIXTURES, "types/out-"));
    t.after(() => rmSync(out, { recursive: true }));
    const strict = [
      "--ignoreConfig",
      "--strict",
      "--noEmitOnError",
      "--target",
      "es2022",
      "--lib",
      "es2022,esnext.disposable",
    ];
    const roots = ["--types", "node", "--typeRoots", join(PACKAGE, "node_modules/@types"), "--outDir", out];
    const given = [TSC, join("types", file), ...strict, ...roots, ...options];
    const compiled = await run(process.execPath, given);
    assert.equal(compiled.status, 0, compiled.printed);
    if (file === "plain.ts") return;
    // The compiled program runs, even with its `await using` on runtimes that lack it.
    const quiet = "--disable-warning=RedlockWarning"; // of the losses
    const { status, printed } = await run(process.execPath, [quiet, join(out, file.replace("ts", "js"))]);
    assert.equal(status, 0, printed);
    assert.equal(printed, "token bigint, lost lost released, suppressed true\n");
  });
}
