// node-redlock 5.

import Redlock from "redlock";
import { connectWith } from "./redlock-like.mjs";

export const from = "redlock";
export const connect = connectWith(Redlock);
