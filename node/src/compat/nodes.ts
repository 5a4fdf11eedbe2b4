/**
 * Native clients of the drop-in shim, shared: Redlocks with equal settings have the same connections, and all of them
 * are told when a node is down.
 *
 * @module
 */

import { sync } from "../errors";
import { follow, type RedlockEvent } from "../events";
import { calls } from "../loop";
import { type Client, native, type Options } from "../native";
import type { Target } from "./ioredis";

/** Is told of what goes wrong. */
export interface Observer {
  troubled(error: Error): void;
}

/** The longest lease that servers of a quorum stay away for after a restart. */
const TEN_YEARS = 10 * 365 * 86_400_000;
const MINUTE = 60_000;
/** The lowest the core has, and node-redlock's default; a higher one shortens what it says here, in JavaScript. */
export const DRIFT = 0.01;

const known = new Map<string, WeakRef<Nodes>>();
const forgotten = new FinalizationRegistry<string>((key) => {
  if (known.get(key)?.deref() === undefined) known.delete(key);
});

/** The nodes of a Redlock. */
export class Nodes {
  readonly native: Client;
  /** Why each node is down that is. */
  readonly #down = new Map<string, Error>();
  readonly #observers = new Set<WeakRef<Observer>>();

  private constructor(target: Target, maxTtl: number) {
    const options: Options = [...target.options, ["wire", "token"], ["drift", DRIFT], ["maxTtl", maxTtl]];
    // How long to wait is for each acquire to say, outage or not.
    this.native = sync(() => new native.Client(calls, target.urls, [...options, ["patience", TEN_YEARS]]));
    follow(this.native.events, telling(new WeakRef(this)));
  }

  /**
   * The nodes of a target, for leases of this length. On a quorum a server that restarted does not vote until the
   * leases from before are over: as long as the longest of them, which is one of few, so that few clients are needed.
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

  /** Why each of the nodes is down that is, in the order of the target. */
  down(): (Error | undefined)[] {
    return this.native.nodes.map((node) => this.#down.get(node));
  }

  observe(observer: WeakRef<Observer>): void {
    this.#observers.add(observer);
  }

  tell({ kind, node, message, warning }: RedlockEvent): void {
    // What becomes of leases is told by whoever has them.
    if (node === undefined) return;
    const error = new Error(message);
    if (kind === "node_down") this.#down.set(node, error);
    if (kind === "node_up") this.#down.delete(node);
    // Only then are recoveries told, too.
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
