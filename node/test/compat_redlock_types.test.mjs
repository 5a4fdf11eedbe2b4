// Compiles and runs a program that was written for node-redlock, with only the package's name replaced. It compiles
// strictly, as a module of both kinds, and has the same types and results as with node-redlock itself.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { FIXTURES, program } from "./foreign.mjs";
import { PACKAGE } from "./scripts.mjs";
import { Server } from "./servers.mjs";

const TSC = join(PACKAGE, "node_modules/typescript/bin/tsc");
const OURS = "redlock-core/compat/redlock";

/** @type {[name: string, kinds: string[], options: Record<string, unknown>][]} */
const programs = [
  // The compiler does not find node-redlock's types by the package's name: `paths` names their file.
  [
    "redlock",
    ["mts"],
    { module: "node16", paths: { redlock: [join(FIXTURES, "node_modules/redlock/dist/index.d.ts")] } },
  ],
  [OURS, ["mts", "cts"], { module: "node16", exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true }],
  [OURS, ["ts"], { module: "preserve", moduleResolution: "bundler" }],
];

for (const [name, kinds, options] of programs) {
  test(`${name} in .${kinds} with ${options.module}`, async (t) => {
    const out = mkdtempSync(join(FIXTURES, "types/out-"));
    t.after(() => rmSync(out, { recursive: true }));
    const source = readFileSync(join(FIXTURES, "types/moved.txt"), "utf8").replace('from "redlock"', `from "${name}"`);
    for (const kind of kinds) writeFileSync(join(out, `moved.${kind}`), source);
    writeFileSync(join(out, "package.json"), '{ "type": "module" }');
    symlinkSync(join(PACKAGE, "node_modules/@types"), join(out, "types"));
    const compilerOptions = {
      ...{ strict: true, noEmitOnError: true, target: "es2022", lib: ["es2023"] },
      ...{ types: ["node"], typeRoots: [join(out, "types")], skipLibCheck: false, ...options },
    };
    writeFileSync(join(out, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["moved.*"] }));
    const compiled = await program(process.execPath, [TSC, "--project", out]);
    assert.equal(compiled.status, 0, compiled.printed);
    for (const kind of kinds) {
      const server = await Server.of(t);
      const file = join(out, `moved.${kind.replace("ts", "js")}`);
      const { status, printed } = await program(process.execPath, [file, String(server.port)]);
      assert.equal(status, 0, printed);
      assert.equal(printed, "2 32 true, ExecutionError 1 1 1 0 ResourceLockedError, true 1 2\nfalse 5\n");
    }
  });
}
