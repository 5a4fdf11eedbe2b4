// Builds the package in place: node scripts/build.mjs [--dev | --javascript]
//
// Compiles src/ into dist/, and the native module, in the release profile or with --dev in the development profile
// (the same code, a tenth of the build time), into dist/redlock-core.node. --javascript leaves the native module out.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

const here = join(dirname(fileURLToPath(import.meta.url)), "..");
const dist = join(here, "dist");

function run(command, args, options) {
  const { status, error, stdout } = spawnSync(command, args, { cwd: here, stdio: "inherit", ...options });
  if (error !== undefined) throw error;
  if (status !== 0) process.exit(status ?? 1);
  return stdout;
}

/** Builds the native module and returns where cargo put it. */
function cargo(profile) {
  const args = ["build", "--quiet", "--locked", "--package", "redlock-node", "--profile", profile];
  args.push("--manifest-path", join(here, "../bindings/node/Cargo.toml"), "--message-format=json-render-diagnostics");
  const messages = run("cargo", args, { stdio: ["ignore", "pipe", "inherit"], maxBuffer: 2 ** 28, encoding: "utf8" });
  const made = messages
    .split("\n")
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line))
    .findLast((message) => message.reason === "compiler-artifact" && message.target.name === "redlock_node");
  return made.filenames.find((name) => /\.(so|dylib|dll)$/.test(name));
}

/** The files in a folder and in those below it, relative to it. */
function files(folder) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries.filter((entry) => entry.isFile()).map((entry) => relative(folder, join(entry.parentPath, entry.name)));
}

function same(one, other) {
  return existsSync(other) && readFileSync(one).equals(readFileSync(other));
}

/** Compiles src/ into dist/. A file that stays the same is not touched: programs may be running from it. */
function compile() {
  const fresh = join(dist, `fresh-${process.pid}`);
  process.on("exit", () => rmSync(fresh, { recursive: true, force: true }));
  const tsc = createRequire(import.meta.url).resolve("typescript/bin/tsc");
  run(process.execPath, [tsc, "--project", here, "--outDir", fresh]);
  const made = new Set(files(fresh));
  // Files whose source is gone.
  const stale = files(dist).filter((name) => !name.endsWith(".node") && !name.startsWith("fresh-") && !made.has(name));
  for (const name of stale) rmSync(join(dist, name));
  for (const name of made) {
    if (same(join(fresh, name), join(dist, name))) continue;
    mkdirSync(dirname(join(dist, name)), { recursive: true });
    renameSync(join(fresh, name), join(dist, name));
  }
}

compile();
if (!process.argv.includes("--javascript")) {
  const made = cargo(process.argv.includes("--dev") ? "dev" : "release");
  // Renamed, not overwritten: a process may have the old file mapped.
  const fresh = join(dist, `fresh-${process.pid}.node`);
  copyFileSync(made, fresh);
  renameSync(fresh, join(dist, "redlock-core.node"));
}
