// A scheduler: the job of each tick runs on one of many machines, and takes effect once even if machines die or hang.
//
//     node scheduler.mjs [redis-url]
//
// Every worker tries to run every tick's job. One gets the lock; the others wait, and then find the job done. The exact
// guarantees:
//
// - The job runs at least once. If a worker dies in the middle, its lease ends, and the next worker runs the job again,
//   from the start. No lock can tell whether the dead worker's last step took effect.
// - The effect is exactly once. One transaction writes the job's result and the mark "done", if the tick has no larger
//   token than the writer's. A worker that was paused for longer than its lease has a smaller token when it resumes, so
//   its write changes nothing.
// - Effects elsewhere (an e-mail, a payment) cannot be part of that transaction. Use the tick as their idempotency key,
//   or accept that they may happen twice.

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

// The ticks at whose first attempt the worker dies or hangs.
const DIES_AT = 2;
const HANGS_AT = 4;

/** A later holder of the lock has accessed the tick. */
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

  /** Registers a token, as the first access of a tenure must. Returns which attempt this is; 0 if the job is done. */
  begin(tick, token) {
    return this.#database.transaction((ticks) => {
      const known = ticks[tick] ?? { fence: "0", attempts: 0, done: false, reports: 0 };
      if (BigInt(known.fence) > token) throw new Outdated();
      const attempts = known.attempts + (known.done ? 0 : 1);
      ticks[tick] = { ...known, fence: String(token), attempts };
      return known.done ? 0 : attempts;
    });
  }

  /** Writes the result and the mark, both or neither, unless a later holder has registered its token. */
  finish(tick, token) {
    return this.#database.transaction((ticks) => {
      const known = ticks[tick];
      if (known.done || known.fence !== String(token)) throw new Outdated();
      ticks[tick] = { ...known, done: true, reports: known.reports + 1 };
    });
  }
}

/** Runs a tick's job unless it is done. The caller holds the lock. */
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
    // Resumed long after its lease. It does not call lease.check(), because a process can be paused after any check.
  }
  try {
    await store.finish(tick, lease.token);
    await say(`worker ${worker} has done tick ${tick}`);
  } catch (error) {
    if (!(error instanceof Outdated)) throw error;
    await say(`worker ${worker} comes too late for tick ${tick}: its write is refused`);
  }
}

/** Runs a worker, as on a machine of its own. */
async function work(url, file, worker, begin) {
  configure(url || undefined, { watchdog: LEASE });
  const store = new Store(file);
  for (let tick = 1; tick <= TICKS; tick++) {
    await sleep(Math.max(0, begin + tick * PERIOD - Date.now()));
    try {
      await using("scheduler:report", (_signal, lease) => run(store, tick, lease, worker));
    } catch (error) {
      // The lease was lost inside `run`. The store has refused the write by then.
      if (!(error instanceof LockLost)) throw error;
    }
  }
}

/** Resolves when the line is written, because some callers die right afterwards. */
function say(what) {
  return new Promise((resolve) => process.stdout.write(`${what}\n`, resolve));
}

/** Starts the workers, resumes the one that hangs, and prints the results. */
async function main(url) {
  const folder = mkdtempSync(join(tmpdir(), "scheduler-"));
  try {
    const file = join(folder, "jobs.json");
    const store = new Store(file);
    const begin = Date.now();
    const numbers = Array.from({ length: WORKERS }, (_, index) => String(index + 1));
    // A loss prints a warning to standard error. Here losses are intended.
    const quiet = { execArgv: ["--no-warnings"] };
    const workers = numbers.map((number) =>
      fork(fileURLToPath(import.meta.url), [url, file, number, String(begin)], quiet),
    );
    const ended = Promise.all(workers.map((worker) => once(worker, "close")));
    const done = (tick) => store.ticks().some(([number, { done }]) => Number(number) === tick && done);
    const lives = (worker) => worker.exitCode === null && worker.signalCode === null;
    while (!done(HANGS_AT) && workers.some(lives)) await sleep(50);
    // Resumes the worker that hangs; SIGCONT does nothing to the others.
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
