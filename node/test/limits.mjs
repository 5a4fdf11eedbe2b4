// Gives every test a time-out. Load it with `node --test --import=./test/limits.mjs`. In Node 20, `--test-timeout`
// limits files and not tests: it does not name the test that hangs, and ends all other tests of the file too.
// report.mjs ends a test that blocks its event loop.

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
    // report.mjs reads this. It is written synchronously, because the test may block the event loop.
    writeSync(2, `begins ${process.pid} ${name}\n`);
  });
  process.on("exit", () => writeSync(2, `ends ${process.pid}\n`));
  // A hanging test may leave something open, which must not keep the process alive.
  afterEach(() => {
    if (--running > 0) return;
    idle = setTimeout(() => {
      console.error("the tests are over, but something keeps their process alive");
      process.exit(1);
    }, limit / 5).unref();
  });
}
