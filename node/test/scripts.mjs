// Runs scripts in processes of their own, for tests of the end of a process.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

/** The folder of the package. Scripts run in it, so that they find the package by its name. */
export const PACKAGE = join(dirname(fileURLToPath(import.meta.url)), "..");

/**
 * Starts a script, given as its source: an ES module, with `args` as `process.argv.slice(1)`. It finds packages as a file
 * of the folder `cwd` would. It is killed when the test ends.
 *
 * @param {import("node:test").TestContext} test
 * @param {string} source
 * @param {{ args?: string[], flags?: string[], env?: Record<string, string>, cwd?: string }} [options]
 */
export function start(test, source, { args = [], flags = [], env = {}, cwd = PACKAGE } = {}) {
  const child = spawn(process.execPath, [...flags, "--input-type=module", "--eval", source, "--", ...args], {
    cwd,
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const running = { child, stdout: "", stderr: "", ended: undefined, says: undefined };
  for (const stream of ["stdout", "stderr"]) {
    child[stream].setEncoding("utf8").on("data", (text) => {
      running[stream] += text;
    });
  }
  running.ended = once(child, "close").then(([code, signal]) => ({ ...running, code, signal }));
  running.says = async (text) => {
    while (!running.stdout.includes(text)) {
      const ended = await Promise.race([once(child.stdout, "data"), running.ended]);
      if (!Array.isArray(ended)) throw new Error(`ended without saying ${text}: ${running.stdout}${running.stderr}`);
    }
  };
  test.after(() => child.kill("SIGKILL"));
  return running;
}

/**
 * Runs a script to its end.
 *
 * @param {import("node:test").TestContext} test
 * @param {string} source
 * @param {{ args?: string[], flags?: string[], env?: Record<string, string>, cwd?: string }} [options]
 */
export async function run(test, source, options) {
  return await start(test, source, options).ended;
}
