// Gives every test a time-out; to load with `node --test --import=./test/limits.mjs`. In Node 20 `--test-timeout` bounds
// files, not tests: it does not name the test that hangs, and ends all others of the file, too. A test that blocks its
// event loop is ended by report.mjs.

import { createHook } from "node:async_hooks";
import { writeSync } from "node:fs";
import { afterEach, beforeEach } from "node:test";

export const limit = Number(process.env.REDLOCK_TEST_MS ?? 300_000);

// Only in the processes that run tests, not in the one that starts them.
if (process.env.NODE_TEST_CONTEXT) {
  // The first test that Node makes is the root of the file. All others inherit its time-out.
  let root;
  const hook = createHook({
    init(_id, type, _trigger, test) {
      if (type !== "Test") return;
      if (root) {
        root.timeout = limit;
        hook.disable();
      }
      root = test;
    },
  }).enable();

  let running = 0;
  let idle;
  beforeEach(({ name }) => {
    clearTimeout(idle);
    running++;
    // For report.mjs, and written at once: the event loop may block.
    writeSync(2, `begins ${process.pid} ${name}\n`);
  });
  process.on("exit", () => writeSync(2, `ends ${process.pid}\n`));
  // What a hanging test has left open must not keep the process alive.
  afterEach(() => {
    if (--running > 0) return;
    idle = setTimeout(() => {
      console.error("the tests are over, but something keeps their process alive");
      process.exit(1);
    }, limit / 5).unref();
  });
}
