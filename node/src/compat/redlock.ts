/**
 * A drop-in for the package `redlock` (node-redlock 5) on this package's core: replace `"redlock"` by
 * `"redlock-core/compat/redlock"`.
 *
 * ```ts
 * import Redis from "ioredis";
 * import Redlock from "redlock-core/compat/redlock";
 *
 * const redlock = new Redlock([new Redis({ host: "a" }), new Redis({ host: "b" }), new Redis({ host: "c" })]);
 * await redlock.using(["orders:42"], 5000, async (signal) => {
 *   if (signal.aborted) throw signal.error;
 * });
 * ```
 *
 * The clients' settings are read; nothing is sent through them, and the core has connections of its own. Locks are
 * written as node-redlock writes them, so processes with either exclude each other. Times are milliseconds.
 *
 * What differs knowingly:
 *
 * - A waiter is woken by the release. The retries say how long it waits: `retryCount` pauses of `retryDelay`, each
 *   longer or shorter by `retryJitter`; an operation that fails has `retryCount + 1` attempts with the same votes,
 *   and is told once, not once for each attempt, as an `error` event. Votes are those that the core tells of.
 * - Several resources are taken one by one, all or none; who waits for one holds none of the others. On a cluster
 *   they need not share a slot.
 * - `expiration` counts from the request that was granted. A lock that is over is never returned.
 * - What cannot succeed any more fails at once: releasing or extending what is gone, or a wrong password. An
 *   unconfirmed release goes on in the background.
 * - `using` extends with the settings of its call, and rejects with the routine's own error whatever becomes of the
 *   lock.
 * - On several servers, one that restarted does not vote for as long as locks from before may live: a minute, or up
 *   to twice the duration if that is longer. Servers that are listed twice are refused.
 * - Next to each lock the servers keep a token counter, `redlock_token:{name}`, for an hour, or for a longer duration,
 *   and those of a quorum a marker.
 * - Custom `scripts` are refused. `driftFactor` is 0.01 at least. Names have 1 to 1024 bytes.
 * - `settings.db` is used only where it is given; without it the fork takes database 0, this the clients' own.
 *
 * @module
 */

import { randomBytes } from "node:crypto";
import { EventEmitter } from "node:events";
// Captured here, before a test's fake timers replace the global ones.
import { clearTimeout, setTimeout } from "node:timers";
import { InvalidArgument, LockError, LockLost, LockTimeout, named, sync, Unavailable } from "../errors";
import { call, watch } from "../loop";
import { type HeldValue, type Lease, native } from "../native";
import { type Client, type Target, target } from "./ioredis";
import { DRIFT, Nodes } from "./nodes";

export type { Client } from "./ioredis";

/** A vote for an operation. */
export interface VoteFor {
  /** Whose it is. */
  client: Client;
  /** What it is. */
  vote: "for";
  /** How many resources it applies to. */
  value: number;
}

/** A vote against an operation. */
export interface VoteAgainst {
  /** Whose it is. */
  client: Client;
  /** What it is. */
  vote: "against";
  /** Why. */
  error: Error;
}

/** How one client voted. */
export type ClientExecutionResult = VoteFor | VoteAgainst;

/** How the clients voted, as far as the core tells. */
export type ExecutionStats = {
  /** How many clients there are. */
  readonly membershipSize: number;
  /** How many of them must agree. */
  readonly quorumSize: number;
  /** Those that are not known to have voted against it. */
  readonly votesFor: Set<Client>;
  /** Why each of the others did. */
  readonly votesAgainst: Map<Client, Error>;
};

/** What an operation took. */
export type ExecutionResult = {
  /** One for each attempt that node-redlock would have made in its time. */
  attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** When it began, in milliseconds since the epoch. */
  start: number;
};

