// Node's host of the shared scenarios: it runs the orders of the actors. It speaks the protocol of
// tests/scenarios/README.md, over standard input and output.

import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { LockError, LockTimeout, Redlock } from "redlock-core";

/** The clients, leases and texts of each scenario. */
const worlds = new Map();
/** The abort controllers of the orders under way. */
const running = new Map();

function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/** The given options with JavaScript's names: times in milliseconds, without the unit in the name. */
function spelled(given, names = Object.keys(given)) {
  const camel = (name) => name.replace(/_ms$/, "").replace(/_(.)/g, (_, letter) => letter.toUpperCase());
  const known = names.filter((name) => given[name] !== undefined);
  return Object.fromEntries(known.map((name) => [camel(name), given[name] === "nan" ? Number.NaN : given[name]]));
}

class World {
  clients = new Map();
  leases = new Map();
  texts = new Map();

  client({ name, urls, options }) {
    if (!this.clients.has(name)) this.clients.set(name, new Redlock(urls, spelled(options)));
    return this.clients.get(name);
  }

  /** Stores a lease, even one without a name, so that it is held until the scenario ends. */
  keep(lease, { as = `unnamed ${this.leases.size}` }) {
    if (lease === null) throw new LockTimeout("not obtained in time");
    this.leases.set(as, lease);
    return { token: Number(lease.token), name: lease.name, owner: lease.owner, slots: lease.slots };
  }

  async perform({ step, client: given }, signal) {
    if (step.do === "client") return await new Redlock(given.urls, spelled(given.options)).close();
    if (step.lease !== undefined) return await this.lease(this.leases.get(step.lease), step, signal);
    const client = this.client(given);
    if (step.do === "close") return await client.close();
    if (step.do === "force_release") return await client.forceRelease(step.lock);
    if (step.do === "attach") return this.keep(await client.attach(this.texts.get(step.text) ?? step.text), step);
    if (step.permits !== undefined) return await this.semaphore(client, step, signal);
    return await this.lock(client, step, signal);
  }

  async semaphore(client, step, signal) {
    const given = spelled(step, [
      "permits",
      "ttl_ms",
      "wait_ms",
      "max_hold_ms",
      "min_hold_ms",
      "reentrant",
      "fair",
      "owner",
    ]);
    const semaphore = client.semaphore(step.lock, given);
    const { n } = spelled(step, ["n"]);
    if (step.do === "acquire") return this.keep(await semaphore.acquire({ n, signal }), step);
    if (step.do === "try_acquire") return this.keep(await semaphore.tryAcquire({ n }), step);
    return await semaphore[step.do]();
  }

  async lock(client, step, signal) {
    const options = ["ttl_ms", "wait_ms", "max_hold_ms", "min_hold_ms", "reentrant", "fair", "owner"];
    const given = spelled(step, options);
    const lock = step.part ? client.readWriteLock(step.lock, given)[step.part] : client.lock(step.lock, given);
    switch (step.do) {
      case "acquire":
        return this.keep(await lock.acquire({ signal }), step);
      case "try_acquire":
        return this.keep(await lock.tryAcquire(), step);
      case "unlock":
        return await lock.release();
      case "inspect": {
        const info = await lock.inspect();
        if (info === null) return null;
        const { owner, token, ttl, kind, owners, host, pid, app, since } = info;
        const process = Boolean(host) && pid !== null;
        const recent = since !== null && Math.abs(Date.now() - since.getTime()) < 60_000;
        return { owner, token: Number(token), ttl_ms: ttl, kind, owners: owners.length, app, process, recent };
      }
      default:
        return await lock[step.do]();
    }
  }

  async lease(lease, step, signal) {
    switch (step.do) {
      case "held":
        return lease.held;
      case "extend":
        return await lease.extend(spelled(step, ["ttl_ms"]).ttl);
      case "downgrade":
        return await lease.downgrade();
      case "try_upgrade":
        return await lease.tryUpgrade();
      case "token":
        return Number(lease.token);
      case "detach":
        this.texts.set(step.as, lease.detach());
        return null;
      case "wait_lost":
        // The signal reports a loss, but no release or detach: for these, the loop checks `held`.
        while (!lease.signal.aborted && (lease.held || lease.lostReason !== undefined)) {
          signal.throwIfAborted();
          await sleep(2);
        }
        return lease.signal.reason?.reason ?? null;
      default:
        return await lease[step.do]();
    }
  }
}

async function follow(order) {
  const { id } = order;
  if (!worlds.has(order.scenario)) worlds.set(order.scenario, new World());
  const controller = new AbortController();
  running.set(id, controller);
  try {
    const value = await worlds.get(order.scenario).perform(order, controller.signal);
    say({ id, value: value ?? null });
  } catch (error) {
    if (error === controller.signal.reason) return say({ id, cancelled: true });
    const { code, message, reason, stack } = error;
    say({ id, error: error instanceof LockError ? { code, message, reason } : { code: "bug", message: stack } });
  } finally {
    running.delete(id);
  }
}

async function end(scenario) {
  const clients = worlds.get(scenario)?.clients.values() ?? [];
  worlds.delete(scenario);
  await Promise.all([...clients].map((client) => client.close()));
  say({ ended: scenario });
}

// Scenarios cause losses on purpose, so their warnings are not printed.
process.removeAllListeners("warning");
say({ hello: "node", actors: false, cancel: true });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  if (order.cancel !== undefined) running.get(order.cancel)?.abort(new Error("cancelled"));
  else if (order.end !== undefined) end(order.end);
  else follow(order);
}
