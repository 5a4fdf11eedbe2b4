/**
 * A drop-in for the package `redlock` (node-redlock 5) on this package's core: replace `"redlock"` by
 * `"redlock-core/compat/redlock"`.
 *
 * ```ts
 * import { Redis } from "ioredis";
 * import Redlock from "redlock-core/compat/redlock";
 *
 * const redlock = new Redlock([new Redis("redis://a"), new Redis("redis://b"), new Redis("redis://c")]);
 * await redlock.using(["orders:42"], 5000, async (signal) => {
 *   if (signal.aborted) throw signal.error;
 * });
 * ```
 *
 * It only reads the clients' settings; the core sends requests on its own connections. Locks have node-redlock's
 * format, so processes with either package exclude each other. Times are milliseconds.
 *
 * Deliberate differences:
 *
 * - The release wakes a waiter, which does not poll. The retry settings say how long it waits: `retryCount` pauses of
 *   `retryDelay`, each longer or shorter by `retryJitter`. A failed operation lists `retryCount + 1` attempts with the
 *   same votes, as the core reports them. It emits each error once as an `error` event, not once for each attempt.
 * - Several resources are separate locks, acquired all or none. A call that waits for one holds none of the others. On
 *   a cluster they need not share a slot.
 * - `expiration` counts from the request that was granted. An expired lock is never returned.
 * - An operation that cannot succeed fails at once: to release or extend a lock that is gone, or with a wrong password.
 *   An unconfirmed release is sent again in the background.
 * - `using` extends with the settings of its call. It rejects with the routine's own error even if the lock is lost.
 * - On several servers, a restarted one does not vote while locks from before may live: for a minute, or for up to
 *   twice the duration if that is longer. Servers that are listed twice are refused.
 * - The servers keep a token counter for each lock, `redlock_token:{name}`, for an hour, or for the duration if that is
 *   longer. Those of a quorum also keep a marker.
 * - Custom `scripts` are refused. `driftFactor` is 0.01 at least. Names have 1 to 1024 bytes.
 * - Without `settings.db`, the fork @sesamecare-oss/redlock uses database 0, and this package the clients' own.
 *
 * @module
 */

import { randomBytes } from "node:crypto";
import { EventEmitter } from "node:events";
import * as timers from "node:timers";
import { InvalidArgument, LockError, LockLost, LockTimeout, named, sync, Unavailable } from "../errors";
import { call, watch } from "../loop";
import { type HeldValue, type Lease, native } from "../native";
import { type Client, type Target, target } from "./ioredis";
import { DRIFT, Nodes } from "./nodes";

export type { Client } from "./ioredis";

// Taken out here, because fake timers of tests later replace the functions of that module, besides the global ones.
const { clearTimeout, setTimeout } = timers;

/** A vote for an operation. */
export interface VoteFor {
  /** The client that voted. */
  client: Client;
  /** The vote. */
  vote: "for";
  /** The number of resources it applies to. */
  value: number;
}

/** A vote against an operation. */
export interface VoteAgainst {
  /** The client that voted. */
  client: Client;
  /** The vote. */
  vote: "against";
  /** The cause. */
  error: Error;
}

/** The vote of one client. */
export type ClientExecutionResult = VoteFor | VoteAgainst;

/** The votes of the clients, as far as the core reports them. */
export type ExecutionStats = {
  /** The number of clients. */
  readonly membershipSize: number;
  /** How many of them must agree. */
  readonly quorumSize: number;
  /** The clients that are not known to have voted against. */
  readonly votesFor: Set<Client>;
  /** The other clients, each with the cause. */
  readonly votesAgainst: Map<Client, Error>;
};

/** The attempts and the start of an operation. */
export type ExecutionResult = {
  /** One entry for each attempt that node-redlock would have made in the same time. */
  attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** When the operation started, in milliseconds since the epoch. */
  start: number;
};

