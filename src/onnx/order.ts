/** The order of nodes: files need not have one, and whoever walks a graph needs it. */
import { OnnxError } from './error.ts';
import { capturedBy } from './scope.ts';
import type { NodeProto } from './types.ts';

/** Of each node the values that it takes, those of its nested graphs included; each once. */
export const usesOf = (nodes: readonly NodeProto[]): string[][] =>
  nodes.map((node) => [...new Set([...node.input.filter((name) => name !== ''), ...capturedBy(node)])]);

/**
 * Node places in an order where each comes after what it takes; the given order where that is one already.
 * Throws {@link OnnxError} `bad-model` for a circle of nodes; `within` says of which graph.
 */
export function topologicalOrder(
  nodes: readonly NodeProto[],
  within = '',
  uses: readonly (readonly string[])[] = usesOf(nodes),
): number[] {
  const producers = new Map<string, number>();
  for (const [index, { output }] of nodes.entries()) {
    for (const name of output) if (name !== '') producers.set(name, index);
  }
  const waitingFor = new Int32Array(nodes.length);
  const users: number[][] = nodes.map(() => []);
  let sorted = true;
  for (const [index, names] of uses.entries()) {
    for (const name of names) {
      const producer = producers.get(name);
      if (producer === undefined) continue;
      if (producer >= index) sorted = false;
      users[producer]!.push(index);
      waitingFor[index]!++;
    }
  }
  if (sorted) return nodes.map((_, index) => index);
  const order: number[] = [];
  // Depth first from each ready node, so that what belongs together in an unsorted file stays together.
  for (let first = 0; first < nodes.length; first++) {
    if (waitingFor[first] !== 0) continue;
    waitingFor[first] = -1;
    const ready = [first];
    for (let index = ready.pop(); index !== undefined; index = ready.pop()) {
      order.push(index);
      for (const user of users[index]!.toReversed()) {
        if (--waitingFor[user]! === 0) {
          waitingFor[user] = -1;
          ready.push(user);
        }
      }
    }
  }
  if (order.length < nodes.length) {
    const stuck = nodes.findIndex((_, index) => waitingFor[index]! > 0);
    const { name, opType } = nodes[stuck]!;
    throw new OnnxError(
      'bad-model',
      `node '${name || opType}'${within} takes a value that is made from its own output`,
    );
  }
  return order;
}