/** How a Redlock works. */
export interface Settings {
  /** How much faster a server's clock may run, as a share of the duration: 0.01 or more. Default: 0.01. */
  readonly driftFactor?: number;
  /** How often to try again; -1: for ever. With the next two it says how long to wait. Default: 10. */
  readonly retryCount?: number;
  /** The pause before each of these tries. Default: 200. */
  readonly retryDelay?: number;
  /** How much each pause may be longer or shorter. Default: 100. */
  readonly retryJitter?: number;
  /** How long before its end `using` extends a lock. Default: 500. */
  readonly automaticExtensionThreshold?: number;
  /** The database, instead of the clients' own. Only for the constructor. */
  readonly db?: number;
}

/** How a Redlock works, with the defaults filled in. */
export type EffectiveSettings = Required<Omit<Settings, "db">> & Pick<Settings, "db">;

/** Settings of one call; undefined means the Redlock's own. */
export type CallSettings = { readonly [Name in keyof Settings]?: Settings[Name] | undefined };

/** Is aborted, with `error`, when a lock could not be extended or was lost. */
export type RedlockAbortSignal = AbortSignal & {
  /** What happened. */
  error?: Error;
};

/** The lock of a `using`, which each extension replaces. */
export interface RedlockUsingContext {
  /** The lock as it is now. */
  lock: Lock;
  /** How often it was extended. */
  extensions: number;
}

/** What `using` runs. */
export type Routine<T> = (signal: RedlockAbortSignal, context: RedlockUsingContext) => Promise<T>;

/** Scripts of one's own; not supported here. */
export interface Scripts {
  /** What takes a lock. */
  readonly acquireScript?: string | ((script: string) => string) | undefined;
  /** What extends a lock. */
  readonly extendScript?: string | ((script: string) => string) | undefined;
  /** What releases a lock. */
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
/** What timers can count to. */
const LONGEST_TIMER = 2 ** 31 - 1;
/** As long as for ever, to the core. */
const TEN_YEARS = 10 * 365 * 86_400_000;
/** More attempts than anybody looks at are not listed. */
const MOST_ATTEMPTS = 10_000;
/** What validity loses besides drift: the resolution of Redis' clock, with room. */
const RESOLUTION = 2;

/** A resource is locked by somebody else. */
export class ResourceLockedError extends Error {
  static {
    named(ResourceLockedError, "ResourceLockedError");
  }
}

/** An operation got no quorum. */
export class ExecutionError extends Error {
  /** How the clients voted: one for each attempt that the retries allow. */
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
  /** Whose it is. */
  readonly redlock: Redlock;
  /** What is locked. */
  readonly resources: string[];
  /** What stands in the keys; whoever knows it can extend and release them. */
  readonly value: string;
  /** What it took to get it. */
  readonly attempts: ReadonlyArray<Promise<ExecutionStats>>;
  /** Until when it is held, in milliseconds since the epoch; 0 once it was released or extended. */
  expiration: number;
  /** The settings of the call that took it. */
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

  /** Ends it: {@link Redlock.release}. */
  async release(): Promise<ExecutionResult> {
    return await this.redlock.release(this);
  }

  /** Lets it end `duration` from now: {@link Redlock.extend}. */
  async extend(duration: number): Promise<Lock> {
    return await this.redlock.extend(this, duration, this.settings);
  }
}

/** Resources that were taken, one lease for each. */
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
  /** Native clients are kept as long as this is. */
  readonly #nodes = new Set<Nodes>();
  readonly #self = new WeakRef(this);
  /** The last that were used: they are connected. */
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
    // What is wrong shows now.
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
   * Locks all resources, or none, for `duration`. Rejects with {@link ExecutionError} when that is not possible within
   * the time that the retries would take.
   */
  async acquire(resources: string[], duration: number, settings?: CallSettings): Promise<Lock> {
    whole(duration);
    const effective = merged(this.settings, settings);
    const { leases, value, attempts } = await this.#take(resources, duration, effective);
    const expiration = Date.now() + left(leases, duration, effective);
    try {
      // As node-redlock's, it outlives this process.
      for (const lease of leases) sync(() => native.leases.letGo(lease));
    } catch (error) {
      // One was lost meanwhile.
      await this.#giveBack(leases, resources, value);
      throw this.#failed(effective, causeOf(error));
    }
    return new Lock(this, resources, value, attempts, expiration, settings);
  }

