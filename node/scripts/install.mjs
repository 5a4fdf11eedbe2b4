// Builds the native module when the package is installed from a checkout of the repository, which needs Rust.
// REDLOCK_PROFILE=dev builds it in a tenth of the time, but it runs slower. The published package runs no script: it
// depends on a package with the compiled module.

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = join(dirname(fileURLToPath(import.meta.url)), "..");
const require = createRequire(import.meta.url);

function run(command, ...args) {
  console.log(`redlock-core: ${[command, ...args].join(" ")}`);
  // Without the options of the outer npm, such as --global, which are not meant for the inner one.
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !/^npm_/i.test(name)));
  const { status, error } = spawnSync(command, args, { cwd: here, stdio: "inherit", env });
  if (error !== undefined) fail(`cannot run ${command}: ${error.message}`);
  if (status !== 0) fail(`${command} failed; see its messages above`);
}

function fail(message) {
  console.error(`redlock-core: ${message}`);
  process.exit(1);
}

/** The reason why the native module cannot be loaded, or undefined if it can. */
function missing() {
  try {
    require("../dist/native.js");
    return undefined;
  } catch (error) {
    return error.message;
  }
}

function has(command) {
  return spawnSync(command, ["--version"], { stdio: "ignore" }).status === 0;
}

if (has("cargo") || missing() !== undefined) {
  if (!has("cargo")) fail("building it needs Rust 1.88 or newer; install it from https://rustup.rs and try again");
  if (!existsSync(join(here, "node_modules/typescript"))) {
    const npm = process.env.npm_execpath ?? "";
    const [command, ...args] = npm.endsWith("npm-cli.js") ? [process.execPath, npm] : ["npm"];
    run(command, ...args, "ci", "--ignore-scripts", "--include=dev", "--no-audit", "--no-fund");
  }
  run(process.execPath, "scripts/build.mjs", ...(process.env.REDLOCK_PROFILE === "dev" ? ["--dev"] : []));
}
const cause = missing();
if (cause !== undefined) fail(cause);
