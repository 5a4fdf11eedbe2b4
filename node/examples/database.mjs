// The examples' database: a file of JSON, of which one process at a time changes a copy that then takes its place. Any
// database that updates a row if a condition holds will do; this one is here because Node 20 comes with none.

import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

export class Database {
  #file;

  constructor(file) {
    this.#file = file;
  }

  /** What is in it. */
  read() {
    return existsSync(this.#file) ? JSON.parse(readFileSync(this.#file, "utf8")) : {};
  }

  /** Runs `change` on what is in it and keeps that, unless it throws: a transaction. Returns what `change` does. */
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

  /** No process of the examples dies inside, so nobody has to clean up behind one. */
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
