// Holds a lock until it is lost: HOST frozen.mjs URL. Prints "holds" first, and after the loss the release outcome and
// `held`.

import { Redlock } from "redlock-core";

const [url] = process.argv.slice(2);
const client = new Redlock(url, { watchdog: 500 });
const lease = await client.acquire("x");
const lost = new Promise((resolve) => lease.signal.addEventListener("abort", resolve));
const alive = setInterval(() => {}, 1000);
console.log("holds");
await lost;
clearInterval(alive);
const { held } = lease;
console.log(await lease.release(), held);
