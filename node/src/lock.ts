/**
 * A lock: a name, and how to take it.
 *
 * @module
 */

import { inspect } from "node:util";
import { InvalidArgument, LockTimeout } from "./errors";
import { Lease, type ReleaseOutcome } from "./lease";
import { call, rejecting } from "./loop";
import { type Client, type Given, locks, type Lock as Native, type Lease as NativeLease } from "./native";
import { type AcquireOptions, acquiring } from "./options";

/** What runs with a lock held. The signal is aborted when the lock is lost. */
export type Body<T> = (signal: AbortSignal, lease: Lease) => T | PromiseLike<T>;

/** What `using` is given. */
export type Using<Options, T> = [body: Body<T>] | [options: Options | null | undefined, body: Body<T>];

/** The options and the body of a `using`. */
export function block<Options, T>(given: Using<Options, T>): [Options | null | undefined, Body<T>] {
  const [options, body] = given.length === 1 ? [undefined, given[0]] : given;
  if (typeof body !== "function") throw new InvalidArgument("body: must be a function");
  return [options, body];
}

/**
 * Whether a body surely looks at nothing that it is given: an arrow function without parameters. A signal costs more than
 * the rest of a `using` does in JavaScript, so such a body gets none.
 */
function takesNothing(body: Body<unknown>): body is () => never {
  return body.length === 0 && NO_PARAMETERS.test(Function.prototype.toString.call(body));
}

const NO_PARAMETERS = /^(?:async\s*)?\(\s*\)\s*=>/;

/** Who holds a lock, as a quorum of nodes saw it. */
export interface LockInfo {
  /** The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`. */
  readonly owner: string;
  /** Milliseconds until the key ends unless it is renewed; null when a peer gave it no time to live. */
  readonly ttl: number | null;
  /** The last fencing token; 0 when the holder draws none. */
  readonly token: bigint;
}

/** A lock of a known client. */
export interface Found {
  native: Native;
  client: Client;
}

/**
 * A lock by name. Every acquire is an owner of its own, unless the lock has an `owner`: concurrent acquires of one lock
 * object exclude each other.
 */
export class Lock {
  /** The name, without the client's prefix. */
  readonly name: string;
  /** A lock of the default client finds it when it is first used. */
  #found: Found | (() => Found);

  /** @internal */
  constructor(name: string, found: Found | (() => Found)) {
    this.name = name;
    this.#found = found;
  }

  get #lock(): Found {
    if (typeof this.#found === "function") this.#found = this.#found();
    return this.#found;
  }

  /**
   * Takes the lock. Rejects with {@link LockTimeout} when somebody else holds it to the end of `wait`, with
   * {@link Unavailable}, {@link KeyConflict}, {@link Closed}, with {@link WouldDeadlock} (this owner holds it and the
   * lock is not re-entrant), with {@link LockLost} (this owner held it and lost it), and with the reason of an aborted
   * `signal`. A call that was given up leaves nothing behind.
   */
  acquire(options?: AcquireOptions | null): Promise<Lease> {
    if (options === undefined || options === null) return this.#take();
    return rejecting(() => {
      const { wait, signal } = acquiring(options);
      return this.#take(wait, signal);
    });
  }

  /** Takes the lock if it is free, in one round trip; null when somebody holds it. Rejects as `acquire()` does. */
  async tryAcquire(): Promise<Lease | null> {
    try {
      return await this.#take(0);
    } catch (error) {
      if (error instanceof LockTimeout) return null;
      throw error;
    }
  }

  #take(wait?: Given, signal?: AbortSignal): Promise<Lease> {
    return call(
      (loop) => loop.acquire(this.#lock.native, wait),
      signal,
      (native: NativeLease) => new Lease(native, this.#lock.client),
    );
  }

  /**
   * Takes the lock, runs `body`, and releases the lock when what it returns is settled. Resolves with that. Rejects as
   * `acquire()` does, with the body's own error, or else with {@link LockLost} if the lock was lost meanwhile.
   */
  using<T>(body: Body<T>): Promise<T>;
  /** The same, with the options of `acquire()`. */
  using<T>(options: AcquireOptions | null | undefined, body: Body<T>): Promise<T>;
  async using<T>(...given: Using<AcquireOptions, T>): Promise<T> {
    const [options, body] = block(given);
    const lease = await this.acquire(options);
    let result: T;
    try {
      result = await (takesNothing(body) ? body() : body(lease.signal, lease));
    } catch (error) {
      // The body's own error is what the caller has to see.
      await lease.leave().catch(() => {});
      throw error;
    }
    await lease.leave();
    return result;
  }

  /**
   * Releases the newest lease of this lock object. With an explicit owner and no lease in this process it ends that
   * owner's tenures wherever they were taken. Rejects with {@link NotHeld} when there is nothing to release.
   */
  release(): Promise<ReleaseOutcome> {
    return call((loop) => loop.releaseNewest(this.#lock.native));
  }

  /** Whether this lock object, or its explicit owner in this client, holds the lock. Asks nobody. */
  owned(): boolean {
    return locks.owned(this.#lock.native);
  }

  /** Whether anybody holds the lock. Rejects with {@link Unavailable} when too few nodes answer. */
  locked(): Promise<boolean> {
    return call((loop) => loop.locked(this.#lock.native));
  }

  /** Who holds the lock; null when nobody does. Rejects with {@link Unavailable} when too few nodes answer. */
  inspect(): Promise<LockInfo | null> {
    return call(
      (loop) => loop.inspect(this.#lock.native),
      undefined,
      (info: LockInfo | null | undefined) => info ?? null,
    );
  }

  /** @internal */
  [inspect.custom](): string {
    return `Lock ${inspect(this.name)} of ${typeof this.#found === "function" ? "the default client" : this.#found.client.nodes}`;
  }
}
