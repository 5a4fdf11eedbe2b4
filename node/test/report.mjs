// A reporter of node:test for scripts/failures. It writes the failed tests as JUnit XML, each with its file and the
// names of the tests around it. The `junit` reporter of Node 20 names no file, and omits a test that has subtests and
// fails itself. If a file itself fails, the reporter names the last test that began there. It ends a test that blocks
// its event loop.

import { relative } from "node:path";
import { limit } from "./limits.mjs";

// XML cannot represent control characters.
const escaped = (text) =>
  text.replace(/\p{Cc}|[&<>"]/gu, (one) => (one < " " && !"\t\n\r".includes(one) ? "?" : `&#${one.charCodeAt()};`));

function* failed(file, name, message, stack) {
  yield `<testcase file="${escaped(file)}" name="${escaped(name)}">`;
  yield `<failure message="${escaped(message)}">${escaped(stack)}</failure></testcase>\n`;
}

/** Reads from limits.mjs which test each file began last. Kills the process of a test that takes twice its limit. */
class Watch {
  #last = new Map();
  #timers = new Map();

  saw(file, line) {
    const [, word, pid, name] = /^(begins|ends) (\d+) ?(.*)/.exec(line) ?? [];
    if (!word) return;
    clearTimeout(this.#timers.get(file));
    if (word === "ends") return;
    this.#last.set(file, name);
    this.#timers.set(file, setTimeout(() => process.kill(Number(pid), "SIGKILL"), 2 * limit).unref());
  }

  /** The last test that began in a file that has ended. */
  last(file) {
    clearTimeout(this.#timers.get(file));
    return this.#last.get(file) ?? "";
  }
}

export default async function* report(events) {
  yield "<testsuites>\n";
  // The names of the tests around the one that an event is about, outermost first.
  const around = [];
  const watch = new Watch();
  for await (const { type, data } of events) {
    const file = data?.file && relative(process.cwd(), data.file);
    if (type === "test:stderr") watch.saw(file, data.message);
    if (type === "test:start") around.splice(data.nesting, Number.POSITIVE_INFINITY, data.name);
    if (type !== "test:fail" || data.todo !== undefined) continue;
    const { error } = data.details;
    // Only its subtests have failed, and they are reported themselves.
    if (error.failureType === "subtestsFailed") continue;
    const cause = error.cause ?? error;
    const message = String(cause.message ?? cause);
    if (relative(process.cwd(), data.name) === file) {
      const why = `the last test that began in a file that failed: ${error.signal ?? message}`;
      yield* failed(file, watch.last(file), why, "");
    } else {
      yield* failed(file, [...around.slice(0, data.nesting), data.name].join(" > "), message, cause.stack ?? message);
    }
  }
  yield "</testsuites>\n";
}