/** The settings of a Redlock. */
export interface Settings {
  /** How much faster a server's clock may run, as a share of the duration: 0.01 or more. Default: 0.01. */
  readonly driftFactor?: number;
  /** The number of retries; -1: for ever. With `retryDelay` and `retryJitter` it sets how long to wait. Default: 10. */
  readonly retryCount?: number;
  /** The pause before each retry, in milliseconds. Default: 200. */
  readonly retryDelay?: number;
  /** How much longer or shorter each pause may be, in milliseconds. Default: 100. */
  readonly retryJitter?: number;
  /** How long before its end `using` extends a lock, in milliseconds. Default: 500. */
  readonly automaticExtensionThreshold?: number;
  /** The database, instead of the clients' own. Only for the constructor. */
  readonly db?: number;
}

/** The settings of a Redlock, with the defaults filled in. */
export type EffectiveSettings = Required<Omit<Settings, "db">> & Pick<Settings, "db">;

/** Settings of one call; undefined means the Redlock's own. */
export type CallSettings = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** A signal that is aborted, with `error` set, when the lock could not be extended or was lost. */
export type RedlockAbortSignal = AbortSignal & {
  /** The cause. */
  error?: Error;
};

/** The lock of a `using`, which each extension replaces. */
export interface RedlockUsingContext {
  /** The lock as it is now. */
  lock: Lock;
  /** How often it was extended. */
  extensions: number;
}

/** The function that `using` runs. */
export type Routine<T> = (signal: RedlockAbortSignal, context: RedlockUsingContext) => Promise<T>;

/** Custom scripts; not supported here. */
export interface Scripts {
  /** The script that acquires a lock. */
  readonly acquireScript?: string | ((script: string) => string) | undefined;
  /** The script that extends a lock. */
  readonly extendScript?: string | ((script: string) => string) | undefined;
  /** The script that releases a lock. */
  readonly releaseScript?: string | ((script: string) => string) | undefined;
}

const DEFAULTS: EffectiveSettings = {
  driftFactor: 0.01,
  retryCount: 10,
  retryDelay: 200,
  retryJitter: 100,
  automaticExtensionThreshold: 500,
};

const NO_QUORUM = "The operation was unable to achieve a quorum during its retry window.";
/** The longest delay of a timer, in milliseconds. */
const LONGEST_TIMER = 2 ** 31 - 1;
/** The longest time that the core accepts; a wait of that length or more is for ever. */
const TEN_YEARS = 10 * 365 * 86_400_000;
/** The longest list of attempts; further ones are left out. */
const MOST_ATTEMPTS = 10_000;
/** Taken off the validity besides the drift, in milliseconds: the resolution of Redis' clock, and a margin. */
const RESOLUTION = 2;

/** Another owner has locked a resource. */
export class ResourceLockedError extends Error {
  static {
    named(ResourceLockedError, "ResourceLockedError");
  }
}

/** An operation got no quorum. */
export class ExecutionError extends Error {
  /** The votes of the clients: one entry for each attempt that the retries allow. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;

  static {
    named(ExecutionError, "ExecutionError");
  }

  constructor(message: string, attempts: ReadonlyArray<Promise<ExecutionStats>>, options?: ErrorOptions) {
    super(message, options);
    this.attempts = attempts;
  }
}

/** Locked resources. */
export class Lock {
  /** The Redlock that acquired it. */
  readonly redlock: Redlock;
  /** The names of the resources. */
  readonly resources: string[];
  /** The value in the keys. A process that knows it can extend and release the lock. */
  readonly value: string;
  /** The attempts of the acquire. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** When the lock ends, in milliseconds since the epoch; 0 once it was released or extended. */
  expiration: number;
  /** The settings of the call that acquired it. */
  readonly settings?: CallSettings | undefined;

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: ReadonlyArray<Promise<ExecutionStats>>,
    expiration: number,
    settings?: CallSettings,
  ) {
    this.redlock = redlock;
    this.resources = resources;
    this.value = value;
    this.attempts = attempts;
    this.expiration = expiration;
    this.settings = settings;
  }

  /** Releases the lock: {@link Redlock.release}. */
  async release(): Promise<ExecutionResult> {
    return await this.redlock.release(this);
  }

  /** Extends the lock to `duration` from now: {@link Redlock.extend}. */
  async extend(duration: number): Promise<Lock> {
    return await this.redlock.extend(this, duration, this.settings);
  }
}

