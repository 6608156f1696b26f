/**
 * Numbers that name things. A function's number does not pass for a GPU's: the compiler refuses one kind where another is
 * asked for. A plain number passes for each, since traces, tests and events written by hand count from 0.
 */
declare const kind: unique symbol;
type Id<Kind extends string> = number & { readonly [kind]?: Kind };

/** A place beside the GPUs: the CPU, the workers, or one of a kind of its own, by its name. */
export type SideId = string & { readonly [kind]?: 'place' };

/** From 0, without gaps. Its PCIe link has the same number. */
export type GpuId = Id<'GPU'>;
/** From 0; used again for the function that comes back under it. */
export type FunctionId = Id<'function'>;
/** Small; used again once the invocation has ended. */
export type InvocationId = Id<'invocation'>;
