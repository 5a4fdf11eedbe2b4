/**
 * The native module: how it is found, and what it looks like from here. It decides what a lock does; this package is
 * how JavaScript spells it. Its functions throw a {@link Failure}, and so end its calls.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join } from "node:path";

/** The number of a call. */
export type Id = number;

/** The number of a call, or how it ended: its value, or the failure instead. */
export type Started = Id | [value: unknown, failure: Failure | null | undefined];

/** The value of an option; whatever is no string of valid Unicode, number or boolean is only shown. */
export type Given = string | number | boolean | { shown: string };

/** Options, in the order in which they were given. */
export type Options = [name: string, value: Given][];

/** An error of the core, flat. */
export interface Failure {
  code: string;
  message: string;
  reason?: string;
  causes: [node: string, cause: string][];
}

/** What every use of a lock starts, as functions; each returns the call's number, or its end. */
interface Starters {
  acquire(lock: Lock, wait: Given | undefined): Started;
  release(lease: Lease): Started;
  leave(lease: Lease): Started;
  lost(lease: Lease): Id;
}

/** The calls of an event loop. All but the first three start a call and return its number, or its end. */
interface NativeLoop {
  starters(): Starters;
  /** Sends what was started while other calls were under way. To be called soon after a call is pending. */
  flush(): void;
  /** Gives up a call; says whether it was not drained, so that nothing more comes of it. */
  abandon(id: Id): boolean;
  releaseNewest(lock: Lock): Started;
  locked(lock: Lock): Id;
  inspect(lock: Lock): Id;
  available(lock: Lock): Id;
  extend(lease: Lease, ttl: Given): Started;
  downgrade(lease: Lease): Id;
  tryUpgrade(lease: Lease): Id;
  ping(client: Client): Id;
  forceRelease(client: Client, name: Given): Id;
  initNodes(client: Client): Id;
  attach(client: Client, text: Given): Id;
  close(client: Client): Id;
  events(events: Events): Id;
  releaseValue(value: HeldValue): Id;
  /** `how`: "add" to what is left, "replace" it where there is a ttl, "set" it in any case. */
  retimeValue(value: HeldValue, how: "add" | "replace" | "set", millis: number): Id;
  isValueThere(value: HeldValue): Id;
}

/** The calls of this event loop. */
export interface Loop extends NativeLoop, Starters {}

/** One of the two of a read/write lock. */
export type Part = "read" | "write";

/** Makes a lock by name. */
export type LockMaker = (name: Given, options: Options | undefined) => Lock;

export interface Client {
  readonly nodes: string[];
  readonly events: Events;
  locks(): LockMaker;
  part(name: Given, options: Options | undefined, part: Part): Lock;
  /** What takes `n` slots of a semaphore that has `of`. */
  permits(name: Given, options: Options | undefined, n: Given, of: Given): Lock;
  bind(lock: Unbound): Lock;
  /** For drop-in shims: a lock taken with a value of their library's making, for `ttl` ms or, without it, for ever. */
  shimLock(name: string, value: string, ttl?: number): Lock;
  /** For drop-in shims: a value that may stand in the key of a lock, whoever wrote it. */
  value(name: string, value: string): HeldValue;
}

/** A value that may stand in the key of a lock; what is done with it starts at the {@link Loop}. */
// biome-ignore lint/complexity/noBannedTypes: it has no members
export type HeldValue = {};

/** The events of a client. Does not keep the client alive. */
export interface Events {
  setVerbose(verbose: boolean): void;
}

/** A lock whose client is not known yet. */
// biome-ignore lint/complexity/noBannedTypes: it has no members
export type Unbound = {};

declare const kind: unique symbol;

/** A lock, opaque. */
export interface Lock {
  [kind]: "lock";
}

/** A lease, opaque. */
export interface Lease {
  [kind]: "lease";
}

interface Native {
  locks: {
    owned(lock: Lock): boolean;
  };
  leases: {
    name(lease: Lease): string;
    owner(lease: Lease): string;
    token(lease: Lease): bigint;
    slots(lease: Lease): number[];
    tokens(lease: Lease): bigint[];
    held(lease: Lease): boolean;
    lostReason(lease: Lease): string | null;
    remaining(lease: Lease): number;
    check(lease: Lease): void;
    detach(lease: Lease): string;
    /** For drop-in shims: stops everything about it and leaves the key alone. */
    letGo(lease: Lease): void;
  };
  Loop: {
    /**
     * Calls `take` with what ended, for as long as something refers to that function: number, value, failure; number,
     * value, failure; and so on. `isNode`: see {@link isNode}.
     */
    new (take: (...ended: unknown[]) => void, isNode: boolean): NativeLoop;
    /** Closes all clients of the process when it exits. */
    closeAtExit(): void;
  };
  Client: {
    new (loop: NativeLoop, urls: string[], options: Options): Client;
    fromEnvironment(loop: NativeLoop, variable: string | undefined, options: Options): Client;
  };
  Unbound: {
    /** Refuses what a client with the default options would refuse. */
    new (name: Given, options: Options | undefined, part?: Part): Unbound;
    /** The same, of `n` slots of a semaphore that has `of`. */
    permits(name: Given, options: Options | undefined, n: Given, of: Given): Unbound;
  };
}

/** What the names of the packages with the module begin with; release/targets.json of the repository lists them all. */
const PLATFORMS = "@redlock/core";

/** The packages that may have the module for this machine. npm installs those that fit. */
function packages(): string[] {
  const { platform, arch } = process;
  const flavours = { linux: ["-gnu", "-musl"], win32: ["-msvc"] }[platform as string] ?? [""];
  return flavours.map((flavour) => `${PLATFORMS}-${platform}-${arch}${flavour}`);
}

/** What somebody can do about it that there is no module. */
function remedy(): string {
  // Only a checkout of the repository has it.
  if (existsSync(join(__dirname, "../scripts/build.mjs"))) {
    return `build it with \`npm run build\` in ${join(__dirname, "..")}, which needs Rust 1.88 or newer`;
  }
  return (
    `it comes with the optional package ${packages().join(" or ")}; install redlock-core again on this machine, ` +
    "without --omit=optional. If there is no such package, build it: npm install from a checkout of the repository, with Rust"
  );
}

function load(): Native {
  // Built in place, or installed beside this package.
  const places = ["./redlock-core.node", ...packages()];
  const causes: unknown[] = [];
  for (const place of places) {
    try {
      return require(place);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "MODULE_NOT_FOUND") causes.push(error);
    }
  }
  const machine = `${process.platform}-${process.arch}`;
  const [cause] = causes;
  throw cause === undefined
    ? new Error(`redlock-core has no native module for ${machine}: ${remedy()}`)
    : new Error(`redlock-core cannot load its native module for ${machine}: ${(cause as Error).message}`, {
        cause: causes.length > 1 ? new AggregateError(causes) : cause,
      });
}

const [major] = process.versions.node.split(".");
if (Number(major) < 20) throw new Error(`redlock-core needs Node 20 or newer; this is Node ${process.versions.node}`);

/**
 * Whether the host is Node. Bun and Deno imitate it as far as to export libuv's functions, which do not do there what
 * they do in Node.
 */
export const isNode = process.versions.bun === undefined && process.versions.deno === undefined;

export const native: Native = load();

/** What a lease and a lock are asked. */
export const { leases, locks } = native;
