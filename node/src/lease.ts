/**
 * A lease: what an acquire gives, and what is handed back with a release.
 *
 * @module
 */

import { inspect } from "node:util";
import { type LostReason, sync } from "./errors";
import { call, watch } from "./loop";
import { type Client, leases, type Lease as Native } from "./native";
import { setting } from "./options";

/**
 * How a release ended: the lock is free; it had been lost before; or too few nodes answered, and are asked again until
 * the lease ends by itself.
 */
export type ReleaseOutcome = "released" | "lost" | "unconfirmed";

/** Whoever holds only a lease's signal still holds its lease: the signal refers to both. Cheaper than a WeakMap. */
const WATCHED = Symbol("redlock.watched");

/** A signal, and what it needs for as long as somebody holds it. */
interface Watched extends AbortSignal {
  [WATCHED]?: { controller: AbortController; native: Native };
}

/** A held lock. */
export class Lease {
  readonly #native: Native;
  /** Kept alive: the end of this thread releases what its living clients hold. */
  readonly #client: Client;
  #signal: AbortSignal | undefined;

  /** @internal */
  constructor(native: Native, client: Client) {
    this.#native = native;
    this.#client = client;
  }

  /** The lock's name, without the client's prefix. */
  get name(): string {
    return leases.name(this.#native);
  }

  /** The explicit owner, or `uuid:tenure`. */
  get owner(): string {
    return leases.owner(this.#native);
  }

  /** The fencing token, in µs: larger than that of every earlier holder. Needs 64 bits. */
  get token(): bigint {
    return leases.token(this.#native);
  }

  /** The slots that it has of a {@link Semaphore}, from 0; empty for a lock. */
  get slots(): readonly number[] {
    return leases.slots(this.#native);
  }

  /** The fencing tokens of its slots, in their order; empty for a lock. */
  get tokens(): readonly bigint[] {
    return leases.tokens(this.#native);
  }

  /** Whether the lock is held, right now. Reads a clock and nothing else; once false it stays false. */
  get held(): boolean {
    return leases.held(this.#native);
  }

  /** Why the lock was lost; undefined if it was not. */
  get lostReason(): LostReason | undefined {
    return (leases.lostReason(this.#native) as LostReason | null) ?? undefined;
  }

  /**
   * Aborted when the lock is lost, with a {@link LockLost} as its reason; never after a release or `detach()`. Give it
   * to whatever works under the lock: `fetch`, timers, streams, drivers.
   */
  get signal(): AbortSignal {
    this.#signal ??= signalOf(this.#native);
    return this.#signal;
  }

  /** The milliseconds for which it is held unless it is renewed; 0 once it is not. */
  remaining(): number {
    return leases.remaining(this.#native);
  }

  /** Throws {@link LockLost} after a loss, {@link NotHeld} after a release or `detach()`. */
  check(): void {
    sync(() => leases.check(this.#native));
  }

  /**
   * Lets the lock end `ttl` milliseconds from now, never earlier than it would have. A renewed lease is renewed on.
   * Rejects with {@link LockLost} after a loss, and with {@link Unavailable}, nothing changed, in an outage.
   */
  extend(ttl: number): Promise<void> {
    return call((loop) => loop.extend(this.#native, setting(ttl)));
  }

  /**
   * Makes a reader of a writer of a {@link ReadWriteLock}, without anybody else writing in between: readers that wait come
   * in, and the token becomes a reader's. Does nothing for one that reads. Rejects with {@link LockLost} after a loss, with
   * {@link Unavailable} while too few nodes answer (it reads then, and others may be kept out until this is called again),
   * and with {@link InvalidArgument} for a lease of another lock.
   */
  downgrade(): Promise<void> {
    return call((loop) => loop.downgrade(this.#native));
  }

  /**
   * Makes a writer of a reader of a {@link ReadWriteLock} if nobody else reads; resolves with whether it is one now, with a
   * new token. Never waits. Rejects as `downgrade()` does.
   */
  tryUpgrade(): Promise<boolean> {
    return call((loop) => loop.tryUpgrade(this.#native));
  }

  /**
   * Ends this lease; the last one of its owner frees the lock. Resolves with the same when called again. Rejects only
   * after `detach()`, with {@link NotHeld}.
   */
  release(): Promise<ReleaseOutcome> {
    return call((loop) => loop.release(this.#native));
  }

  /**
   * Stops renewing and lets go of the lock without releasing it. The text is a bearer secret: `attach` of a client with
   * the same nodes takes the lock over from it, once, in this process or another. Throws {@link LockLost},
   * {@link NotHeld}, and {@link InvalidArgument} while there are nested leases.
   */
  detach(): string {
    return sync(() => leases.detach(this.#native));
  }

  /**
   * Ends the block that took it: releases, and rejects with {@link LockLost} if the lock was lost. Does nothing after a
   * release or `detach()` inside the block.
   *
   * @internal
   */
  leave(): Promise<void> {
    return call((loop) => loop.leave(this.#native));
  }

  /** The end of an `await using` block: releases, and rejects with {@link LockLost} if the lock was lost. */
  declare [Symbol.asyncDispose]: () => Promise<void>;

  /** @internal */
  [inspect.custom](): string {
    const { name, token, held, lostReason } = this;
    const state = held ? "held" : lostReason === undefined ? "released" : `lost: ${lostReason}`;
    return `Lease ${inspect(name)} of ${this.#client.nodes} { token: ${token}n, ${state} }`;
  }

  static {
    disposable(Lease.prototype, Lease.prototype.leave);
  }
}

/** Where the runtime has `await using`. */
export function disposable(prototype: object, dispose: () => Promise<void>): void {
  if (typeof Symbol.asyncDispose === "symbol") {
    Object.defineProperty(prototype, Symbol.asyncDispose, { value: dispose, configurable: true, writable: true });
  }
}

function signalOf(native: Native): AbortSignal {
  const controller = new AbortController();
  const signal: Watched = controller.signal;
  signal[WATCHED] = { controller, native };
  if (leases.lostReason(native) !== null) controller.abort(loss(native));
  else watch((loop) => loop.lost(native), abortOnLoss(new WeakRef(signal)));
  return signal;
}

/** Refers to neither the lease nor the signal: once both are forgotten, the lock must not be renewed for their sake. */
function abortOnLoss(signal: WeakRef<Watched>): (lost: unknown) => void {
  return (lost) => {
    const watched = lost ? signal.deref()?.[WATCHED] : undefined;
    watched?.controller.abort(loss(watched.native));
  };
}

function loss(native: Native): unknown {
  try {
    sync(() => leases.check(native));
  } catch (error) {
    return error;
  }
  return undefined;
}
