// One process that takes and releases a lock so many times and logs it: contender.mjs URLS NAME TIMES LOG.
// `tests/tests/languages.rs` starts it beside those of the other languages; `tests/src/history.rs` describes the log.

import { openSync, writeSync } from "node:fs";
import { Redlock } from "redlock-core";

const [urls, name, times, path] = process.argv.slice(2);
const log = openSync(path, "a");
const client = new Redlock(urls.split(","));
const lock = client.lock(name);
for (let turn = 0; turn < Number(times); turn++) {
  const lease = await lock.acquire();
  const granted = process.hrtime.bigint();
  // Taken before the release is sent: from then on somebody else may hold it.
  const released = process.hrtime.bigint();
  await lease.release();
  writeSync(log, `grant ${lease.token} ${granted}\nrelease ${lease.token} ${released}\n`);
}
await client.close();
