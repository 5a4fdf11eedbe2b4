#!/usr/bin/env node
// Runs a compiled program, which npm installed for this machine in a platform package. package.json names the program.

import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { constants } from "node:os";
import { dirname, join } from "node:path";

const manifest = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8"));
const { program, platforms } = manifest.redlock;
const require = createRequire(import.meta.url);

/** The paths of the installed programs for this machine; on Linux one for each C library. */
function places() {
  const { platform, arch } = process;
  const flavours = { linux: ["-gnu", "-musl"], win32: ["-msvc"] }[platform] ?? [""];
  const file = platform === "win32" ? `${program}.exe` : program;
  return flavours.flatMap((flavour) => {
    try {
      return [join(dirname(require.resolve(`${platforms}-${platform}-${arch}${flavour}/package.json`)), "bin", file)];
    } catch {
      return [];
    }
  });
}

function run([place, ...others]) {
  if (place === undefined) {
    console.error(
      `${manifest.name} has no program for ${process.platform}-${process.arch}: install it again without --omit=optional, ` +
        `on the machine that runs it`,
    );
    process.exit(1);
  }
  const child = spawn(place, process.argv.slice(2), { stdio: "inherit" });
  // Forward SIGTERM and SIGHUP to the program. A terminal sends SIGINT and SIGQUIT to both processes: ignore them here.
  for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  for (const signal of ["SIGINT", "SIGQUIT"]) process.on(signal, () => {});
  // The program cannot be started, perhaps because it needs the other C library: try the next one.
  child.once("error", () => run(others));
  child.once("exit", (code, signal) => process.exit(signal === null ? code : 128 + constants.signals[signal]));
}

run(places());
