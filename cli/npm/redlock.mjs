#!/usr/bin/env node
// Starts the program, which npm installed for this machine in a platform package. Where Node can, the program takes the
// place of this process: signals and the exit code need no help then, and no process is left behind. Elsewhere this
// process forwards signals and ends as the program does.

import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const name = process.platform === "win32" ? "redlock.exe" : "redlock";
const machine = `${process.platform}-${process.arch}`;
const FORWARDED = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH"];

/** Prints why there is no program to start, and what to do. */
function fail(reason) {
  console.error(`redlock: ${reason}`);
  process.exit(70);
}

/** The path of the program: built in a checkout by install.mjs, or in a package for this machine. */
function find() {
  const built = fileURLToPath(new URL(`bin/${name}`, import.meta.url));
  if (existsSync(built)) return built;
  const manifest = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  if (manifest.optionalDependencies === undefined) {
    return fail(`${built} is missing. Install the package with scripts: npm install --foreground-scripts`);
  }
  const packages = Object.keys(manifest.optionalDependencies).filter((dependency) =>
    `${dependency}-`.includes(`-${machine}-`),
  );
  if (packages.length === 0)
    return fail(`no package has a program for ${machine}. Build one: cargo install redlock-cli`);
  const require = createRequire(import.meta.url);
  // The last name is that for musl. Its program is static and runs with every C library, so it comes first if a package
  // manager installed both.
  for (const dependency of packages.sort().reverse()) {
    try {
      return join(dirname(require.resolve(`${dependency}/package.json`)), "bin", name);
    } catch {}
  }
  return fail(
    `the program for ${machine} is not installed. Install ${manifest.name} again on this machine, without ` +
      "--omit=optional. If it stays away, a lock file of another machine leaves it out: delete node_modules and the " +
      "lock file, and install again",
  );
}

const program = find();

if (typeof process.execve === "function" && process.platform !== "win32") {
  // execve is experimental, and its warning would be on stderr.
  process.removeAllListeners("warning");
  process.execve(program, [name, ...process.argv.slice(2)], process.env);
}

// Before the program starts: a signal must never end this process alone.
const handlers = FORWARDED.filter((signal) => process.platform !== "win32" || signal === "SIGINT").map((signal) => {
  const forward = () => child.kill(signal);
  process.on(signal, forward);
  return [signal, forward];
});
const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => fail(`cannot start ${program}: ${error.message}`));
child.on("exit", (code, signal) => {
  for (const [forwarded, forward] of handlers) process.off(forwarded, forward);
  if (signal !== null) process.kill(process.pid, signal);
  else process.exit(code);
});
