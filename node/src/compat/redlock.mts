/**
 * The drop-in for `import`; it re-exports the module for `require`.
 *
 * @module
 */

export type * from "./redlock.js";
export { ExecutionError, Lock, Redlock, Redlock as default, ResourceLockedError } from "./redlock.js";
