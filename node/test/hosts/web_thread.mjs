// The code of a web worker.

import { keepBusy } from "./thread.mjs";

self.onmessage = ({ data }) => keepBusy(data, (word) => self.postMessage(word));
