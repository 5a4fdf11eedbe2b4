// A thread of the web's kind.

import { keepBusy } from "./thread.mjs";

self.onmessage = ({ data }) => keepBusy(data, (word) => self.postMessage(word));
