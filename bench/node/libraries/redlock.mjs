// node-redlock 5, which would try 10 times by default.

import Redlock from "redlock";
import { connectWith } from "./redlock-like.mjs";

export const from = "redlock";
export const connect = connectWith(Redlock);
