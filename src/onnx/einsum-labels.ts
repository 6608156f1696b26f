/** The labels of an Einsum's axes. */

/** A term's letters, with numbers for the axes of an ellipsis. The last is 0, so that terms align from the right. */
function labelsOf(term: string, rank: number): string[] {
  const [before = '', after] = term.split('...');
  if (after === undefined) return before.split('');
  const hidden = rank - before.length - after.length;
  return [
    ...before.split(''),
    ...Array.from({ length: hidden }, (_, place) => String(hidden - 1 - place)),
    ...after.split(''),
  ];
}

export interface EinsumLabels {
  readonly text: string;
  readonly terms: readonly (readonly string[])[];
  readonly output: readonly string[];
}

/** @param ranks of the operands */
export function einsumLabels(equation: string, ranks: readonly number[]): EinsumLabels {
  const text = equation.replaceAll(' ', '');
  const [left = '', right] = text.split('->');
  const terms = left.split(',').map((term, index) => labelsOf(term, ranks[index] ?? 0));
  const all = terms.flat();
  const different = [...new Set(all)];
  const hidden = different.filter((label) => /\d/.test(label)).toSorted((a, b) => Number(b) - Number(a));
  if (right !== undefined)
    return { text, terms, output: labelsOf(right, right.replace('...', '').length + hidden.length) };
  const once = different.filter((label) => !/\d/.test(label) && all.filter((each) => each === label).length === 1);
  return { text, terms, output: [...hidden, ...once.toSorted()] };
}
