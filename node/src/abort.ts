/**
 * Many waiters on one AbortSignal, behind one listener: a signal with a listener for each of a thousand acquires would
 * be slow and look like a leak.
 *
 * @module
 */

interface Waiters {
  all: Set<() => void>;
  listener: () => void;
}

const signals = new WeakMap<AbortSignal, Waiters>();

/** Calls back when a signal that is not aborted yet is. Returns how to take that back. */
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
