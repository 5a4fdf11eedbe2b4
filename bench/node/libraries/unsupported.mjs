// What an adapter throws when its library cannot do what it is asked for.

export class Unsupported extends Error {}
