/**
 * Names as folders and objects. Some disks take `BERT` and `bert` for one name, so a name is written in small letters,
 * and one with capitals gets a suffix: `!` and a hexadecimal number whose bit i says that letter i is a capital. `bert`
 * stays `bert`, `Bert` is `bert!1`, `BERT` is `bert!f`. No function's name has a `!`, and none begins with a `.`, as
 * the store's own files do.
 */
export function encodeName(name: string): string {
  let capitals = 0n;
  for (const [index, letter] of name.split('').entries()) if (/[A-Z]/.test(letter)) capitals |= 1n << BigInt(index);
  return capitals === 0n ? name : `${name.toLowerCase()}!${capitals.toString(16)}`;
}

/** Undefined for a text that is no name's encoding. */
export function decodeName(encoded: string): string | undefined {
  const [, small, hex] = /^([a-z0-9_][a-z0-9._-]*)(?:!([0-9a-f]{1,64}))?$/.exec(encoded) ?? [];
  if (small === undefined) return undefined;
  const capitals = BigInt(`0x${hex ?? '0'}`);
  const name = small
    .split('')
    .map((letter, index) => (((capitals >> BigInt(index)) & 1n) === 1n ? letter.toUpperCase() : letter))
    .join('');
  return encodeName(name) === encoded ? name : undefined;
}
