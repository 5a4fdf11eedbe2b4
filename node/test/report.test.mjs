// Tests of report.mjs, which gives `make test` the failed tests of Node by file and name, even those that hang.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { PACKAGE } from "./scripts.mjs";

/** The file, name and message of each test that is reported as failed. */
function reported(file) {
  const { NODE_TEST_CONTEXT: _, ...environment } = process.env;
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ["--test", "--import=./test/limits.mjs", "--test-reporter=./test/report.mjs", file],
    { cwd: PACKAGE, encoding: "utf8", timeout: 60_000, env: { ...environment, REDLOCK_TEST_MS: "1000" } },
  );
  assert.match(stdout, /^<testsuites>\n.*<\/testsuites>\n$/s, stderr);
  const cases = stdout.matchAll(/<testcase file="(.*?)" name="(.*?)">\n?<failure message="(.*?)">/g);
  const text = (escaped) => escaped.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(Number(code)));
  return [...cases].map(([, ...parts]) => parts.map(text));
}

test("failed tests are reported with the tests around them, and with what they said", () => {
  const file = join("test", "fixtures", "failing", "fails.mjs");
  assert.deepEqual(reported(file), [
    [file, "fails", 'says <this> & "that"'],
    [file, "outer > inner > fails", "deep"],
    [file, "has a subtest and fails itself", "itself"],
    [file, "hangs, and keeps its process alive", "test timed out after 1000ms"],
    [file, "fails after one that hangs", "too"],
  ]);
});

test("a test that blocks its process is reported by its name", () => {
  const file = join("test", "fixtures", "failing", "blocks.mjs");
  const why = "the last test that began in a file that failed: SIGKILL";
  assert.deepEqual(reported(file), [[file, "blocks", why]]);
});