/** The result of an acquire: one lease for each resource. */
interface Taken {
  leases: Lease[];
  value: string;
  attempts: ReadonlyArray<Promise<ExecutionStats>>;
}

/** Locks on Redis, on one server or on a quorum of several. */
export class Redlock extends EventEmitter {
  /** The given clients. */
  readonly clients: Set<Client>;
  /** The given settings, and the defaults of the others. */
  readonly settings: EffectiveSettings;
  readonly #target: Target;
  /** Keeps the native clients alive as long as this object. */
  readonly #nodes = new Set<Nodes>();
  readonly #self = new WeakRef(this);
  /** The nodes that were used last, which are connected. */
  #latest: Nodes | undefined;
  #closed = false;

  /**
   * `clients`: one ioredis client for each server, cluster or Sentinel service. Sends nothing. Throws
   * {@link InvalidArgument} for options that cannot be carried over, and for `scripts`.
   */
  constructor(clients: Iterable<Client>, settings: CallSettings = {}, scripts: Scripts = {}) {
    super();
    // Without a listener an "error" event would be thrown.
    this.on("error", () => {});
    this.clients = new Set(clients);
    if (this.clients.size === 0) throw new Error("Redlock must be instantiated with at least one redis client.");
    for (const [name, script] of Object.entries(scripts)) {
      if (script !== undefined) throw new InvalidArgument(`${name}: scripts cannot be replaced`);
    }
    this.settings = merged(
      DEFAULTS,
      Object.fromEntries(Object.entries(settings).filter(([, it]) => typeof it === "number")),
    );
    this.#target = target(this.clients, this.settings.db);
    // Throws now if a setting is invalid.
    this.#nodesFor(0);
  }

  /** Calls `quit()` of all clients. Later operations fail. */
  async quit(): Promise<void> {
    this.#closed = true;
    this.#latest = undefined;
    this.#nodes.clear();
    await Promise.all([...this.clients].map((client) => client.quit()));
  }

  /**
   * Locks all resources, or none, for `duration`. Rejects with {@link ExecutionError} if that is not possible within
   * the time that the retries would take.
   */
  async acquire(resources: string[], duration: number, settings?: CallSettings): Promise<Lock> {
    whole(duration);
    const effective = merged(this.settings, settings);
    const { leases, value, attempts } = await this.#take(resources, duration, effective);
    const expiration = Date.now() + left(leases, duration, effective);
    try {
      // The lock outlives this process, as node-redlock's does.
      for (const lease of leases) sync(() => native.leases.letGo(lease));
    } catch (error) {
      // A lease was lost meanwhile.
      await this.#giveBack(leases, resources, value);
      throw this.#failed(effective, causeOf(error));
    }
    return new Lock(this, resources, value, attempts, expiration, settings);
  }

