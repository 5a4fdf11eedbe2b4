/**
 * The events of a client: passes them to its listeners, and emits warnings of the process.
 *
 * @module
 */

import { InvalidArgument, type LostReason } from "./errors";
import { watch } from "./loop";
import type { Client, Events } from "./native";

/** The kinds of events. */
export type EventKind =
  | "acquired"
  | "released"
  | "at_risk"
  | "lost"
  | "orphaned"
  | "node_down"
  | "node_up"
  | "node_warning"
  | "events_dropped";

const KINDS: EventKind[] = [
  "acquired",
  "released",
  "at_risk",
  "lost",
  "orphaned",
  "node_down",
  "node_up",
  "node_warning",
  "events_dropped",
];

/** An event of a client. */
export interface RedlockEvent<Kind extends EventKind = EventKind> {
  /**
   * - `acquired`, `released`: a lock was acquired or released.
   * - `at_risk`: two thirds of the ttl are over and no renewal succeeded. Save your work.
   * - `lost`: a lock was lost; once per tenure.
   * - `orphaned`: nothing refers to a held lock any more. It is no longer renewed, and ends with its ttl.
   * - `node_down`, `node_up`: a node does not answer, or answers again.
   * - `node_warning`: the state of a node weakens locks or slows them down, and will not change by itself.
   * - `events_dropped`: more than 10 000 events came while the event loop was blocked, and the newest were dropped.
   */
  readonly kind: Kind;
  /** The event in one line, for people. */
  readonly message: string;
  /** Whether an operator should see it. If true, the process emits it as a warning, too. */
  readonly warning: boolean;
  /** The lock, without the client's prefix; only of events about a lock. */
  readonly name?: string;
  /** The fencing token; only of events about a lock. */
  readonly token?: bigint;
  /** Why the lock was lost; only of `lost`. */
  readonly reason?: LostReason;
  /** The node's address, without credentials; only of events about a node. */
  readonly node?: string;
  /** How many events were dropped; only of `events_dropped`. */
  readonly count?: number;
}

/** A function that is called for each event. What it throws becomes an uncaught exception. */
export type EventListener<Kind extends EventKind = EventKind> = (event: RedlockEvent<Kind>) => void;

/** Keeps listeners for as long as anything uses their client, such as a lock, even if the `Redlock` is collected. */
const kept = new WeakMap<Client, Listeners>();

/** The listeners of one client. */
export class Listeners {
  readonly #events: Events;
  readonly #of = new Map<EventKind, Set<EventListener>>();

  constructor(client: Client) {
    this.#events = client.events;
    kept.set(client, this);
    // A weak reference, so that the client and its listeners can be collected.
    follow(client.events, telling(new WeakRef(this)));
  }

  on(kind: EventKind, listener: EventListener): void {
    if (!KINDS.includes(kind)) {
      throw new InvalidArgument(`kind: there is no event ${JSON.stringify(kind)}, only ${KINDS.join(", ")}`);
    }
    if (typeof listener !== "function") {
      throw new InvalidArgument("listener: must be a function");
    }
    this.#of.set(kind, (this.#of.get(kind) ?? new Set()).add(listener));
    this.#events.setVerbose(true);
  }

  off(kind: EventKind, listener: EventListener): void {
    const listeners = this.#of.get(kind);
    if (listeners?.delete(listener) && listeners.size === 0) {
      this.#of.delete(kind);
      this.#events.setVerbose(this.#of.size > 0);
    }
  }

  tell(event: RedlockEvent): void {
    for (const listener of [...(this.#of.get(event.kind) ?? [])]) {
      try {
        listener(event);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}

/** Calls `tell` for each event, until no client can cause any more. */
export function follow(events: Events, tell: (event: RedlockEvent) => void): void {
  watch(
    (loop) => loop.events(events),
    (happened) => {
      const all = happened as RedlockEvent[] | undefined;
      if (!all?.length) return;
      for (const event of all) tell(event);
      follow(events, tell);
    },
  );
}

function telling(listeners: WeakRef<Listeners>): (event: RedlockEvent) => void {
  return (event) => {
    if (event.warning) process.emitWarning(event.message, { type: "RedlockWarning", code: event.kind });
    listeners.deref()?.tell(event);
  };
}
