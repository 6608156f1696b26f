/** What is left of an object without the members that are undefined. */
export type Given<Members> = { [Name in keyof Members]?: Exclude<Members[Name], undefined> };

/**
 * The members that have a value: `{ seed, ...given({ rate, fold }) }` has no `fold` where none was asked for. Optional
 * properties of this project are either there or absent, never undefined.
 */
export function given<Members extends object>(members: Members): Given<Members> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as Given<Members>;
}