  /**
   * Frees the resources. Rejects with {@link ExecutionError} when they were not locked any more, at once, or could
   * not be reached for as long as the retries take; then they are freed as soon as they can be reached, or end by
   * themselves.
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
        // One that got no answer may have been the one that released.
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
   * Lets a lock end `duration` from now; the lock that it resolves with takes the place of the given one. Rejects with
   * {@link ExecutionError} when the lock is over or could not be reached.
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
        // Several are changed when all are there, so that those of a lock that is over end when they would have.
        let found = [true];
        if (values.length > 1)
          found = await Promise.all(values.map((value) => call<boolean>((l) => l.isValueThere(value))));
        if (found.every(Boolean)) {
          // It may be for less time than was left, whether or not an answer comes.
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
   * Locks the resources, runs `routine`, extending the lock as long as it runs, and releases them. When the lock is
   * lost, the signal is aborted. Rejects with the routine's own error, or else with {@link ExecutionError} if the lock
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
      // The routine's own error is what the caller has to see.
      await block.end();
      throw error;
    }
    const held = await block.end();
    if (!held) throw this.#failed(effective, block.signal.error ?? locked(taken.leases.map(() => false)));
    return result;
  }

  /** Takes all resources with one value, within the time that the retries would take. */
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
    // Whoever waits has nothing, but the one that was waited for: so nobody waits for somebody who waits.
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
          // Two that are after the same ones must not meet for ever.
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

  /** Ends leases, whether or not they were let go. */
  async #giveBack(leases: Lease[], resources: string[], value: string): Promise<void> {
    const released = await Promise.allSettled(leases.map((lease) => call((loop) => loop.release(lease))));
    if (released.every(({ status }) => status === "fulfilled")) return;
    const values = this.#latest === undefined ? [] : this.#values({ resources, value }, this.#latest);
    await Promise.allSettled(values.map((each) => call((loop) => loop.releaseValue(each))));
  }

  /** The nodes for leases of this length, or any. */
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

  /** The attempts of something that worked. */
  #attempts(count: number, nodes: Nodes): ReadonlyArray<Promise<ExecutionStats>> {
    const down = nodes.down();
    const against = [...this.clients].map((client, at) => [client, down[at]] as const);
    return attempts(count, this.#stats(against));
  }

  /** The error of something that did not work. */
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

  /** `fallback`: why, of those of which nothing is known, when too few are known. */
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

/** The time in which a `using` holds its lock. */
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

  /** Releases; says whether the lock was held to the end, as far as anybody can know. */
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

  /** Keeps the process alive, as node-redlock does as long as a routine runs. */
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
      // In time for several more.
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
    // Without a reason, as the original does: programs know an AbortError.
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

/** In an order that is the same for everybody. */
function unique(resources: string[]): string[] {
  if (!Array.isArray(resources)) throw new InvalidArgument("resources: must be a list of names");
  return [...new Set(resources.map(String))].sort();
}

/** How often to try again. */
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

/** How long the pauses of all retries take. */
function waiting(settings: EffectiveSettings): number {
  const count = retries(settings);
  if (count === Number.POSITIVE_INFINITY) return count;
  const drawn = Math.min(count, 1000);
  let total = 0;
  for (let each = 0; each < drawn; each++) total += pauseOf(settings);
  return drawn === 0 ? 0 : (total * count) / drawn;
}

/** How much earlier than on the servers a lock counts as over. */
function driftOf(duration: number, { driftFactor }: EffectiveSettings): number {
  return Math.round(Math.max(DRIFT, driftFactor) * duration) + RESOLUTION;
}

/** For how long all of them are held. */
function left(leases: Lease[], duration: number, { driftFactor }: EffectiveSettings): number {
  // The core has taken the smallest drift off.
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
