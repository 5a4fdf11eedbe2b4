/**
 * The demo's worker in Node: what `worker.py` does, with the same file and log.
 *
 * Usage: worker.mjs URLS FILE LOG. Stops on SIGTERM.
 */
import { existsSync, openSync, readSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
// Whoever has installed the package imports "redlock-core".
import { LockError, Redlock } from "../node/dist/index.mjs";

const [urls, file, log] = process.argv.slice(2);
const ledger = openSync(file, "r+");
const notes = openSync(log, "a");
let stopped = false;
process.on("SIGTERM", () => {
  stopped = true;
});

/** Seconds on a clock that all processes of this machine share, in every language. */
const now = () => Number(process.hrtime.bigint()) / 1e9;
const note = (...words) => writeSync(notes, `${words.join(" ")}\n`);

/** What the file says: count, token and process of the change that was begun, and of the one that was ended. */
function read() {
  const bytes = Buffer.alloc(256);
  readSync(ledger, bytes, 0, 256, 0);
  const [begin, end] = bytes.toString().split("\n");
  return [begin, end].map((line) => line.split(" ").slice(1).join(" "));
}

const write = (begin, end) => writeSync(ledger, `begin ${begin}\nend ${end}\n`.padEnd(256), 0);

/** One change, in two halves: a second writer would see the first one, or spoil it. */
async function change(lease) {
  const [begin, before] = read();
  const [count, token] = before.split(" ");
  if (begin !== before) {
    // Either the last holder died inside, or two are inside right now.
    note(existsSync(`/proc/${begin.split(" ")[2]}`) ? "corrupt" : "interrupted", lease.token, now());
  }
  if (lease.token <= BigInt(token)) note("stale", lease.token, now());
  const after = `${Number(count) + 1} ${lease.token} ${process.pid}`;
  write(after, before);
  await sleep(1 + 2 * Math.random()); // the work
  lease.check();
  if (read().join() !== [after, before].join()) note("corrupt", lease.token, now());
  write(after, after);
  note("done", lease.token, now());
}

const client = new Redlock(urls.split(","), { watchdog: 2000, maxTtl: 8000 });
const lock = client.lock("demo:ledger");
while (!stopped) {
  const wanted = now();
  try {
    await lock.using(async (_signal, lease) => {
      note("grant", lease.token, now(), now() - wanted);
      await change(lease);
      note("release", lease.token, now());
    });
  } catch (error) {
    if (!(error instanceof LockError)) throw error;
    note("error", error.code, now(), error.message);
  }
}
await client.close();
