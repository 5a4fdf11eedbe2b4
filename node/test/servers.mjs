// Real redis-servers for tests: they start on free ports, and tests kill, freeze and thaw them.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createConnection, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** The claims on ports, until the process ends. */
const claims = [];

/**
 * A free port of 127.0.0.1, which no other test takes before this process ends: a server that is stopped must come back
 * on its port. The owner of a TCP port holds the UDP port with the same number, which nobody uses; the tests of all
 * languages do that. The kernel does not take these ports for outgoing connections, for which it uses a higher range.
 */
export async function freePort() {
  for (;;) {
    const port = randomInt(10_000, 32_000);
    const claim = createSocket("udp4").unref();
    if (!(await listens(claim, { port, address: "127.0.0.1", exclusive: true }))) continue;
    // Other programs listen without a claim.
    const probe = createServer();
    if (await listens(probe, port, "127.0.0.1")) {
      claims.push(claim);
      probe.close();
      await once(probe, "close");
      return port;
    }
    claim.close();
  }
}

/** Binds a socket or starts a server; false if its address is taken. */
async function listens(socket, ...address) {
  (socket.bind ?? socket.listen).call(socket, ...address);
  try {
    await once(socket, "listening");
    return true;
  } catch {
    return false;
  }
}

/** Checks a condition every `every` ms until it is true; fails after `within` ms. */
export async function eventually(condition, within = 20_000, every = 5) {
  const deadline = performance.now() + within;
  while (!(await condition())) {
    assert(performance.now() < deadline, `not within ${within} ms: ${condition}`);
    await sleep(every);
  }
}

/** The servers that run. The exit kills them, so that no test leaves one behind, however it fails. */
const running = new Set();
process.on("exit", () => {
  for (const server of running) server.kill("SIGKILL");
});
// A test runner sends SIGTERM to end tests that take too long.
process.once("SIGTERM", () => process.exit(1));

/** Does the same as `child.kill(signal)`, which has no effect in Deno once the child was stopped. */
function send(child, signal) {
  if (child.exitCode === null && child.signalCode === null) process.kill(child.pid, signal);
}

/** A redis-server without persistence. It keeps its port when it is started again. */
export class Server {
  #directory = mkdtempSync(join(tmpdir(), "redlock-"));
  #arguments;
  #process;
  /** @type {number | undefined} */
  port;

  /** Further arguments for redis-server, such as `"--requirepass", "secret"`. */
  constructor(...given) {
    this.#arguments = given;
  }

  /** Starts a server, which stops when the test ends. */
  static async of(test, ...given) {
    const server = new Server(...given);
    test.after(() => server.stop());
    return await server.start();
  }

  /** Its URL, without credentials. */
  get url() {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Starts it and waits until it answers. */
  async start() {
    this.port ??= await freePort();
    const address = ["--port", String(this.port), "--bind", "127.0.0.1", "--save", ""];
    const given = [...address, ...this.#arguments];
    this.#process = spawn("redis-server", given, { cwd: this.#directory, stdio: "ignore" });
    this.#process.unref();
    running.add(this.#process);
    await eventually(() => this.#answers());
    return this;
  }

  async #answers() {
    assert.equal(this.#process.exitCode, null, "redis-server ended");
    return await new Promise((resolve) => {
      const socket = createConnection(this.port, "127.0.0.1");
      socket.once("error", () => resolve(false));
      socket.once("data", (data) => {
        socket.destroy();
        resolve(data[0] === 0x2b || data[0] === 0x2d);
      });
      socket.write("PING\r\n");
    });
  }

  /** Shuts it down; connections break, keys are gone. */
  async stop() {
    await this.kill("SIGTERM");
    rmSync(this.#directory, { recursive: true, force: true });
  }

  /** Ends it at once, as a power failure would. */
  async kill(signal = "SIGKILL") {
    const process = this.#process;
    this.#process = undefined;
    if (process === undefined) return;
    running.delete(process);
    // A stopped process does not handle SIGTERM.
    send(process, "SIGCONT");
    send(process, signal);
    if (process.exitCode === null && process.signalCode === null) {
      process.ref();
      await once(process, "exit");
    }
  }

  /** Stops its process: it answers nothing, and its connections stay open. */
  freeze() {
    send(this.#process, "SIGSTOP");
  }

  /** Ends `freeze()`: it runs the requests that it received meanwhile. */
  thaw() {
    send(this.#process, "SIGCONT");
  }

  /** The output of redis-cli, with a line for each element of a list. */
  cli(...words) {
    const { status, stdout, stderr } = spawnSync("redis-cli", ["-p", String(this.port), ...words.map(String)], {
      encoding: "utf8",
      // Long, because the servers of a new cluster wait for each other.
      timeout: 60_000,
    });
    assert.equal(status, 0, stderr);
    return stdout.trim();
  }

  /** The keys that exist, without redlock's own records. */
  locks() {
    const keys = this.cli("KEYS", "*").split("\n");
    return keys.filter((key) => key !== "" && !key.startsWith("redlock_")).sort();
  }

  /** The number of connections that listen for the release of a lock. */
  listeners(lock) {
    return Number(this.cli("PUBSUB", "NUMSUB", `redisson_lock__channel:{${lock}}`).split("\n").at(-1));
  }
}

/**
 * A Redis Cluster of `masters` masters, which stops when the test ends.
 *
 * @returns {Promise<Server[]>}
 */
export async function cluster(test, masters = 3) {
  const given = ["--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-node-timeout", "5000"];
  const servers = await Promise.all(
    Array.from({ length: masters }, async () => Server.of(test, ...given, "--cluster-port", String(await freePort()))),
  );
  const addresses = servers.map((server) => `127.0.0.1:${server.port}`);
  if (masters < 3) servers[0].cli("CLUSTER", "ADDSLOTSRANGE", 0, 16383);
  else servers[0].cli("--cluster", "create", ...addresses, "--cluster-yes");
  // Each server must know the masters of all slots, and must have stopped refusing writes, as it does after its start.
  const ready = () =>
    servers.every((server) => {
      const info = server.cli("CLUSTER", "INFO");
      return info.includes("cluster_state:ok") && info.includes("cluster_slots_ok:16384");
    });
  await eventually(ready, 60_000, 50);
  return servers;
}
