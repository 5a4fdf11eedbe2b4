// A process that acquires and releases one lock TIMES times and logs each grant and release:
// contender.mjs URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX]]]]. It holds the lock for up to HOLD_MS. With
// PAUSE_MS, it pauses for up to so long after each release, and logs the time of each call too. WIRE and PREFIX are the
// client's options. `tests/tests/languages.rs` starts it together with the contenders of other languages;
// `tests/src/history.rs` describes the log.

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
  // Read before the release is sent, since another owner may hold the lock from then on. `held` is read later: a lease
  // that is still held then was held at this moment.
  const released = process.hrtime.bigint();
  const held = lease.held;
  await lease.release();
  writeSync(log, `grant ${lease.token} ${granted}${called}\n${held ? `release ${lease.token} ${released}\n` : ""}`);
  await rest(pause);
}
await client.close();
