// Tests of the package in Bun and Deno, which load npm packages with native modules. One test is for Node too: a
// process that was frozen for longer than its lease knows of the loss.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Redlock } from "redlock-core";
import { hosts } from "./hosts/hosts.mjs";
import { eventually, Server } from "./servers.mjs";

/** In ms: far longer than any call takes, and far shorter than the time after which a loop wakes by chance. */
const STALL = 5_000;

function start(t, host, program, ...args) {
  const [command, ...options] = host.run;
  const file = fileURLToPath(new URL(`./hosts/${program}.mjs`, import.meta.url));
  const child = spawn(command, [...options, file, ...args.map(String)], { stdio: ["ignore", "pipe", "pipe"] });
  t.after(() => child.kill("SIGKILL"));
  const running = { child, stdout: "", stderr: "" };
  for (const stream of ["stdout", "stderr"]) {
    child[stream].setEncoding("utf8").on("data", (text) => {
      running[stream] += text;
    });
  }
  const ended = once(child, "close").then(([code, signal]) => ({ ...running, code, signal }));
  const says = (word) => eventually(() => running.stdout.includes(word));
  return { child, ended, says };
}

async function run(t, host, program, ...args) {
  const { code, signal, stdout, stderr } = await start(t, host, program, ...args).ended;
  assert.deepEqual([code, signal], [0, null], stdout + stderr);
  return stdout.trim().split("\n");
}

for (const host of hosts) {
  const skip = host.path === undefined && "npm has no such program for this machine";

  test(`${host.name}: what users do`, { skip }, async (t) => {
    const server = await Server.of(t);
    for (const url of ["memory://uses", server.url]) assert.equal((await run(t, host, "uses", url)).at(-1), "done");
    assert.deepEqual(server.locks(), []);
  });

  test(`${host.name}: no call stalls`, { skip }, async (t) => {
    const server = await Server.of(t);
    for (const url of ["memory://stalls", server.url]) {
      const [longest] = await run(t, host, "stalls", url, 3);
      assert(Number(longest) < STALL, `a call took ${longest} ms`);
    }
  });

  for (const how of ["process.exit", "Deno.exit", "an exception", "nothing left to do"]) {
    if (how === "Deno.exit" && host.name !== "Deno") continue;
    test(`${host.name}: the end of a process by ${how} releases what it holds`, { skip }, async (t) => {
      const server = await Server.of(t);
      const { code, signal, stdout, stderr } = await start(t, host, "ends", server.url, how).ended;
      const expected = { "an exception": 1, "nothing left to do": 0 }[how] ?? 7;
      assert.deepEqual([code, signal, stdout], [expected, null, "holds\n"], stderr);
      assert.deepEqual(server.locks(), []);
    });
  }

  test(`${host.name}: a pending call keeps the process alive`, { skip }, async (t) => {
    const server = await Server.of(t);
    const client = new Redlock(server.url);
    const held = await client.acquire("y");
    const script = start(t, host, "ends", server.url, "a lock that came free");
    await eventually(() => server.listeners("y") === 1);
    await held.release();
    const { code, stderr } = await script.ended;
    assert.equal(code, 0, stderr);
    assert.deepEqual(server.locks(), []);
    await client.close();
  });

  for (const kind of ["node", "web"]) {
    test(`${host.name}: terminated threads of the ${kind}'s kind leave nothing behind`, { skip }, async (t) => {
      const server = await Server.of(t);
      assert.deepEqual(await run(t, host, "threads", server.url, kind, 3), ["done"]);
      await eventually(() => server.locks().length === 0);
    });
  }

  test(`${host.name}: the end of a process releases what its threads hold`, { skip }, async (t) => {
    const server = await Server.of(t);
    const { code, signal, stderr } = await start(t, host, "exits", server.url).ended;
    assert.deepEqual([code, signal], [7, null], stderr);
    assert.deepEqual(server.locks(), []);
  });
}

const node = { name: "Node", path: process.execPath, run: [process.execPath] };
for (const host of [node, ...hosts]) {
  const skip = host.path === undefined && "npm has no such program for this machine";

  test(`${host.name}: frozen for longer than its lease, a process knows its loss`, { skip }, async (t) => {
    const server = await Server.of(t);
    const script = start(t, host, "frozen", server.url);
    await script.says("holds");
    process.kill(script.child.pid, "SIGSTOP");
    const other = new Redlock(server.url);
    await other.using("x", () => process.kill(script.child.pid, "SIGCONT"));
    const { code, stdout, stderr } = await script.ended;
    assert.deepEqual([code, stdout], [0, "holds\nlost false\n"], stderr);
    await other.close();
  });
}
