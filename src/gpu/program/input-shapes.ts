import type { InputShapes } from '../program/types.ts';

export function shapesOf(
  tensors: readonly { readonly name: string; readonly shape: readonly number[] }[],
): InputShapes {
  return Object.fromEntries(tensors.map(({ name, shape }) => [name, shape]));
}

/** Equal for equal shapes, in whatever order the inputs stand. */
export function shapesKey(shapes: InputShapes): string {
  const names = Object.keys(shapes).sort();
  return names.map((name) => `${name}[${shapes[name]!.join(',')}]`).join(' ');
}
