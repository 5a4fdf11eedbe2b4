// Packages of others that tests need: installed by `npm install --no-save --ignore-scripts` in test/fixtures.

import { createRequire } from "node:module";
import { join } from "node:path";
import { PACKAGE } from "./scripts.mjs";

export const FIXTURES = join(PACKAGE, "test/fixtures");

const require = createRequire(join(FIXTURES, "package.json"));

/** The clients that the shim takes its settings from. */
export const { default: Redis, Cluster } = require("ioredis");

/** node-redlock itself. */
export const theirs = require("redlock");

/** A client of ioredis that ends with a test. Without a server it stays silent. */
export function connected(test, ...given) {
  const client = new Redis(...given);
  client.on("error", () => {});
  test.after(() => client.disconnect());
  return client;
}
