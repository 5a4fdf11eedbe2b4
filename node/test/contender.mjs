// A process that acquires and releases one lock TIMES times and logs each grant and release:
// contender.mjs URLS NAME TIMES LOG [HOLD_MS [PAUSE_MS [WIRE [PREFIX [KIND]]]]]. It holds the lock for up to HOLD_MS. With
// PAUSE_MS, it pauses for up to so long after each release, and logs the time of each call too. WIRE and PREFIX are the
// client's options. KIND is `lock`, `fair`, `read_write` (most turns are readers') or `semaphore:SLOTS` (a turn acquires
// one slot or two); with a KIND it logs what each turn holds, too. `tests/tests/languages.rs` starts it together with the
// contenders of other languages; `tests/src/history.rs` describes the log.

import { openSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redlock-core";

const [urls, name, times, path, hold = 0, pause = 0, wire, prefix, kind] = process.argv.slice(2);
const log = openSync(path, "a");
const client = new Redlock(urls.split(","), { wire: wire === "token" ? wire : undefined, prefix });

/**
 * Returns what makes the acquire of a turn: its call, and what it holds, as the log says it.
 *
 * @returns {() => [() => Promise<import("redlock-core").Lease>, string]}
 */
function drawing() {
  const [word, slots] = (kind ?? "lock").split(":");
  if (word === "read_write") {
    const lock = client.readWriteLock(name);
    return () => (Math.random() < 0.7 ? [() => lock.read.acquire(), "read"] : [() => lock.write.acquire(), "write"]);
  }
  if (word === "semaphore") {
    const semaphore = client.semaphore(name, { permits: Number(slots) });
    const most = Math.min(2, Number(slots));
    return () => [() => semaphore.acquire({ n: 1 + Math.floor(Math.random() * most) }), "slots"];
  }
  const lock = client.lock(name, { fair: word === "fair" });
  return () => [() => lock.acquire(), ""];
}

const draw = drawing();
const rest = (most) => (Number(most) > 0 ? sleep(Math.random() * Number(most)) : undefined);
for (let turn = 0; turn < Number(times); turn++) {
  const [acquire, share] = draw();
  const called = Number(pause) > 0 || kind ? ` ${process.hrtime.bigint()}` : "";
  const lease = await acquire();
  const granted = process.hrtime.bigint();
  await rest(hold);
  // Read before the release is sent, since another owner may hold the lock from then on. `held` is read later: a lease
  // that is still held then was held at this moment.
  const released = process.hrtime.bigint();
  const held = lease.held;
  await lease.release();
  const slots = lease.slots.map((slot, at) => `${slot}:${lease.tokens[at]}`).join(",");
  const tenure = kind ? ` ${turn}` : "";
  const what = kind && share ? ` ${share === "slots" ? slots : share}` : "";
  const end = held ? `release ${lease.token} ${released}${tenure}\n` : "";
  writeSync(log, `grant ${lease.token} ${granted}${called}${tenure}${what}\n${end}`);
  await rest(pause);
}
await client.close();
