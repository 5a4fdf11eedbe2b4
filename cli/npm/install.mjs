// Builds the program when the package is installed from a checkout of the repository, which needs Rust.
// REDLOCK_PROFILE=dev builds it in a fraction of the time.

import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = join(dirname(fileURLToPath(import.meta.url)), "..");
const dev = process.env.REDLOCK_PROFILE === "dev";
const args = [
  "build",
  "--package",
  "redlock-cli",
  "--message-format=json-render-diagnostics",
  ...(dev ? [] : ["--release"]),
];
const options = { cwd: here, stdio: ["ignore", "pipe", "inherit"], encoding: "utf8", maxBuffer: 1 << 28 };
const { status, error, stdout } = spawnSync("cargo", args, options);
if (error !== undefined) {
  console.error(`redlock-cli: cannot run cargo: ${error.message}; install Rust 1.88 or newer from https://rustup.rs`);
  process.exit(1);
}
if (status !== 0) {
  console.error("redlock-cli: cargo failed; see its messages above");
  process.exit(1);
}
const artifacts = stdout
  .split("\n")
  .filter((line) => line.startsWith("{"))
  .map((line) => JSON.parse(line));
const program = artifacts.findLast(
  (artifact) => artifact.target?.name === "redlock" && artifact.executable,
)?.executable;
mkdirSync(join(here, "npm/bin"), { recursive: true });
copyFileSync(program, join(here, "npm/bin", process.platform === "win32" ? "redlock.exe" : "redlock"));
