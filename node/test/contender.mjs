// One process that takes and releases a lock so many times and logs it: contender.mjs URLS NAME TIMES LOG [HOLD_MS], to
// hold it for up to so many milliseconds.
// `tests/tests/languages.rs` starts it beside those of the other languages; `tests/src/history.rs` describes the log.

import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redlock-core";

const [urls, name, times, path, hold] = process.argv.slice(2);
const log = openSync(path, "a");
const client = new Redlock(urls.split(","));
const lock = client.lock(name);
for (let turn = 0; turn < Number(times); turn++) {
  const lease = await lock.acquire();
  const granted = process.hrtime.bigint();
  if (hold) await sleep(Math.random() * Number(hold));
  // Taken before the release is sent: from then on somebody else may hold it. Held after this moment, it was at it.
  const released = process.hrtime.bigint();
  const held = lease.held;
  await lease.release();
  writeSync(log, `grant ${lease.token} ${granted}\n${held ? `release ${lease.token} ${released}\n` : ""}`);
}
await client.close();