  /**
   * Releases the resources. Rejects with {@link ExecutionError} at once if they are not locked any more. Rejects with
   * it after all retries if too few servers answer; then the release is sent again in the background until the lock
   * ends by itself.
   */
  async release(lock: Lock, settings?: CallSettings): Promise<ExecutionResult> {
    const start = Date.now();
    const effective = merged(this.settings, settings);
    const wasValid = lock.expiration >= start;
    lock.expiration = 0;
    const nodes = this.#open(undefined, effective);
    const values = this.#values(lock, nodes);
    const pauses = retries(effective);
    for (let attempt = 0, unsure = false; ; attempt++) {
      try {
        const found = await Promise.all(values.map((value) => call<boolean>((loop) => loop.releaseValue(value))));
        // An earlier attempt without an answer may have released them.
        if (found.every(Boolean) || (unsure && wasValid)) {
          return { attempts: this.#attempts(attempt + 1, nodes), start };
        }
        throw this.#failed(effective, locked(found));
      } catch (error) {
        if (!(error instanceof Unavailable) || attempt >= pauses) throw this.#from(error, effective);
        unsure = true;
        await pause(effective);
      }
    }
  }

  /**
   * Extends a lock to `duration` from now. Resolves with a lock that replaces the given one. Rejects with
   * {@link ExecutionError} if the lock is over or too few servers answer.
   */
  async extend(existing: Lock, duration: number, settings?: CallSettings): Promise<Lock> {
    whole(duration);
    if (existing.expiration < Date.now()) throw new ExecutionError("Cannot extend an already-expired lock.", []);
    const effective = merged(this.settings, settings);
    const nodes = this.#open(duration, effective);
    const values = this.#values(existing, nodes);
    const pauses = retries(effective);
    for (let attempt = 0; ; attempt++) {
      const [start, begun] = [Date.now(), performance.now()];
      const validity = duration - driftOf(duration, effective);
      try {
        // If one of several keys is gone, the lock is over: the others must not be extended.
        let found = [true];
        if (values.length > 1)
          found = await Promise.all(values.map((value) => call<boolean>((l) => l.isValueThere(value))));
        if (found.every(Boolean)) {
          // The new ttl may be shorter than the rest of the old one, and may apply even if no answer comes.
          existing.expiration = Math.min(existing.expiration, start + Math.max(validity, 0));
          found = await Promise.all(values.map((value) => call<boolean>((l) => l.retimeValue(value, "set", duration))));
        }
        const rest = validity - (performance.now() - begun);
        if (!found.every(Boolean) || rest <= 0) throw this.#failed(effective, locked(found));
        existing.expiration = 0;
        const attempts = this.#attempts(attempt + 1, nodes);
        const expiration = Date.now() + Math.floor(rest);
        return new Lock(this, existing.resources, existing.value, attempts, expiration, settings ?? existing.settings);
      } catch (error) {
        const over = attempt >= pauses || existing.expiration <= Date.now();
        if (!(error instanceof Unavailable) || over) throw this.#from(error, effective);
        await pause(effective);
      }
    }
  }

  /**
   * Locks the resources, runs `routine`, and releases them. Extends the lock while `routine` runs, and aborts the
   * signal if the lock is lost. Rejects with the routine's own error, or else with {@link ExecutionError} if the lock
   * was lost.
   */
  using<T>(resources: string[], duration: number, settings: CallSettings, routine?: Routine<T>): Promise<T>;
  /** The same, with the Redlock's own settings. */
  using<T>(resources: string[], duration: number, routine: Routine<T>): Promise<T>;
  async using<T>(
    resources: string[],
    duration: number,
    given: CallSettings | Routine<T> | undefined,
    last?: Routine<T>,
  ): Promise<T> {
    whole(duration);
    const [settings, routine] = typeof given === "function" ? [undefined, last ?? given] : [given, last];
    if (typeof routine !== "function") throw new Error("INVARIANT: routine is not a function.");
    const effective = merged(this.settings, settings);
    if (effective.automaticExtensionThreshold > duration - 100) {
      throw new Error(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    }
    const taken = await this.#take(resources, duration, effective);
    const block = new Block(this, taken, resources, duration, effective, settings);
    let result: T;
    try {
      result = await routine(block.signal, block.context);
    } catch (error) {
      // The caller must see the routine's error, not one of the release.
      await block.end();
      throw error;
    }
    const held = await block.end();
    if (!held) throw this.#failed(effective, block.signal.error ?? locked(taken.leases.map(() => false)));
    return result;
  }

  /** Acquires all resources with one value, within the time that the retries would take. */
  async #take(resources: string[], duration: number, settings: EffectiveSettings): Promise<Taken> {
    const names = unique(resources);
    const nodes = this.#open(duration, settings);
    const [begun, wait] = [performance.now(), waiting(settings)];
    const rest = () => Math.max(0, wait - (performance.now() - begun));
    const acquire = async (name: string, value: string, wait: number) => {
      const lock = sync(() => nodes.native.shimLock(name, value, duration));
      return await call<Lease>((loop) => loop.acquire(lock, wait >= TEN_YEARS ? undefined : wait));
    };
    const tryAll = async (some: string[], value: string) => {
      const tried = await Promise.allSettled(some.map((name) => acquire(name, value, 0)));
      const leases = tried.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
      const failed = tried.findIndex((each) => each.status === "rejected");
      return { leases, busy: some[failed], error: (tried[failed] as PromiseRejectedResult | undefined)?.reason };
    };
    // A call waits only while it holds nothing, and then tries the others without waiting. So calls cannot deadlock.
    let busy = names.length === 1 ? names[0] : undefined;
    for (let round = 0; ; round++) {
      const value = randomBytes(16).toString("hex");
      const leases: Lease[] = [];
      try {
        if (busy !== undefined) leases.push(await acquire(busy, value, rest()));
        const others = names.filter((name) => name !== busy);
        const tried = await tryAll(others, value);
        leases.push(...tried.leases);
        if (tried.busy !== undefined) {
          const goesOn = tried.error instanceof LockTimeout || tried.error instanceof Unavailable;
          if (!goesOn || rest() === 0) throw tried.error;
          await this.#giveBack(leases, names, value);
          busy = tried.busy;
          // A random pause, so that two calls for the same resources do not collide for ever.
          if (round > 0) await sleep(Math.min(rest(), Math.random() * Math.min(2 ** round, 100)));
          continue;
        }
        if (left(leases, duration, settings) <= 0) throw new LockLost("over before it was there");
        const passed = performance.now() - begun;
        const pauseTime = wait / Math.max(1, retries(settings));
        const made = pauseTime > 0 ? Math.min(retries(settings), Math.floor(passed / pauseTime)) : 0;
        return { leases, value, attempts: this.#attempts(made + 1, nodes) };
      } catch (error) {
        await this.#giveBack(leases, names, value);
        throw this.#from(error, settings, names.length);
      }
    }
  }

  /** Releases leases, by their value if they were let go. */
  async #giveBack(leases: Lease[], resources: string[], value: string): Promise<void> {
    const released = await Promise.allSettled(leases.map((lease) => call((loop) => loop.release(lease))));
    if (released.every(({ status }) => status === "fulfilled")) return;
    const values = this.#latest === undefined ? [] : this.#values({ resources, value }, this.#latest);
    await Promise.allSettled(values.map((each) => call((loop) => loop.releaseValue(each))));
  }

  /** The nodes for leases of this duration; without one, the nodes that were used last. */
  #open(duration: number | undefined, settings: EffectiveSettings): Nodes {
    if (this.#closed) throw this.#failed(settings, new Error("Connection is closed."));
    if (duration !== undefined) this.#latest = this.#nodesFor(duration);
    this.#latest ??= this.#nodesFor(0);
    return this.#latest;
  }

  #nodesFor(duration: number): Nodes {
    const nodes = Nodes.of(this.#target, duration);
    if (!this.#nodes.has(nodes)) {
      this.#nodes.add(nodes);
      nodes.observe(this.#self);
    }
    return nodes;
  }

  #values({ resources, value }: Pick<Lock, "resources" | "value">, nodes: Nodes): HeldValue[] {
    return unique(resources).map((name) => sync(() => nodes.native.value(name, value)));
  }

  /** The attempts of an operation that succeeded. */
  #attempts(count: number, nodes: Nodes): ReadonlyArray<Promise<ExecutionStats>> {
    const down = nodes.down();
    const against = [...this.clients].map((client, at) => [client, down[at]] as const);
    return attempts(count, this.#stats(against));
  }

  /** Converts an error of the core to an {@link ExecutionError}; returns any other error as it is. */
  #from(error: unknown, settings: EffectiveSettings, resources = 1): unknown {
    if (error instanceof LockTimeout) return this.#failed(settings, locked(Array(resources).fill(false)));
    if (error instanceof Unavailable || error instanceof LockLost) return this.#failed(settings, error);
    if (error instanceof LockError && error.code === "closed") return this.#failed(settings, error);
    return error;
  }

