// What this project's client sends for an acquire and a release on one server, sent by hand: the floor of its cost.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { close, connection } from "./ioredis.mjs";

export const from = "ioredis";

/** A script as core/src/protocol/script.rs makes it. */
function script(name) {
  return ["wire_redisson", "wire", name]
    .flatMap((part) => {
      const source = readFileSync(new URL(`../../../core/src/protocol/lua/${part}.lua`, import.meta.url), "utf8");
      return source.trimEnd().split("\n");
    })
    .filter((line) => !line.startsWith("--"))
    .map((line) => `${line}\n`)
    .join("");
}

export async function connect(urls) {
  const server = await connection(urls);
  const [acquire, release] = await Promise.all(
    ["acquire", "release"].map((name) => server.script("LOAD", script(name))),
  );
  const client = randomUUID();
  let tenure = 0;
  return {
    async acquire(name) {
      tenure += 1;
      const field = `${client}:${tenure}`;
      const counter = `redlock_token:{${name}}`;
      const [code] = await server.evalsha(acquire, 2, name, counter, field, "", 30_000, 0, 20_000, 86_400_000);
      if (code !== 1) throw new Error(`not granted: ${code}`);
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
