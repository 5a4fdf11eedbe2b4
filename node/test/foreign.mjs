// Third-party packages that tests need. `npm install --no-save --ignore-scripts` in test/fixtures installs them.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { join } from "node:path";
import { PACKAGE } from "./scripts.mjs";

export const FIXTURES = join(PACKAGE, "test/fixtures");

const require = createRequire(join(FIXTURES, "package.json"));

/** The client classes from which the drop-in takes its settings. */
export const { default: Redis, Cluster } = require("ioredis");

/** node-redlock itself. */
export const theirs = require("redlock");

/** An ioredis client that disconnects when the test ends. It ignores connection errors. */
export function connected(test, ...given) {
  const client = new Redis(...given);
  client.on("error", () => {});
  test.after(() => client.disconnect());
  return client;
}

/** Runs a program in the folder of these packages to its end. Resolves with its status and output. */
export async function program(command, args, env = {}) {
  const child = spawn(command, args, { cwd: FIXTURES, env: { ...process.env, CI: "1", NO_COLOR: "1", ...env } });
  let printed = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => {
      printed += text;
    });
  }
  const [status] = await once(child, "close");
  return { status, printed };
}
