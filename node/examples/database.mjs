// The examples' database: a JSON file. One process at a time changes a copy, which then replaces the file. Any database
// with conditional updates of a row will do; this one is here because Node 20 comes with none.

import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export class Database {
  #file;

  constructor(file) {
    this.#file = file;
  }

  /** Returns the content. */
  read() {
    return existsSync(this.#file) ? JSON.parse(readFileSync(this.#file, "utf8")) : {};
  }

  /** Runs `change` on the content, and saves it unless `change` throws. Returns the result of `change`. */
  async transaction(change) {
    while (!this.#enter()) await sleep(1);
    try {
      const rows = this.read();
      const result = change(rows);
      writeFileSync(`${this.#file}.new`, JSON.stringify(rows));
      renameSync(`${this.#file}.new`, this.#file);
      return result;
    } finally {
      rmSync(`${this.#file}.busy`);
    }
  }

  /** Enters, if no other process is inside. The examples' processes do not die inside, so no file is left behind. */
  #enter() {
    try {
      writeFileSync(`${this.#file}.busy`, "", { flag: "wx" });
      return true;
    } catch (error) {
      if (error.code === "EEXIST") return false;
      throw error;
    }
  }
}
