// Many callers and no timer: HOST stalls.mjs URL SECONDS. A lost wake-up shows as a call that takes long. Prints the
// duration of the longest call in ms.

import { Redlock } from "redlock-core";

const [url, seconds] = process.argv.slice(2);
const client = new Redlock(url);
const end = performance.now() + Number(seconds) * 1000;
let longest = 0;
const caller = async (_, each) => {
  // Two callers share a lock, so that one of them waits.
  const lock = client.lock(`stall ${each >> 1}`);
  while (performance.now() < end) {
    const begin = performance.now();
    await lock.using(() => {});
    longest = Math.max(longest, performance.now() - begin);
  }
};
await Promise.all(Array.from({ length: 20 }, caller));
await client.close();
console.log(Math.round(longest));
