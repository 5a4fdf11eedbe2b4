/**
 * One listener on each AbortSignal for all acquires that it cancels. With a listener for each of a thousand acquires, a
 * signal would be slow, and Node would warn of a leak.
 *
 * @module
 */

interface Waiters {
  all: Set<() => void>;
  listener: () => void;
}

const signals = new WeakMap<AbortSignal, Waiters>();

/**
 * Calls `callback` when the signal is aborted; it must not be aborted yet. Returns a function that removes the
 * callback.
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  let waiters = signals.get(signal);
  if (waiters === undefined) {
    const all = new Set<() => void>();
    const listener = () => {
      for (const each of [...all]) each();
    };
    waiters = { all, listener };
    signals.set(signal, waiters);
    signal.addEventListener("abort", listener);
  }
  const { all, listener } = waiters;
  all.add(callback);
  return () => {
    all.delete(callback);
    if (all.size === 0) {
      signal.removeEventListener("abort", listener);
      signals.delete(signal);
    }
  };
}
