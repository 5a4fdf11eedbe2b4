// A scheduler: each tick's job runs on one of many machines, once, although machines die and hang in the middle of it.
//
//     node scheduler.mjs [redis-url]
//
// Every worker wants to run every tick's job. The lock lets one of them; the others wait, and then find it done. What
// that means, exactly:
//
// - Running is at least once. A worker that dies in the middle frees the lock within one lease, and the next one runs
//   the job again, from the start. No lock can tell whether the dead worker's last step still happened.
// - The effect is exactly once. The job's result and the mark "done" are written in one transaction, which demands that
//   the tick has no newer token than the writer's. A worker that was stopped for longer than its lease and wakes up as
//   if nothing had happened has an older token: its write changes nothing.
// - Effects elsewhere (an e-mail, a payment) cannot be part of that transaction. Give them the tick as an idempotency
//   key, or accept that they may happen twice.

import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { configure, LockLost, using } from "redlock-core";
import { Database } from "./database.mjs";

const WORKERS = 4;
const TICKS = 6;
const PERIOD = 500;
const LEASE = 2000; // how long a dead worker keeps the others waiting; 30 s unless configured

// What goes wrong, at the first attempt of a tick.
const DIES_AT = 2;
const HANGS_AT = 4;

/** A newer holder of the lock was here. */
class Outdated extends Error {}

/** The database of the job: its results, and which ticks are done. */
class Store {
  #database;

  constructor(file) {
    this.#database = new Database(file);
  }

  ticks() {
    return Object.entries(this.#database.read());
  }

  /** Registers a token, as the first access of a tenure must; returns which attempt it is, 0 when all is done. */
  begin(tick, token) {
    return this.#database.transaction((ticks) => {
      const known = ticks[tick] ?? { fence: "0", attempts: 0, done: false, reports: 0 };
      if (BigInt(known.fence) > token) throw new Outdated();
      const attempts = known.attempts + (known.done ? 0 : 1);
      ticks[tick] = { ...known, fence: String(token), attempts };
      return known.done ? 0 : attempts;
    });
  }

  /** Writes the result and the mark, both or neither, unless somebody else has taken over. */
  finish(tick, token) {
    return this.#database.transaction((ticks) => {
      const known = ticks[tick];
      if (known.done || known.fence !== String(token)) throw new Outdated();
      ticks[tick] = { ...known, done: true, reports: known.reports + 1 };
    });
  }
}

/** Runs a tick's job if nobody has; the lock is held. */
async function run(store, tick, lease, worker) {
  const attempt = await store.begin(tick, lease.token);
  if (attempt === 0) return;
  await say(`worker ${worker} runs the job of tick ${tick}${attempt > 1 ? " again" : ""}`);
  await sleep(PERIOD / 5); // the work
  if (attempt === 1 && tick === DIES_AT) {
    await say(`worker ${worker} dies`);
    process.kill(process.pid, "SIGKILL");
  }
  if (attempt === 1 && tick === HANGS_AT) {
    await say(`worker ${worker} hangs`);
    process.kill(process.pid, "SIGSTOP");
    // Woken up long after its lease. A check here would tell; this worker does not look, as code sometimes cannot.
  }
  try {
    await store.finish(tick, lease.token);
    await say(`worker ${worker} has done tick ${tick}`);
  } catch (error) {
    if (!(error instanceof Outdated)) throw error;
    await say(`worker ${worker} comes too late for tick ${tick}: its write is refused`);
  }
}

/** Is one of the machines. */
async function work(url, file, worker, begin) {
  configure(url || undefined, { watchdog: LEASE });
  const store = new Store(file);
  for (let tick = 1; tick <= TICKS; tick++) {
    await sleep(Math.max(0, begin + tick * PERIOD - Date.now()));
    try {
      await using("scheduler:report", (_signal, lease) => run(store, tick, lease, worker));
    } catch (error) {
      // The lease ended inside; the store has refused the write by then.
      if (!(error instanceof LockLost)) throw error;
    }
  }
}

/** Returns when it is printed: some of those who call it do not live much longer. */
function say(what) {
  return new Promise((resolve) => process.stdout.write(`${what}\n`, resolve));
}

/** Starts the workers, wakes the one that hangs, and looks at what came out. */
async function main(url) {
  const folder = mkdtempSync(join(tmpdir(), "scheduler-"));
  try {
    const file = join(folder, "jobs.json");
    const store = new Store(file);
    const begin = Date.now();
    const numbers = Array.from({ length: WORKERS }, (_, index) => String(index + 1));
    // A loss is a warning on standard error; here it is a part of the play.
    const quiet = { execArgv: ["--no-warnings"] };
    const workers = numbers.map((number) =>
      fork(fileURLToPath(import.meta.url), [url, file, number, String(begin)], quiet),
    );
    const ended = Promise.all(workers.map((worker) => once(worker, "close")));
    const done = (tick) => store.ticks().some(([number, { done }]) => Number(number) === tick && done);
    const lives = (worker) => worker.exitCode === null && worker.signalCode === null;
    while (!done(HANGS_AT) && workers.some(lives)) await sleep(50);
    // Wakes the one that hangs; the others do not notice.
    for (const worker of workers.filter(lives)) worker.kill("SIGCONT");
    await ended;
    for (const [tick, { attempts, reports }] of store.ticks()) {
      await say(`tick ${tick}: attempts ${attempts}, reports ${reports}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const [url = "", file, worker, begin] = process.argv.slice(2);
if (file === undefined) {
  await main(url);
} else {
  await work(url, file, worker, Number(begin));
  process.disconnect();
}
