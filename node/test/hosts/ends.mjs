// Acquires a lock, prints "holds", and ends its process in the way that HOW names: HOST ends.mjs URL HOW.

import { Redlock } from "redlock-core";

const [url, how] = process.argv.slice(2);
const client = new Redlock(url);
const lease = await client.acquire("x");
console.log("holds");
if (how === "process.exit") process.exit(7);
if (how === "Deno.exit") globalThis.Deno.exit(7);
if (how === "an exception") throw new Error("of mine");
if (how === "nothing left to do") lease.check();
if (how === "a lock that came free") await client.acquire("y");
