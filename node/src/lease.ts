/**
 * The lease: what an acquire returns, and what its caller releases.
 *
 * @module
 */

import { inspect } from "node:util";
import { type LostReason, sync } from "./errors";
import { call, rejecting, watch } from "./loop";
import { type Client, leases, type Lease as Native } from "./native";
import { setting, without } from "./options";

/**
 * The result of a release.
 *
 * - `released`: the lock was held until now, and is free.
 * - `lost`: it had been lost before.
 * - `unconfirmed`: too few nodes answered. The release is sent again in the background until the lease ends by itself.
 */
export type ReleaseOutcome = "released" | "lost" | "unconfirmed";

/**
 * The signal refers to the native lease, so a caller that keeps only the signal still holds it. Cheaper than a WeakMap.
 */
const WATCHED = Symbol("redlock.watched");

/** A signal that keeps its controller and its native lease alive. */
interface Watched extends AbortSignal {
  [WATCHED]?: { controller: AbortController; native: Native };
}

/**
 * A held lock, or the permit of a semaphore, as an acquire returns it. It ends with its release, or at its deadline
 * unless it is renewed or extended.
 *
 * @example
 * ```ts
 * await using lease = await client.acquire("import"); // released at the end of the block
 * for (const batch of [[1, 2], [3]]) {
 *   lease.check(); // throws LockLost once the lock is lost
 *   await load(batch, { signal: lease.signal, fence: lease.token });
 * }
 * ```
 */
export class Lease {
  readonly #native: Native;
  /** Keeps the client alive, because the end of this thread releases only the leases of living clients. */
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

  /** The slots of a permit of a {@link Semaphore}, numbered from 0; empty for a lock. */
  get slots(): readonly number[] {
    return leases.slots(this.#native);
  }

  /** The fencing token of each slot, in the order of `slots`; empty for a lock. */
  get tokens(): readonly bigint[] {
    return leases.tokens(this.#native);
  }

  /** Whether the lock is held now. Only reads a clock; once false it stays false. */
  get held(): boolean {
    return leases.held(this.#native);
  }

  /** Why the lock was lost; undefined if it was not. */
  get lostReason(): LostReason | undefined {
    return (leases.lostReason(this.#native) as LostReason | null) ?? undefined;
  }

  /**
   * Aborted, with a {@link LockLost} as its reason, when the lock is lost; never after a release or `detach()`. Pass it
   * to the code that works under the lock: `fetch`, timers, streams, drivers.
   *
   * @example
   * ```ts
   * const lease = await client.acquire("report");
   * lease.signal.addEventListener("abort", () => console.log("lost:", lease.lostReason));
   * ```
   */
  get signal(): AbortSignal {
    this.#signal ??= signalOf(this.#native);
    return this.#signal;
  }

  /** Milliseconds until the lease ends, unless it is renewed; 0 once the lock is not held. */
  remaining(): number {
    return leases.remaining(this.#native);
  }

  /** Throws {@link LockLost} after a loss, {@link NotHeld} after a release or `detach()`. Sends nothing. */
  check(): void {
    sync(() => leases.check(this.#native));
  }

  /**
   * Sets the end of the lease to `ttl` milliseconds from now, if that is later than its present end. `ttl` is from
   * 50 ms to 10 years, and on a quorum at most the client's `maxTtl`. A renewed lease is still renewed. Rejects with
   * {@link LockLost} after a loss, with {@link NotHeld} after a release or `detach()`, with {@link InvalidArgument},
   * with {@link KeyConflict} if the key holds a value that is not a lock, and with {@link Unavailable} in an outage,
   * which changes nothing.
   *
   * @example
   * ```ts
   * const lease = await client.acquire("import", { ttl: 10_000 });
   * await lease.extend(60_000); // it ends 60 s from now
   * ```
   */
  extend(ttl: number): Promise<void> {
    return call((loop) => loop.extend(this.#native, setting(ttl)));
  }

  /**
   * Turns a writer of a {@link ReadWriteLock} into a reader; no other writer gets the lock in between. Waiting readers
   * get the lock, and the lease gets a reader's token. Does nothing for a reader. Rejects with {@link LockLost} after a
   * loss, with {@link NotHeld} after a release or `detach()`, with {@link InvalidArgument} for a lease of another kind,
   * with {@link KeyConflict} if the key holds a value that is not a lock, and with {@link Unavailable} while too few
   * nodes answer. In that case this lease is a reader already, but others may be kept out until `downgrade()` succeeds
   * or the lease is released.
   */
  downgrade(): Promise<void> {
    return call((loop) => loop.downgrade(this.#native));
  }

  /**
   * Turns a reader of a {@link ReadWriteLock} into a writer with a new token, if there is no other reader. Resolves
   * with true if the lease is a writer now. Never waits. Rejects as `downgrade()` does. It has no options, and rejects
   * with {@link InvalidArgument} for any.
   */
  tryUpgrade(): Promise<boolean>;
  tryUpgrade(options?: unknown): Promise<boolean> {
    return rejecting(() => {
      without(options, "tryUpgrade");
      return call((loop) => loop.tryUpgrade(this.#native));
    });
  }

  /**
   * Releases this lease; the last lease of the owner frees the lock. A second call resolves with the same result.
   * Rejects only after `detach()`, with {@link NotHeld}.
   */
  release(): Promise<ReleaseOutcome> {
    return call((loop) => loop.release(this.#native));
  }

  /**
   * Ends this lease without releasing the lock, and returns a text. A client of the same nodes, in this process or
   * another, takes the lock over by `attach(text)`, once, before the ttl ends: nobody renews the lock until then. The
   * text is a secret: it gives the lock to anyone who has it. Throws {@link LockLost}, {@link NotHeld}, and
   * {@link InvalidArgument} while there are nested leases.
   */
  detach(): string {
    return sync(() => leases.detach(this.#native));
  }

  /**
   * Ends a block that acquired the lock: releases, and rejects with {@link LockLost} if the lock was lost. Does nothing
   * if the lease was detached inside the block, or released while it was held.
   *
   * @internal
   */
  leave(): Promise<void> {
    return call((loop) => loop.leave(this.#native));
  }

  /** Runs at the end of an `await using` block: releases, and rejects with {@link LockLost} if the lock was lost. */
  declare [Symbol.asyncDispose]: () => Promise<void>;

  /** The name, the token, and whether the lease is held, for people; `console.log` shows the same. */
  toString(): string {
    const { name, token, held, lostReason } = this;
    const state = held ? "held" : lostReason === undefined ? "released" : `lost: ${lostReason}`;
    return `Lease ${inspect(name)} of ${this.#client.nodes} { token: ${token}n, ${state} }`;
  }

  /** What `JSON.stringify` writes, as for a log. The token is a string, since JSON has no integers of 64 bits. */
  toJSON(): { name: string; owner: string; token: string; held: boolean; lostReason: LostReason | undefined } {
    const { name, owner, token, held, lostReason } = this;
    return { name, owner, token: token.toString(), held, lostReason };
  }

  /** @internal */
  [inspect.custom](): string {
    return this.toString();
  }

  static {
    disposable(Lease.prototype, Lease.prototype.leave);
  }
}

/** Defines `Symbol.asyncDispose`, if the runtime has it. */
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

/** Keeps neither the lease nor the signal alive: once the program drops both, the lock must not be renewed. */
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
