// What the tests of the recipes share: the service that the recipes call, programs, and HTTP requests.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, request } from "node:http";
import { fileURLToPath } from "node:url";
import { eventually, freePort, Server } from "../../../node/test/servers.mjs";

export { eventually, freePort };

const FOLDER = fileURLToPath(new URL("..", import.meta.url));

/** Far more than a busy machine needs: whatever takes longer hangs. */
const PATIENCE = 60_000;

/**
 * The service behind the recipes. It tells which orders are paid, and holds each charge until the test answers it.
 * `GET /orders/1` is `{"paid": false}` until a `POST /orders/1/charge` was answered.
 */
class Service {
  paid = [];
  /** Charges that `next()` has not returned yet. */
  arrived = [];
  #server = createServer((request, response) => {
    response.setHeader("Content-Type", "application/json");
    if (request.method === "GET") {
      response.end(JSON.stringify({ paid: this.paid.includes(request.url) }));
      return;
    }
    const answer = () => {
      this.paid.push(request.url.replace(/\/charge$/, ""));
      response.end("{}");
    };
    this.arrived.push({ path: request.url, headers: request.headers, answer });
  });

  static async of(test) {
    const service = new Service();
    service.#server.listen(0, "127.0.0.1");
    await once(service.#server, "listening");
    test.after(() => {
      service.#server.close();
      service.#server.closeAllConnections();
    });
    return service;
  }

  get url() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  /** Waits for the next charge. */
  async next() {
    await eventually(() => this.arrived.length > 0, PATIENCE);
    return this.arrived.shift();
  }
}

/** Starts a program that serves HTTP, and waits until it does. Kills it after the test. */
async function serve(test, script, variables) {
  const port = await freePort();
  const env = { ...process.env, PORT: String(port), ...variables };
  // The test runner talks to its own processes by this variable.
  delete env.NODE_TEST_CONTEXT;
  const child = spawn(process.execPath, [script], { cwd: FOLDER, env, stdio: ["ignore", "pipe", "pipe"] });
  const program = { child, url: `http://127.0.0.1:${port}`, output: "" };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data) => {
      program.output += data;
    });
  }
  program.ended = once(child, "close").then(([code, signal]) => signal ?? code);
  test.after(() => child.kill("SIGKILL"));
  await eventually(async () => {
    assert.equal(child.exitCode, null, program.output);
    return (await post(program.url).ended) !== undefined;
  }, PATIENCE);
  return program;
}

/** Sends a POST. `ended` is the status of the reply, or undefined without one; `leave()` closes the connection. */
export function post(url) {
  const sent = request(url, { method: "POST", agent: false, headers: { "Content-Type": "application/json" } });
  const ended = new Promise((resolve) => {
    sent.on("response", (response) => {
      response.resume();
      response.on("close", () => resolve(response.statusCode));
    });
    sent.on("error", () => resolve(undefined));
  });
  sent.end("{}");
  return { ended, leave: () => sent.destroy() };
}

/** Returns a function that sets up a test: a Redis, the service, and a start for each replica of the recipe or control. */
export function shopOf(recipe, controls) {
  return async (t, { control, ...variables } = {}) => {
    const [server, service] = [await Server.of(t), await Service.of(t)];
    const script = control === undefined ? recipe : controls;
    const start = () =>
      serve(t, script, { REDLOCK_URL: server.url, SHOP_URL: service.url, CONTROL: control, ...variables });
    return { server, service, start };
  };
}