  #failed(settings: EffectiveSettings, cause: Error): ExecutionError {
    const names = [...this.#nodes][0]?.native.nodes ?? [];
    const causes = cause instanceof Unavailable ? cause.causes : undefined;
    const against = [...this.clients].map((client, at) => {
      const known = causes?.[names[at] ?? ""];
      return [client, causes === undefined ? cause : known === undefined ? undefined : new Error(known)] as const;
    });
    const stats = this.#stats(against, causes === undefined ? undefined : cause);
    for (const error of new Set(stats.votesAgainst.values())) this.troubled(error);
    const forEver = settings.retryCount === -1;
    return new ExecutionError(NO_QUORUM, attempts(forEver ? 1 : retries(settings) + 1, stats), { cause });
  }

  /** `fallback`: the error of clients without a known one, if the known ones alone leave a quorum possible. */
  #stats(against: (readonly [Client, Error | undefined])[], fallback?: Error): ExecutionStats {
    const membershipSize = this.clients.size;
    const quorumSize = Math.floor(membershipSize / 2) + 1;
    const known = against.filter((each): each is [Client, Error] => each[1] !== undefined);
    const enough = fallback === undefined || membershipSize - known.length < quorumSize;
    const votesAgainst = new Map(
      enough ? known : against.map(([client, error]) => [client, error ?? (fallback as Error)]),
    );
    const votesFor = new Set([...this.clients].filter((client) => !votesAgainst.has(client)));
    return { membershipSize, quorumSize, votesFor, votesAgainst };
  }

  /** @internal */
  troubled(error: Error): void {
    if (this.listenerCount("error") === 0) return;
    try {
      this.emit("error", error);
    } catch (thrown) {
      queueMicrotask(() => {
        throw thrown;
      });
    }
  }
}

