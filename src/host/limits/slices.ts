/** Splits work that grows with the number of functions into slices, between which calls are served. */
import { setImmediate as nextTurn } from 'node:timers/promises';

/** Small against an SLO, large against the turn of the event loop between two slices. */
const sliceMs = 8;

export class Slices {
  #sinceMs = performance.now();

  get isOver(): boolean {
    return performance.now() - this.#sinceMs > sliceMs;
  }

  /** Lets waiting events run. */
  async rest(): Promise<void> {
    await nextTurn();
    this.#sinceMs = performance.now();
  }
}

export async function mapInSlices<Item, Made>(items: Iterable<Item>, make: (item: Item) => Made): Promise<Made[]> {
  const slices = new Slices();
  const made: Made[] = [];
  for (const item of items) {
    made.push(make(item));
    if (slices.isOver) await slices.rest();
  }
  return made;
}

/** As JSON.stringify, but pauses between the fields of objects and the elements of arrays. */
export async function jsonInSlices(value: object, slices = new Slices()): Promise<string> {
  const isArray = Array.isArray(value);
  let text = '';
  for (const [key, part] of Object.entries(value) as [string, unknown][]) {
    // Elements of arrays are small; values that hold arrays are not.
    const isLarge = !isArray && typeof part === 'object' && part !== null && !('toJSON' in part);
    const json = isLarge ? await jsonInSlices(part, slices) : JSON.stringify(part);
    if (json === undefined && !isArray) continue;
    text += `${text === '' ? '' : ','}${isArray ? '' : `${JSON.stringify(key)}:`}${json ?? 'null'}`;
    if (slices.isOver) await slices.rest();
  }
  return isArray ? `[${text}]` : `{${text}}`;
}
