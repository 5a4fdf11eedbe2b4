/**
 * Locks, read/write locks and semaphores, by name.
 *
 * @module
 */

import { inspect } from "node:util";
import { InvalidArgument, LockTimeout } from "./errors";
import { Lease, type ReleaseOutcome } from "./lease";
import { call, rejecting } from "./loop";
import { type Client, type Given, locks, type Lock as Native, type Lease as NativeLease } from "./native";
import { type AcquireOptions, acquiring, type PermitOptions, taking, trying, without } from "./options";

/** A function that runs while the lock is held. `signal` is aborted when the lock is lost. */
export type Body<T> = (signal: AbortSignal, lease: Lease) => T | PromiseLike<T>;

/** The arguments of `using`. */
export type Using<Options, T> = [body: Body<T>] | [options: Options | null | undefined, body: Body<T>];

/** Splits the arguments of `using` into options and body. */
export function block<Options, T>(given: Using<Options, T>): [Options | null | undefined, Body<T>] {
  const [options, body] = given.length === 1 ? [undefined, given[0]] : given;
  if (typeof body !== "function") throw new InvalidArgument("body: must be a function");
  return [options, body];
}

/**
 * Whether a body cannot read its arguments: an arrow function without parameters. Such a body gets no signal, because
 * making one costs more than the rest of `using` in JavaScript (ADR 32).
 */
function takesNothing(body: Body<unknown>): body is () => never {
  return body.length === 0 && NO_PARAMETERS.test(Function.prototype.toString.call(body));
}

const NO_PARAMETERS = /^(?:async\s*)?\(\s*\)\s*=>/;

/** The holder of a lock, as a quorum of nodes reports it. */
export interface LockInfo {
  /**
   * What is held: a lock, a {@link ReadWriteLock} by readers or by a writer, or permits of a {@link Semaphore}. `rest`:
   * nobody holds it; it was released before its `minHold` was over, and is free when the `ttl` is over.
   */
  readonly kind: "lock" | "read" | "write" | "semaphore" | "rest";
  /**
   * The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`. The first, if there are several; empty
   * for a `rest`.
   */
  readonly owner: string;
  /** All owners. Only readers and permits of a semaphore can be several; a `rest` has none. */
  readonly owners: readonly string[];
  /** Milliseconds until the key expires, unless it is renewed; null if another library wrote it without a ttl. */
  readonly ttl: number | null;
  /** The last fencing token; 0 if the holder uses none. */
  readonly token: bigint;
  /**
   * The name of the holder's machine; null for other libraries, for explicit owners, and if the holder's connections have
   * no name or this client may not read it. Of several holders, the first; of a detached lease, the one that detached it.
   */
  readonly host: string | null;
  /** The number of the holder's process; null if `host` is. */
  readonly pid: number | null;
  /** The name of the holder's program, its option `app`; null if `host` is. */
  readonly app: string | null;
  /**
   * Since when the holder has the lock, by the clock of a node; null for readers, for permits, for other libraries and if
   * it is not known.
   */
  readonly since: Date | null;
}

/** The holder of a lock as the native part returns it: without the fields that are not known, and the time is a number. */
type NativeInfo = Pick<LockInfo, "kind" | "owner" | "owners" | "token"> & {
  readonly ttl?: number;
  readonly host?: string;
  readonly pid?: number;
  readonly app?: string;
  readonly since?: number;
};

function lockInfo(native: NativeInfo | null | undefined): LockInfo | null {
  if (!native) return null;
  const { ttl = null, host = null, pid = null, app = null, since } = native;
  return { ...native, ttl, host, pid, app, since: since === undefined ? null : new Date(since) };
}

/** A native lock that is bound to a client, and that client. */
export interface BoundLock {
  native: Native;
  client: Client;
}

/**
 * A lock by name. Every acquire is an owner of its own, unless the lock has an `owner`: concurrent acquires of one lock
 * object exclude each other.
 *
 * @example
 * ```ts
 * const report = client.lock("report", { wait: 5_000 });
 * await report.using((signal, lease) => buildReport({ signal, fence: lease.token }));
 *
 * const lease = await report.tryAcquire(); // one try
 * await lease?.release();
 * ```
 */
