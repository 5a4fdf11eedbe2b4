// Ends a process in which only worker threads loaded the package, while they hold locks and wait: HOST exits.mjs URL.

import { Worker } from "node:worker_threads";

const [url] = process.argv.slice(2);
let busy = 0;
for (const index of [0, 1, 2]) {
  const thread = new Worker(new URL("./node_thread.mjs", import.meta.url), { workerData: { url, index, idle: true } });
  thread.once("message", () => {
    if (++busy === 3) process.exit(7);
  });
}
