/**
 * The client: connects to the nodes and makes locks.
 *
 * @module
 */

import { inspect } from "node:util";
import { sync } from "./errors";
import { type EventKind, type EventListener, Listeners } from "./events";
import { disposable, Lease } from "./lease";
import { type Body, type BoundLock, block, Lock, ReadWriteLock, Semaphore, type Using } from "./lock";
import { call, calls, rejecting } from "./loop";
import { type Client, type LockMaker, type Lease as NativeLease, native, type Options, type Unbound } from "./native";
import {
  type ClientOptions,
  type LockOptions,
  lockName,
  nodes,
  permitted,
  type ReadWriteOptions,
  readingAndWriting,
  type SemaphoreOptions,
  setting,
  settings,
  split,
  type TakeOptions,
  without,
} from "./options";

/** The state of one node. */
export interface NodeStatus {
  /** Its address, without credentials. */
  readonly node: string;
  /** Whether it answered, without an error. */
  readonly ok: boolean;
  /** The run id of the server, which changes with each restart. */
  readonly run?: string;
  /** The version of the server. */
  readonly version?: string;
  /** The error, if `ok` is false. */
  readonly cause?: string;
}

/** Stands for the URLs of the environment variable `REDLOCK_URL`. */
export const ENVIRONMENT = "\0REDLOCK_URL";

function ofEnvironment(options: Options): Client {
  // Read here: the native module does not see the environment of a worker thread or of a test runner's sandbox.
  return native.Client.fromEnvironment(calls, process.env["REDLOCK_URL"] || undefined, options);
}

/**
 * A client of one Redis node, or of a quorum of several.
 *
 * @example
 * ```ts
 * import { Redlock } from "redlock-core";
 *
 * const client = new Redlock(["redis://a", "redis://b", "redis://c"], { watchdog: 10_000 });
 * await client.using("report", { wait: 5_000 }, async (signal, lease) => {
 *   signal.throwIfAborted();
 *   console.log("building under token", lease.token);
 * });
 * await client.close();
 * ```
 */
export class Redlock {
  readonly #native: Client;
  readonly #make: LockMaker;
  readonly #listeners: Listeners;