export class Lock {
  /** The name, without the client's prefix. */
  readonly name: string;
  /** A function in a lock of the default client, until its first use. */
  #bound: BoundLock | (() => BoundLock);

  /** @internal */
  constructor(name: string, bound: BoundLock | (() => BoundLock)) {
    this.name = name;
    this.#bound = bound;
  }

  get #lock(): BoundLock {
    if (typeof this.#bound === "function") this.#bound = this.#bound();
    return this.#bound;
  }

  /**
   * Acquires the lock. Rejects with {@link LockTimeout} if another owner holds it until `wait` is over, with
   * {@link WouldDeadlock} if this owner holds it and the lock is not re-entrant, with {@link LockLost} if this owner
   * held it and lost it, with `signal.reason` if `signal` is aborted, and with {@link Unavailable},
   * {@link KeyConflict}, {@link InvalidArgument} and {@link Closed}. A cancelled call leaves nothing behind.
   */
  acquire(options?: AcquireOptions | null): Promise<Lease> {
    if (options === undefined || options === null) return this.#take();
    return rejecting(() => {
      const { wait, signal } = acquiring(options);
      return this.#take(wait, signal);
    });
  }

  /**
   * Acquires the lock if it is free, in one round trip; null if it is held. Rejects as `acquire()` does, but never with
   * {@link LockTimeout}, and with {@link Unavailable} at once. It has no options, and rejects with
   * {@link InvalidArgument} for any, such as a `signal`.
   */
  tryAcquire(): Promise<Lease | null>;
  async tryAcquire(options?: unknown): Promise<Lease | null> {
    without(options, "tryAcquire");
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
   * Acquires the lock, runs `body`, and releases the lock when the promise of `body` is settled. Resolves with the
   * result of `body`. Rejects as `acquire()` does, with the error of `body`, or else with {@link LockLost} if the lock
   * was lost.
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
      // The caller must see the body's error, not one of the release.
      await lease.leave().catch(() => {});
      throw error;
    }
    await lease.leave();
    return result;
  }

  /**
   * Releases the newest lease of this lock object. If an explicit owner has no lease in this process, it ends the
   * owner's tenures in all processes; only then it rejects with {@link Unavailable} if too few nodes answer. Rejects
   * with {@link NotHeld} if there is nothing to release, and with {@link Closed}.
   */
  release(): Promise<ReleaseOutcome> {
    return call((loop) => loop.releaseNewest(this.#lock.native));
  }

  /** Whether this lock object, or its explicit owner in this client, holds the lock. Sends nothing. */
  owned(): boolean {
    return locks.owned(this.#lock.native);
  }

  /** Whether any owner holds the lock. Rejects as `inspect()` does. */
  locked(): Promise<boolean> {
    return call((loop) => loop.locked(this.#lock.native));
  }

  /**
   * Returns the holder of the lock, or null. Rejects with {@link Unavailable} if too few nodes answer, and with
   * {@link KeyConflict} and {@link Closed}.
   *
   * @example
   * ```ts
   * const info = await client.lock("report").inspect();
   * if (info) console.log(info.app, info.pid, info.host, info.since);
   * ```
   */
  inspect(): Promise<LockInfo | null> {
    return call((loop) => loop.inspect(this.#lock.native), undefined, lockInfo);
  }

  /** @internal */
  available(): Promise<number> {
    return call((loop) => loop.available(this.#lock.native));
  }

  /** @internal */
  [inspect.custom](): string {
    return `Lock ${inspect(this.name)} of ${typeof this.#bound === "function" ? "the default client" : this.#bound.client.nodes}`;
  }
}

/**
 * A read/write lock by name: many readers hold it at once, or one writer. Each side is a {@link Lock}.
 *
 * On one server, readers and writers take turns, so that neither starves. New readers queue behind a waiting writer.
 * When the writer releases, all waiting readers get the lock, and then the next writer. A quorum promises no order.
 *
 * @example
 * ```ts
 * const config = client.readWriteLock("config");
 *
 * await config.read.using(async (signal, lease) => { // beside other readers
 *   if (await lease.tryUpgrade()) await saveConfig({ signal, fence: lease.token }); // nobody else reads
 * });
 *
 * await config.write.using(async (signal, lease) => { // alone
 *   await saveConfig({ signal, fence: lease.token });
 *   await lease.downgrade(); // a reader from here on
 * });
 * ```
 */
export class ReadWriteLock {
  /** The name, without the client's prefix. */
  readonly name: string;
  /** The lock of the readers. */
  readonly read: Lock;
  /** The lock of the writer. */
  readonly write: Lock;

  /** @internal */
  constructor(name: string, make: (part: "read" | "write") => BoundLock | (() => BoundLock)) {
    this.name = name;
    this.read = new Lock(name, make("read"));
    this.write = new Lock(name, make("write"));
  }

  /** @internal */
  [inspect.custom](): string {
    return `ReadWrite${inspect(this.read)}`;
  }
}

/**
 * A semaphore by name: `permits` slots, which all processes share. A permit is a {@link Lease} with `slots` and
 * `tokens`.
 *
 * Slots are numbered from 0, and each belongs to one permit at a time. Waiters get slots in the order of their
 * acquires. One that waits for several slots gets all of them at once, and no later waiter overtakes it. On a
 * quorum that holds for the waiters of one client only.
 *
 * @example
 * ```ts
 * const gpu = client.semaphore("gpu", { permits: 4 });
 * await gpu.using(async (signal, permit) => run({ device: permit.slots[0], signal, fence: permit.tokens[0] }));
 *
 * const permit = await gpu.acquire({ n: 2, wait: 5_000 }); // two slots at once
 * await permit.release();
 * ```
 */
export class Semaphore {
  /** The name, without the client's prefix. */
  readonly name: string;
  /** How many slots it has. */
  readonly permits: number;
  readonly #make: (n: number) => BoundLock | (() => BoundLock);
  readonly #one: Lock;

  /** @internal */
  constructor(name: string, permits: number, make: (n: number) => BoundLock | (() => BoundLock)) {
    this.name = name;
    this.permits = permits;
    this.#make = make;
    this.#one = new Lock(name, make(1));
  }

  #taking(n: number | null | undefined): Lock {
    return n == null || n === 1 ? this.#one : new Lock(this.name, this.#make(n));
  }

  /**
   * Acquires `n` slots at once, from 1 to `permits`; one by default. Rejects with {@link LockTimeout} if too few are
   * free until `wait` is over, with `signal.reason` if `signal` is aborted, and with {@link Unavailable},
   * {@link KeyConflict}, {@link InvalidArgument} and {@link Closed}. A cancelled call leaves nothing behind.
   */
  acquire(options?: PermitOptions | null): Promise<Lease> {
    return rejecting(() => {
      const [n, acquiring] = taking(options);
      return this.#taking(n).acquire(acquiring);
    });
  }

  /**
   * Acquires `n` slots, one by default, if as many are free and there is no waiter; else null. Rejects as `acquire()`
   * does, but never with {@link LockTimeout}.
   */
  tryAcquire(options?: Pick<PermitOptions, "n"> | null): Promise<Lease | null> {
    return rejecting(() => this.#taking(trying(options)).tryAcquire());
  }

  /**
   * Acquires one slot, runs `body`, and releases the slot, as {@link Lock.using} does. Rejects as `acquire()` does,
   * with the error of `body`, or else with {@link LockLost} if the permit was lost.
   */
  using<T>(body: Body<T>): Promise<T>;
  /** The same with the options of `acquire()`, such as the number of slots. */
  using<T>(options: PermitOptions | null | undefined, body: Body<T>): Promise<T>;
  using<T>(...given: Using<PermitOptions, T>): Promise<T> {
    return rejecting(() => {
      const [options, body] = block(given);
      const [n, acquiring] = taking(options);
      return this.#taking(n).using(acquiring, body);
    });
  }

  /**
   * The number of free slots; waiters may be due to get them. Rejects with {@link Unavailable}, {@link KeyConflict} and
   * {@link Closed}.
   */
  available(): Promise<number> {
    return this.#one.available();
  }

  /** Whether no slot is free. Rejects as `available()` does. */
  async locked(): Promise<boolean> {
    return (await this.available()) === 0;
  }

  /** @internal */
  [inspect.custom](): string {
    return `Semaphore of ${this.permits}: ${inspect(this.#one)}`;
  }
}
