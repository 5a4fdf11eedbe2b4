// The code of a thread of node:worker_threads.

import { parentPort, workerData } from "node:worker_threads";
import { keepBusy } from "./thread.mjs";

await keepBusy(workerData, (word) => parentPort.postMessage(word));
