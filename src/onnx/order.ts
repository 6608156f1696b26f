/** The order of nodes: files need not be sorted, but every walk over a graph needs an order. */
import { OnnxError } from './error.ts';
import { capturedBy } from './scope.ts';
import type { NodeProto } from './types.ts';

/** The values that each node takes, including those of its nested graphs; each once. */
export const usesOf = (nodes: readonly NodeProto[]): string[][] =>
  nodes.map((node) => [...new Set([...node.input.filter((name) => name !== ''), ...capturedBy(node)])]);

/**
 * Node indices in an order in which each comes after the nodes whose values it takes; a valid order stays as it is.
 * @param within names the graph in the error
 * @throws OnnxError `bad-model` for a cycle of nodes
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
  // Depth first from each ready node, so that related nodes of an unsorted file stay together.
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
