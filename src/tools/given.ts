/** An object type without the undefined members. */
export type Given<Members> = { [Name in keyof Members]?: Exclude<Members[Name], undefined> };

/**
 * The members that have a value: `{ seed, ...given({ rate, fold }) }` has no `fold` if `fold` is undefined. In this
 * project an optional property is present or absent, never undefined.
 */
export function given<Members extends object>(members: Members): Given<Members> {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as Given<Members>;
}
