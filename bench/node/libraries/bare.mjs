// The requests that this project's client sends for an acquire and a release on one server, without the client. This
// is the floor.

import { randomUUID } from "node:crypto";
import { close, connection } from "./ioredis.mjs";

export const from = "ioredis";

export async function connect(urls) {
  const server = await connection(urls);
  const scripts = JSON.parse(process.env.BENCH_SCRIPTS);
  const [acquire, release] = await Promise.all(
    [scripts.acquire, scripts.release].map((source) => server.script("LOAD", source)),
  );
  const client = randomUUID();
  let tenure = 0;
  return {
    async acquire(name) {
      tenure += 1;
      const field = `${client}:${tenure}`;
      const counter = `redlock_token:{${name}}`;
      const vote = await server.evalsha(acquire, 2, name, counter, field, "", 30_000, 3_600_000, 0);
      if (!vote.startsWith("1 ")) throw new Error(`not granted: ${vote}`);
      return { name, field };
    },
    async release({ name, field }) {
      const released = await server.evalsha(release, 1, name, field, `redisson_lock__channel:{${name}}`);
      if (released !== 1) throw new Error("not released");
    },
    close: () => close([server]),
    reentrant: false,
    waits: false,
  };
}