  /**
   * `urls` is one URL or a list: `redis://[user:password@]host[:port][/db]`, `rediss://…` (TLS), `unix://path`,
   * `redis+cluster://host[:port],…`, `redis+sentinel://host[:port],…/name[/db]` (both also with TLS, as `rediss+…`) or
   * `memory://[name]` (inside this process, for tests). Sends nothing. Throws {@link InvalidArgument}.
   */
  constructor(urls: string | readonly string[], options?: ClientOptions | null) {
    const given = settings(options);
    this.#native = sync(() =>
      urls === ENVIRONMENT ? ofEnvironment(given) : new native.Client(calls, nodes(urls), given),
    );
    this.#make = this.#native.locks();
    this.#listeners = new Listeners(this.#native);
  }

  /** The nodes' addresses, without credentials, in the order of the URLs. */
  get nodes(): string[] {
    return this.#native.nodes;
  }

  /**
   * Returns the lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together. Sends nothing. Throws
   * {@link InvalidArgument}.
   */
  lock(name: string, options?: LockOptions | null): Lock {
    const native = sync(() => this.#make(lockName(name), options == null ? undefined : settings(options)));
    return new Lock(name, { native, client: this.#native });
  }

  /**
   * Returns the read/write lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together. Sends nothing.
   * Throws {@link InvalidArgument}.
   */
  readWriteLock(name: string, options?: ReadWriteOptions | null): ReadWriteLock {
    const given = readingAndWriting(options);
    return new ReadWriteLock(name, (part) => {
      const native = sync(() => this.#native.part(lockName(name), given, part));
      return { native, client: this.#native };
    });
  }

  /**
   * Returns the semaphore of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together. Sends
   * nothing. Throws {@link InvalidArgument}.
   */
  semaphore(name: string, options: SemaphoreOptions): Semaphore {
    const [permits, taking] = permitted(options);
    return new Semaphore(name, permits, (n) => {
      const native = sync(() => this.#native.permits(lockName(name), taking, setting(n), setting(permits)));
      return { native, client: this.#native };
    });
  }

  /** @internal */
  bindLock(lock: Unbound): BoundLock {
    return { native: sync(() => this.#native.bindLock(lock)), client: this.#native };
  }

  /**
   * Acquires a lock: `lock(name, options).acquire({ signal })`. Rejects as {@link Lock.acquire} does, and with
   * {@link InvalidArgument}.
   *
   * @example
   * ```ts
   * const lease = await client.acquire("report", { wait: 5_000 });
   * try {
   *   await buildReport({ signal: lease.signal, fence: lease.token });
   * } finally {
   *   await lease.release();
   * }
   * ```
   */
  acquire(name: string, options?: TakeOptions | null): Promise<Lease> {
    return rejecting(() => {
      const [locking, acquiring] = split(options);
      return this.lock(name, locking).acquire(acquiring);
    });
  }

  /**
   * Acquires a lock if it is free: `lock(name, options).tryAcquire()`. Rejects as {@link Lock.tryAcquire} does, and
   * with {@link InvalidArgument}.
   *
   * @example
   * ```ts
   * const lease = await client.tryAcquire("report");
   * if (lease === null) console.log("another owner holds it");
   * await lease?.release();
   * ```
   */
  tryAcquire(name: string, options?: LockOptions | null): Promise<Lease | null> {
    return rejecting(() => this.lock(name, options).tryAcquire());
  }

  /**
   * Runs `body` while a lock is held: `lock(name, options).using({ signal }, body)`. Rejects as {@link Lock.using}
   * does, and with {@link InvalidArgument}.
   *
   * @example
   * ```ts
   * await client.using("report", (signal, lease) => buildReport({ signal, fence: lease.token }));
   * ```
   */
  using<T>(name: string, body: Body<T>): Promise<T>;
  /** The same, with options of the lock and of the acquire. */
  using<T>(name: string, options: TakeOptions | null | undefined, body: Body<T>): Promise<T>;
  using<T>(name: string, ...given: Using<TakeOptions, T>): Promise<T> {
    return rejecting(() => {
      const [options, body] = block(given);
      const [locking, acquiring] = split(options);
      return this.lock(name, locking).using(acquiring, body);
    });
  }

  /**
   * Takes over a detached lease. `text` is the result of its `detach()`, and works once. Rejects with {@link LockLost}
   * if the lease ended or was attached before, with {@link InvalidArgument} if `text` is not from a `detach()`, and
   * with {@link Unavailable} and {@link Closed}, after which the text still works. It has no options, and rejects with
   * {@link InvalidArgument} for any.
   *
   * @example
   * ```ts
   * const order = await client.acquire("order:42", { ttl: 600_000 });
   * const text = order.detach();
   * const lease = await client.attach(text); // in another process, too
   * await lease.release();
   * ```
   */
  attach(text: string): Promise<Lease>;
  attach(text: string, options?: unknown): Promise<Lease> {
    return rejecting(() => {
      without(options, "attach");
      return call(
        (loop) => loop.attach(this.#native, setting(text)),
        undefined,
        (native: NativeLease) => new Lease(native, this.#native),
      );
    });
  }

  /**
   * Frees a lock, even if another process holds it. Resolves with true if it was held. The holder notices at its next
   * renewal; until then only fencing tokens protect the resource. Rejects with {@link Unavailable},
   * {@link KeyConflict}, {@link InvalidArgument} and {@link Closed}.
   *
   * @example
   * ```ts
   * const wasHeld = await client.forceRelease("report");
   * ```
   */
  forceRelease(name: string): Promise<boolean> {
    return call((loop) => loop.forceRelease(this.#native, lockName(name)));
  }

  /**
   * Pings every node, for `replyTimeout` at most. Rejects only with {@link Closed}; a node that does not answer has
   * `ok: false`.
   *
   * @example
   * ```ts
   * const down = (await client.ping()).filter(({ ok }) => !ok);
   * ```
   */
  ping(): Promise<NodeStatus[]> {
    return call((loop) => loop.ping(this.#native));
  }

  /**
   * Lets all nodes of a quorum vote at once, even those that restarted. Call it only while no lock can be held, as in a
   * new deployment. Rejects with {@link Unavailable} if any node does not answer, and with {@link Closed}.
   */
  initNodes(): Promise<void> {
    return call((loop) => loop.initNodes(this.#native));
  }

  /**
   * Releases the leases of this client within a second, and disconnects. Later calls reject with {@link Closed}. It
   * does not release detached leases, nor fixed leases of explicit owners.
   */
  close(): Promise<void> {
    return call((loop) => loop.close(this.#native));
  }

  /**
   * Calls `listener` for each event of this kind in this client. {@link RedlockEvent} explains the kinds. Throws
   * {@link InvalidArgument} for an unknown kind.
   *
   * @example
   * ```ts
   * client.on("lost", ({ name, reason }) => console.log(`lost ${name}: ${reason}`));
   * ```
   */
  on<Kind extends EventKind>(kind: Kind, listener: EventListener<Kind>): this {
    this.#listeners.on(kind, listener as EventListener);
    return this;
  }

  /** Removes a listener that `on()` added. Does nothing for any other. */
  off<Kind extends EventKind>(kind: Kind, listener: EventListener<Kind>): this {
    this.#listeners.off(kind, listener as EventListener);
    return this;
  }

  /** Runs at the end of an `await using` block; the same as `close()`. */
  declare [Symbol.asyncDispose]: () => Promise<void>;

  /** @internal */
  [inspect.custom](): string {
    return `Redlock ${inspect(this.nodes)}`;
  }

  static {
    disposable(Redlock.prototype, Redlock.prototype.close);
  }
}
