// The error of an adapter whose library cannot do the work.

export class Unsupported extends Error {}
