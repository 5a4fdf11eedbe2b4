/**
 * The same for `import`.
 *
 * @module
 */

export type * from "./redlock.js";
export { ExecutionError, Lock, Redlock, Redlock as default, ResourceLockedError } from "./redlock.js";
