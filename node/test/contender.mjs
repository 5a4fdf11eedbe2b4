// One process that takes and releases a lock so many times and logs it: contender.mjs URLS NAME TIMES LOG [HOLD_MS
// [PAUSE_MS [WIRE [PREFIX]]]], to hold it for up to so many milliseconds, to let others go first for up to so many and note
// each call, and to write it as others do.
// `tests/tests/languages.rs` starts it beside those of the other languages; `tests/src/history.rs` describes the log.

import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redlock-core";

const [urls, name, times, path, hold = 0, pause = 0, wire, prefix] = process.argv.slice(2);
const log = openSync(path, "a");
const client = new Redlock(urls.split(","), { wire: wire === "token" ? wire : undefined, prefix });
const lock = client.lock(name);
const rest = (most) => (Number(most) > 0 ? sleep(Math.random() * Number(most)) : undefined);
for (let turn = 0; turn < Number(times); turn++) {
  const called = Number(pause) > 0 ? ` ${process.hrtime.bigint()}` : "";
  const lease = await lock.acquire();
  const granted = process.hrtime.bigint();
  await rest(hold);
  // Taken before the release is sent: from then on somebody else may hold it. Held after this moment, it was at it.
  const released = process.hrtime.bigint();
  const held = lease.held;
  await lease.release();
  writeSync(log, `grant ${lease.token} ${granted}${called}\n${held ? `release ${lease.token} ${released}\n` : ""}`);
  await rest(pause);
}
await client.close();
