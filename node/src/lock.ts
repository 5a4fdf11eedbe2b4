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
import { type AcquireOptions, acquiring, type PermitOptions } from "./options";

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
  /** How: by the owner of a lock, by the readers or the writer of a {@link ReadWriteLock}, with permits of a semaphore. */
  readonly kind: "lock" | "read" | "write" | "semaphore";
  /** The explicit owner, or `uuid:tenure`; Redisson's owners are `uuid:thread`. Of several readers the first. */
  readonly owner: string;
  /** All owners: several only if they read, or have permits of a semaphore. */
  readonly owners: readonly string[];
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
  available(): Promise<number> {
    return call((loop) => loop.available(this.#lock.native));
  }

  /** @internal */
  [inspect.custom](): string {
    return `Lock ${inspect(this.name)} of ${typeof this.#found === "function" ? "the default client" : this.#found.client.nodes}`;
  }
}

/**
 * A read/write lock by name: many may read at once, or one may write. Each of the two is a {@link Lock}.
 *
 * On one server a writer that waits lets the readers inside finish and keeps new ones behind it; when it ends, all readers
 * that wait come in, and then the next writer: nobody starves. On a quorum no order is promised.
 *
 * @example
 * ```ts
 * const config = client.readWriteLock("config");
 * await config.read.using(async (signal, lease) => load({ signal, fence: lease.token }));
 * await config.write.using(async (signal, lease) => store({ signal, fence: lease.token }));
 * ```
 */
export class ReadWriteLock {
  /** The name, without the client's prefix. */
  readonly name: string;
  /** What readers take. */
  readonly read: Lock;
  /** What a writer takes. */
  readonly write: Lock;

  /** @internal */
  constructor(name: string, part: (part: "read" | "write") => Found | (() => Found)) {
    this.name = name;
    this.read = new Lock(name, part("read"));
    this.write = new Lock(name, part("write"));
  }

  /** @internal */
  [inspect.custom](): string {
    return `ReadWrite${inspect(this.read)}`;
  }
}

/**
 * A semaphore by name: at most so many slots of it are held at once, everywhere. A permit is a {@link Lease} with `slots` and
 * `tokens`.
 *
 * Slots are numbered from 0: while a permit is held nobody else has its slots. They go to those who want them in the order in
 * which they asked; what needs several gets them at once, and is not overtaken. Needs one server, cluster or Sentinel
 * service.
 *
 * @example
 * ```ts
 * const gpu = client.semaphore("gpu", { permits: 4 });
 * await gpu.using(async (signal, permit) => run({ device: permit.slots[0], signal, fence: permit.token }));
 * ```
 */
export class Semaphore {
  /** The name, without the client's prefix. */
  readonly name: string;
  /** How many slots it has. */
  readonly permits: number;
  readonly #make: (n: number) => Found | (() => Found);
  readonly #one: Lock;

  /** @internal */
  constructor(name: string, permits: number, make: (n: number) => Found | (() => Found)) {
    this.name = name;
    this.permits = permits;
    this.#make = make;
    this.#one = new Lock(name, make(1));
  }

  #taking(n: number | null | undefined): Lock {
    return n == null || n === 1 ? this.#one : new Lock(this.name, this.#make(n));
  }

  /**
   * Takes `n` slots at once, one by default. Rejects with {@link LockTimeout} when too few are free to the end of `wait`, with
   * {@link Unavailable}, {@link KeyConflict}, {@link InvalidArgument}, {@link Closed}, and with the reason of an aborted
   * `signal`. A call that was given up leaves nothing behind.
   */
  acquire(options?: PermitOptions | null): Promise<Lease> {
    return rejecting(() => {
      const { n, ...acquiring } = options ?? {};
      return this.#taking(n).acquire(acquiring);
    });
  }

  /** Takes `n` slots if so many are free and nobody waits; null when not. Rejects as `acquire()` does. */
  tryAcquire(options?: Pick<PermitOptions, "n"> | null): Promise<Lease | null> {
    return rejecting(() => this.#taking(options?.n).tryAcquire());
  }

  /** Takes slots, runs `body`, and releases them when what it returns is settled, as {@link Lock.using} does. */
  using<T>(body: Body<T>): Promise<T>;
  /** The same, with the options of `acquire()`. */
  using<T>(options: PermitOptions | null | undefined, body: Body<T>): Promise<T>;
  using<T>(...given: Using<PermitOptions, T>): Promise<T> {
    return rejecting(() => {
      const [options, body] = block(given);
      const { n, ...acquiring } = options ?? {};
      return this.#taking(n).using(acquiring, body);
    });
  }

  /** How many slots are free; others may wait for them. Rejects with {@link Unavailable} and {@link KeyConflict}. */
  available(): Promise<number> {
    return this.#one.available();
  }

  /** Whether no slot is free. Rejects with {@link Unavailable} and {@link KeyConflict}. */
  async locked(): Promise<boolean> {
    return (await this.available()) === 0;
  }

  /** @internal */
  [inspect.custom](): string {
    return `Semaphore of ${this.permits}: ${inspect(this.#one)}`;
  }
}
