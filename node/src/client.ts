/**
 * A client: nodes, and the locks on them.
 *
 * @module
 */

import { inspect } from "node:util";
import { sync } from "./errors";
import { type EventKind, type EventListener, Listeners } from "./events";
import { disposable, Lease } from "./lease";
import { type Body, block, type Found, Lock, ReadWriteLock, Semaphore, type Using } from "./lock";
import { call, calls, rejecting } from "./loop";
import { type Client, type LockMaker, type Lease as NativeLease, native, type Options, type Unbound } from "./native";
import {
  type ClientOptions,
  type LockOptions,
  nodes,
  permitted,
  type ReadWriteOptions,
  type SemaphoreOptions,
  setting,
  settings,
  split,
  type TakeOptions,
} from "./options";

/** What a node says of itself. */
export interface NodeStatus {
  /** Its address, without credentials. */
  readonly node: string;
  /** Whether it answered as it should. */
  readonly ok: boolean;
  /** The run of the server, which changes with each restart. */
  readonly run?: string;
  /** The version of the server. */
  readonly version?: string;
  /** Why it did not answer, when it did not. */
  readonly cause?: string;
}

/** In place of a client's URLs: those of the environment. */
export const ENVIRONMENT = "\0REDLOCK_URL";

function ofEnvironment(options: Options): Client {
  // The native module does not see the environment of a worker thread, nor that of a test runner's sandbox.
  return native.Client.fromEnvironment(calls, process.env["REDLOCK_URL"] || undefined, options);
}

/**
 * A client of one Redis node, or of several that vote.
 *
 * @example
 * ```ts
 * const client = new Redlock(["redis://a", "redis://b", "redis://c"], { watchdog: 10_000 });
 * await client.using("report", async (signal, lease) => {
 *   await fetch(url, { signal, headers: { fence: String(lease.token) } });
 * });
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

  /** The nodes' addresses, without credentials. */
  get nodes(): string[] {
    return this.#native.nodes;
  }

  /**
   * The lock of this name, 1 to 1024 bytes of UTF-8 with the client's prefix. Sends nothing. Throws
   * {@link InvalidArgument}.
   */
  lock(name: string, options?: LockOptions | null): Lock {
    const native = sync(() => this.#make(setting(name), options == null ? undefined : settings(options)));
    return new Lock(name, { native, client: this.#native });
  }

  /**
   * The read/write lock of this name, 1 to 1024 bytes of UTF-8 with the client's prefix. Sends nothing. Throws
   * {@link InvalidArgument}.
   */
  readWriteLock(name: string, options?: ReadWriteOptions | null): ReadWriteLock {
    return new ReadWriteLock(name, (part) => {
      const native = sync(() => this.#native.part(setting(name), settings(options), part));
      return { native, client: this.#native };
    });
  }

  /**
   * The semaphore of this name, 1 to 1024 bytes of UTF-8 with the client's prefix. Sends nothing. Throws
   * {@link InvalidArgument}.
   */
  semaphore(name: string, options: SemaphoreOptions): Semaphore {
    const [permits, taking] = permitted(options);
    return new Semaphore(name, permits, (n) => {
      const native = sync(() => this.#native.permits(setting(name), taking, setting(n), setting(permits)));
      return { native, client: this.#native };
    });
  }

  /** @internal */
  bind(lock: Unbound): Found {
    return { native: sync(() => this.#native.bind(lock)), client: this.#native };
  }

  /** Takes a lock: `lock(name, options).acquire({ signal })`. */
  acquire(name: string, options?: TakeOptions | null): Promise<Lease> {
    return rejecting(() => {
      const [locking, acquiring] = split(options);
      return this.lock(name, locking).acquire(acquiring);
    });
  }

  /** Takes a lock if it is free: `lock(name, options).tryAcquire()`. */
  tryAcquire(name: string, options?: LockOptions | null): Promise<Lease | null> {
    return rejecting(() => this.lock(name, options).tryAcquire());
  }

  /** Runs `body` with a lock held: `lock(name, options).using({ signal }, body)`. */
  using<T>(name: string, body: Body<T>): Promise<T>;
  /** The same, with the options of the lock and of the acquire. */
  using<T>(name: string, options: TakeOptions | null | undefined, body: Body<T>): Promise<T>;
  using<T>(name: string, ...given: Using<TakeOptions, T>): Promise<T> {
    return rejecting(() => {
      const [options, body] = block(given);
      const [locking, acquiring] = split(options);
      return this.lock(name, locking).using(acquiring, body);
    });
  }

  /**
   * Takes over a lease from the text of its `detach()`, once. Rejects with {@link LockLost} when it ended or was
   * attached before, with {@link Unavailable}, and with {@link InvalidArgument} for another text.
   */
  attach(text: string): Promise<Lease> {
    return call(
      (loop) => loop.attach(this.#native, setting(text)),
      undefined,
      (native: NativeLease) => new Lease(native, this.#native),
    );
  }

  /**
   * Frees a lock whoever holds it; resolves with whether anybody did. Its holder learns of it at its next renewal: only
   * fencing tokens protect a resource until then. Rejects with {@link Unavailable} and {@link KeyConflict}.
   */
  forceRelease(name: string): Promise<boolean> {
    return call((loop) => loop.forceRelease(this.#native, setting(name)));
  }

  /** Asks every node for a sign of life. Rejects only with {@link Closed}. */
  ping(): Promise<NodeStatus[]> {
    return call((loop) => loop.ping(this.#native));
  }

  /**
   * Lets all nodes of a quorum vote at once, also those that restarted: right only while no lock can be held. Rejects
   * with {@link Unavailable}.
   */
  initNodes(): Promise<void> {
    return call((loop) => loop.initNodes(this.#native));
  }

  /**
   * Releases what this client holds, within a second, and disconnects. Later calls reject with {@link Closed}. Detached
   * leases, and fixed leases of explicit owners, live on.
   */
  close(): Promise<void> {
    return call((loop) => loop.close(this.#native));
  }

  /** Calls a listener whenever something of this kind happens in this client. Throws {@link InvalidArgument}. */
  on<Kind extends EventKind>(kind: Kind, listener: EventListener<Kind>): this {
    this.#listeners.on(kind, listener as EventListener);
    return this;
  }

  /** Takes back what `on()` did. */
  off<Kind extends EventKind>(kind: Kind, listener: EventListener<Kind>): this {
    this.#listeners.off(kind, listener as EventListener);
    return this;
  }

  /** The end of an `await using` block: `close()`. */
  declare [Symbol.asyncDispose]: () => Promise<void>;

  /** @internal */
  [inspect.custom](): string {
    return `Redlock ${inspect(this.nodes)}`;
  }

  static {
    disposable(Redlock.prototype, Redlock.prototype.close);
  }
}
