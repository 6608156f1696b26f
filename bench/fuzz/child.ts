/** Runs inputs through the readers, in a process that may crash or hang: bench/fuzz/run-readers.ts watches it. */
import { inputOf, readers, sentenceProblem, type Finding, type Order, type Reader, type Report } from './readers.ts';

const cpuMsMax = 10_000;
const bytesMax = 256 * 2 ** 20;

async function runOne(name: string, reader: Reader, input: Buffer): Promise<Finding | 'read' | 'refused'> {
  const finding = (what: string): Finding => ({ reader: name, what, inputBase64: input.toString('base64') });
  const before = process.cpuUsage();
  const bytesBefore = heldBytes();
  let outcome: Finding | 'read' | 'refused' = 'read';
  try {
    await reader.read(input);
  } catch (error) {
    const isRefusal = reader.refusals.some((kind) => error instanceof kind);
    const problem = isRefusal ? sentenceProblem(error as Error) : 'it is no refusal';
    outcome =
      problem === undefined
        ? 'refused'
        : finding(`${problem}: ${error instanceof Error ? error.stack : String(error)}`);
  }
  const { user, system } = process.cpuUsage(before);
  if (user + system > cpuMsMax * 1000) return finding(`it took ${(user + system) / 1e6} s`);
  const grownBytes = heldBytes() - bytesBefore;
  return grownBytes > bytesMax ? finding(`it took ${grownBytes} bytes for ${input.length}`) : outcome;
}

function heldBytes(): number {
  const { external, arrayBuffers, heapUsed } = process.memoryUsage();
  return Math.max(external, arrayBuffers) + heapUsed;
}

process.on('message', (order: Order) => {
  void take(order);
});

async function take(order: Order): Promise<void> {
  const reader = readers[order.reader]!;
  const findings: Finding[] = [];
  let refused = 0;
  for (let number = order.from; number < order.to; number++) {
    const outcome = await runOne(order.reader, reader, inputOf(order, number));
    if (outcome === 'refused') refused++;
    else if (outcome !== 'read') findings.push(outcome);
  }
  process.send!({ findings, refused } satisfies Report);
}
