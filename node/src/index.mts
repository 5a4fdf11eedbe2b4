/**
 * The same for `import`. There is one implementation: a program that uses `import` and `require` has one client, and
 * one class of each error.
 *
 * @module
 */

export * from "./index.js";
