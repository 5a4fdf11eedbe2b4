// A queue of jobs, many workers, and three licences: at most three jobs run at once, each with a licence of its own.
//
//     node job_queue.mjs [redis-url]
//
// The licences are the slots of a semaphore. A worker acquires a permit before it takes a job, so a worker that waits
// has no job. The permit's slot is the number of the licence: no other worker has it meanwhile.
//
// A worker that dies frees its licence when its lease ends; the others go on with theirs. A worker that hangs for longer
// than its lease may wake up while another one has its licence. So the licence server compares the permit's token with
// the largest one that it has seen for this licence, and refuses an older one.
//
// Each worker has a client of its own, as if it ran on a machine of its own.

import { setTimeout as sleep } from "node:timers/promises";
import { Redlock } from "redlock-core";

const LICENCES = 3;
const WORKERS = 6;
const JOBS = 12;

/** The resource. It counts the licences in use, and refuses tokens that are too old. */
class LicenceServer {
  #tokens = Array(LICENCES).fill(0n);
  #inUse = new Set();
  most = 0;

  /** Starts to use a licence. */
  checkOut(licence, token) {
    if (token < this.#tokens[licence]) throw new Error(`licence ${licence} was given to somebody else meanwhile`);
    if (this.#inUse.has(licence)) throw new Error(`licence ${licence} is used twice`);
    this.#tokens[licence] = token;
    this.#inUse.add(licence);
    this.most = Math.max(this.most, this.#inUse.size);
  }

  /** Ends the use of a licence. */
  checkIn(licence) {
    this.#inUse.delete(licence);
  }
}

/** Runs jobs until the queue is empty. */
async function work(client, worker, jobs, server) {
  const licences = client.semaphore("renderer:licences", { permits: LICENCES });
  let done = false;
  while (!done) {
    await licences.using(async (signal, permit) => {
      const job = jobs.shift();
      if (job === undefined) {
        done = true;
        return;
      }
      const [licence] = permit.slots;
      server.checkOut(licence, permit.tokens[0]);
      await sleep(50, undefined, { signal }); // the work, which ends if the lease is lost
      server.checkIn(licence);
      console.log(`worker ${worker} ran job ${job} with licence ${licence}`);
    });
  }
}

const url = process.argv[2] ?? "redis://127.0.0.1:6379";
const clients = Array.from({ length: WORKERS }, () => new Redlock(url));
const jobs = Array.from({ length: JOBS }, (_, index) => index + 1);
const server = new LicenceServer();
await Promise.all(clients.map((client, index) => work(client, index + 1, jobs, server)));
console.log(`${JOBS} jobs, ${server.most} at once at most`);
await Promise.all(clients.map((client) => client.close()));
