/** PyTorch on the same networks, in a Python process. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';

const torchWays = ['eager', 'compiled', 'graphs', 'loadThenExecute'] as const;
type TorchWay = (typeof torchWays)[number];

/** From the input on the host to the outputs there: wall-clock time, and time between events around the same work. */
export interface Timed {
  readonly wallMs: number;
  readonly gpuMs: number;
}

type TorchFigures = Readonly<Record<string, Readonly<Record<TorchWay, Timed | { readonly reason: string }>>>>;

/** PyTorch's figures, or why there are none. */
export type Torch = { readonly figures: TorchFigures } | { readonly reason: string };

export async function measureTorch(names: readonly string[], rounds: number): Promise<Torch> {
  try {
    const script = join(import.meta.dirname, 'torch-baseline.py');
    const { stdout } = await promisify(execFile)('python3', [script, String(rounds), ...names], { timeout: 600_000 });
    return { figures: JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as TorchFigures };
  } catch (error) {
    const { stderr = '', code, killed = false } = error as { stderr?: string; code?: unknown; killed?: boolean };
    if (killed) return { reason: 'PyTorch took longer than ten minutes' };
    if (code === 'ENOENT') return { reason: 'there is no python3' };
    return { reason: stderr.trim().split('\n').at(-1) || (error as Error).message };
  }
}

/** Figures that PyTorch lacks, and why. */
export function reasonsOf(torch: Torch): string[] {
  if ('reason' in torch) return [`PyTorch: ${torch.reason}`];
  return Object.entries(torch.figures).flatMap(([name, ways]) =>
    torchWays.flatMap((way) => {
      const found = ways[way];
      return 'reason' in found ? [`PyTorch ${way} of ${name}: ${found.reason}`] : [];
    }),
  );
}

export function timedBy(torch: Torch, name: string, way: TorchWay): Timed | undefined {
  const found = 'figures' in torch ? torch.figures[name]?.[way] : undefined;
  return found === undefined || 'reason' in found ? undefined : found;
}
