/**
 * Numbers that name things. The number of one kind does not pass for that of another, and inside the scheduler no plain
 * number passes for any. What goes in, events, offers and questions, is `Given`: traces, tests and events written by hand
 * count from 0, so a plain number passes there, but not the number of another kind.
 */
declare const kind: unique symbol;
type Id<Kind extends string> = number & { readonly [kind]: Kind };
export type Given<Each extends Id<string>> = number & { readonly [kind]?: Each[typeof kind] };

/** A place beside the GPUs: the CPU, the workers, or one of a kind of its own, by its name. */
export type SideId = string & { readonly [kind]?: 'place' };

/** From 0, without gaps. Its PCIe link has the same number. */
export type GpuId = Id<'GPU'>;
/** From 0; used again for the function that comes back under it. */
export type FunctionId = Id<'function'>;
/** Small; used again once the invocation has ended. */
export type InvocationId = Id<'invocation'>;

/** It is one of this kind from here on. */
export const named = <Each extends Id<string>>(number: Given<Each>): Each => number as Each;
