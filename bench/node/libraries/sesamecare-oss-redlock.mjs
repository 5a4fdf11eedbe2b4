// The maintained fork of node-redlock.

import { Redlock } from "@sesamecare-oss/redlock";
import { connectWith } from "./redlock-like.mjs";

export const from = "@sesamecare-oss/redlock";
export const connect = connectWith(Redlock);