export default Redlock;

/** A running `using`: extends its lock, and aborts its signal if the lock is lost. */
class Block {
  readonly signal: RedlockAbortSignal;
  readonly context: RedlockUsingContext;
  readonly #controller = new AbortController();
  readonly #redlock: Redlock;
  readonly #taken: Taken;
  readonly #duration: number;
  readonly #settings: EffectiveSettings;
  readonly #given: CallSettings | undefined;
  #timers: NodeJS.Timeout[] = [];
  #ended = false;

  constructor(
    redlock: Redlock,
    taken: Taken,
    resources: string[],
    duration: number,
    settings: EffectiveSettings,
    given: CallSettings | undefined,
  ) {
    this.#redlock = redlock;
    this.#taken = taken;
    this.#duration = duration;
    this.#settings = settings;
    this.#given = given;
    this.signal = this.#controller.signal;
    this.context = { lock: this.#lock(resources, taken.attempts), extensions: 0 };
    for (const lease of taken.leases) {
      watch(
        (loop) => loop.lost(lease),
        (reason) => reason && this.#abort(lossOf(lease)),
      );
    }
    this.#schedule();
  }

  /** Releases the lock. True if it was held until now, as far as is known. */
  async end(): Promise<boolean> {
    this.#ended = true;
    this.#disarm();
    const outcomes = await Promise.allSettled(
      this.#taken.leases.map((lease) => call<string>((loop) => loop.release(lease))),
    );
    this.context.lock.expiration = 0;
    return !this.signal.aborted && outcomes.every((each) => each.status === "fulfilled" && each.value !== "lost");
  }

  #left(): number {
    return left(this.#taken.leases, this.#duration, this.#settings);
  }

  #lock(resources: string[], attempts: Lock["attempts"]): Lock {
    return new Lock(this.#redlock, resources, this.#taken.value, attempts, Date.now() + this.#left(), this.#given);
  }

  /** A timer that keeps the process alive, as node-redlock's does while a routine runs. */
  #after(time: number, what: () => void): void {
    const timer = setTimeout(
      () => {
        if (time > LONGEST_TIMER) this.#after(time - LONGEST_TIMER, what);
        else what();
      },
      Math.min(Math.max(0, time), LONGEST_TIMER),
    );
    this.#timers.push(timer);
  }

