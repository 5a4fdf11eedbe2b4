/**
 * The demo's worker in Node: does the same as `worker.py`, with the same file and log.
 *
 * Usage: worker.mjs URLS FILE LOG. Stops on SIGTERM.
 */
import { existsSync, openSync, readSync, writeSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
// With the package installed, import "redlock-core" instead.
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

/** Reads the file: count, token and process of the last change that was started, and of the last one finished. */
function read() {
  const bytes = Buffer.alloc(256);
  readSync(ledger, bytes, 0, 256, 0);
  const [begin, end] = bytes.toString().split("\n");
  return [begin, end].map((line) => line.split(" ").slice(1).join(" "));
}

const write = (begin, end) => writeSync(ledger, `begin ${begin}\nend ${end}\n`.padEnd(256), 0);

/** Makes one change, in two halves: a second writer would notice the first half, or damage it. */
async function change(lease) {
  const [begin, before] = read();
  const [count, token] = before.split(" ");
  if (begin !== before) {
    // Either the last holder died inside, or two holders are inside right now.
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
