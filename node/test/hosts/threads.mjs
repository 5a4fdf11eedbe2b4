// Terminates threads while they are busy; they must leave nothing behind: HOST threads.mjs URL KIND ROUNDS.

import assert from "node:assert/strict";
import { Worker as NodeWorker } from "node:worker_threads";

const [url, kind, rounds] = process.argv.slice(2);

function start(index) {
  if (kind === "node") {
    const thread = new NodeWorker(new URL("./node_thread.mjs", import.meta.url), { workerData: { url, index } });
    return { thread, busy: new Promise((resolve) => thread.once("message", resolve)) };
  }
  const thread = new Worker(new URL("./web_thread.mjs", import.meta.url), { type: "module" });
  thread.postMessage({ url, index });
  return { thread, busy: new Promise((resolve) => thread.addEventListener("message", resolve, { once: true })) };
}

let main;
for (let round = 0; round < Number(rounds); round++) {
  const threads = [0, 1, 2].map(start);
  await Promise.all(threads.map(({ busy }) => busy));
  // Loaded only now: even if a thread loads the package first, the exit must release the main thread's locks.
  main ??= new (await import("redlock-core")).Redlock(url);
  const mine = await main.acquire("mine");
  await Promise.all(threads.map(({ thread }) => thread.terminate()));
  for (const index of threads.keys()) await main.using(`held ${index}`, { wait: 20_000 }, () => {});
  await main.using("everybody", { wait: 20_000 }, () => {});
  assert.equal(await mine.release(), "released");
}
await main.acquire("mine");
console.log("done");
process.exit(0);