  #disarm(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
  }

  #schedule(): void {
    if (this.#ended || this.signal.aborted || this.#taken.leases.length === 0) return;
    this.#disarm();
    const left = this.#left();
    this.#after(left, () => this.#abort(new LockLost("the lock is over")));
    this.#after(left - this.#settings.automaticExtensionThreshold, () => void this.#extend());
  }

  async #extend(): Promise<void> {
    try {
      await Promise.all(this.#taken.leases.map((lease) => call((loop) => loop.extend(lease, this.#duration))));
    } catch (error) {
      if (this.#ended || this.signal.aborted) return;
      if (!(error instanceof Unavailable)) return this.#abort(causeOf(error));
      this.#redlock.troubled(error);
      // Early enough for several more tries.
      const soon = Math.min(pauseOf(this.#settings), this.#left() / 4);
      return this.#after(Math.max(soon, 5), () => void this.#extend());
    }
    if (this.#ended || this.signal.aborted) return;
    const { lock } = this.context;
    this.context.lock = this.#lock(lock.resources, lock.attempts);
    this.context.extensions++;
    lock.expiration = 0;
    this.#schedule();
  }

  #abort(cause: Error): void {
    if (this.#ended || this.signal.aborted) return;
    this.#disarm();
    this.context.lock.expiration = 0;
    const error = new ExecutionError(NO_QUORUM, this.context.lock.attempts, { cause });
    this.#redlock.troubled(error);
    this.signal.error = error;
    // Without a reason, as in node-redlock: programs expect an AbortError.
    this.#controller.abort();
  }
}

function lossOf(lease: Lease): Error {
  return new LockLost(
    `lock ${JSON.stringify(native.leases.name(lease))} was lost`,
    (native.leases.lostReason(lease) ?? "expired") as LockLost["reason"],
  );
}

function causeOf(error: unknown): Error {
  return error instanceof Error ? error : new Error(String((error as { message?: unknown })?.message ?? error));
}

function whole(duration: number): void {
  if (Math.floor(duration) !== duration) throw new Error("Duration must be an integer value in milliseconds.");
}

function merged(settings: EffectiveSettings, over: CallSettings | undefined): EffectiveSettings {
  const given = Object.entries(over ?? {}).filter(([, value]) => value !== undefined);
  return { ...settings, ...Object.fromEntries(given) };
}

/** Removes duplicates, and sorts so that all processes use the same order. */
function unique(resources: string[]): string[] {
  if (!Array.isArray(resources)) throw new InvalidArgument("resources: must be a list of names");
  return [...new Set(resources.map(String))].sort();
}

/** The number of retries. */
function retries({ retryCount }: EffectiveSettings): number {
  if (retryCount === -1) return Number.POSITIVE_INFINITY;
  return Math.max(0, Math.ceil(retryCount) || 0);
}

function pauseOf({ retryDelay, retryJitter }: EffectiveSettings): number {
  return Math.max(0, retryDelay + Math.floor((Math.random() * 2 - 1) * retryJitter)) || 0;
}

async function pause(settings: EffectiveSettings): Promise<void> {
  await sleep(pauseOf(settings));
}

async function sleep(time: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, Math.min(time, LONGEST_TIMER)));
}

/** The length of the pauses of all retries together. */
function waiting(settings: EffectiveSettings): number {
  const count = retries(settings);
  if (count === Number.POSITIVE_INFINITY) return count;
  const drawn = Math.min(count, 1000);
  let total = 0;
  for (let each = 0; each < drawn; each++) total += pauseOf(settings);
  return drawn === 0 ? 0 : (total * count) / drawn;
}

/** How much earlier than on the servers a lock counts as expired. */
function driftOf(duration: number, { driftFactor }: EffectiveSettings): number {
  return Math.round(Math.max(DRIFT, driftFactor) * duration) + RESOLUTION;
}

/** How long all leases are still held. */
function left(leases: Lease[], duration: number, { driftFactor }: EffectiveSettings): number {
  // The core has subtracted `DRIFT` already.
  const drift = Math.max(0, driftFactor - DRIFT) * duration || 0;
  return Math.floor(Math.min(duration, ...leases.map((lease) => native.leases.remaining(lease))) - drift);
}

function locked(found: boolean[]): ResourceLockedError {
  const applied = found.filter(Boolean).length;
  return new ResourceLockedError(
    `The operation was applied to: ${applied} of the ${found.length} requested resources.`,
  );
}

function attempts(count: number, stats: ExecutionStats): ReadonlyArray<Promise<ExecutionStats>> {
  return Array(Math.min(count, MOST_ATTEMPTS)).fill(Promise.resolve(stats));
}
