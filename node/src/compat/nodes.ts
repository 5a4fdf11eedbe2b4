/**
 * The native clients of the drop-in shim. Redlocks with equal settings share one, and so its connections; each of them
 * reports when a node is down.
 *
 * @module
 */

import { sync } from "../errors";
import { follow, type RedlockEvent } from "../events";
import { calls } from "../loop";
import { type Client, native, type Options } from "../native";
import type { Target } from "./ioredis";

/** A Redlock that reports errors of nodes. */
export interface Observer {
  troubled(error: Error): void;
}

/** The longest ttl that the core accepts. */
const TEN_YEARS = 10 * 365 * 86_400_000;
const MINUTE = 60_000;
/** The core's minimum, and node-redlock's default. A higher drift is subtracted in JavaScript. */
export const DRIFT = 0.01;

const known = new Map<string, WeakRef<Nodes>>();
const forgotten = new FinalizationRegistry<string>((key) => {
  if (known.get(key)?.deref() === undefined) known.delete(key);
});

/** The nodes of Redlocks with equal settings. */
export class Nodes {
  readonly native: Client;
  /** The nodes that are down, each with the cause. */
  readonly #down = new Map<string, Error>();
  readonly #observers = new Set<WeakRef<Observer>>();

  private constructor(target: Target, maxTtl: number) {
    const options: Options = [...target.options, ["wire", "token"], ["drift", DRIFT], ["maxTtl", maxTtl]];
    // Each acquire sets how long it waits, even in an outage.
    this.native = sync(() => new native.Client(calls, target.urls, [...options, ["patience", TEN_YEARS]]));
    follow(this.native.events, telling(new WeakRef(this)));
  }

  /**
   * The nodes of a target, for leases of this duration. On a quorum, `maxTtl` sets how long a restarted server does not
   * vote. It is a minute times a power of two, so that few different clients are needed.
   */
  static of(target: Target, duration: number): Nodes {
    const doublings = target.urls.length > 1 ? Math.max(0, Math.ceil(Math.log2(duration / MINUTE))) : 0;
    const maxTtl = Math.min(TEN_YEARS, MINUTE * 2 ** doublings);
    const key = JSON.stringify([target, maxTtl]);
    let nodes = known.get(key)?.deref();
    if (nodes === undefined) {
      nodes = new Nodes(target, maxTtl);
      known.set(key, new WeakRef(nodes));
      forgotten.register(nodes, key);
    }
    return nodes;
  }

  /** For each node, in the order of the target, the cause if it is down. */
  down(): (Error | undefined)[] {
    return this.native.nodes.map((node) => this.#down.get(node));
  }

  observe(observer: WeakRef<Observer>): void {
    this.#observers.add(observer);
  }

  tell({ kind, node, message, warning }: RedlockEvent): void {
    // An event about a lease: the caller that has the lease reports it.
    if (node === undefined) return;
    const error = new Error(message);
    if (kind === "node_down") this.#down.set(node, error);
    if (kind === "node_up") this.#down.delete(node);
    // While a node is down, the event `node_up` is needed, too.
    this.native.events.setVerbose(this.#down.size > 0);
    if (!warning) return;
    for (const each of this.#observers) {
      const observer = each.deref();
      if (observer === undefined) this.#observers.delete(each);
      else observer.troubled(error);
    }
  }
}

function telling(nodes: WeakRef<Nodes>): (event: RedlockEvent) => void {
  return (event) => nodes.deref()?.tell(event);
}
