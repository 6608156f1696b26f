import { renderTimeline } from '../timeline-picture.ts';
import type { ChrionPlan } from './plan.ts';

const looks = {
  call: { fill: '#b9cfe6', means: 'a call beside its operators' },
  gpu: { fill: '#2f7d4f', means: 'on the GPU' },
  cpu: { fill: '#3a6ea5', means: 'on a core' },
  'to-gpu': { fill: '#e08e2b', means: 'copy to the GPU' },
  'to-cpu': { fill: '#b5442e', means: 'copy to the CPU' },
} as const;

/**
 * A plan as a picture: a row for the GPU with its copies, and one for each core. A band spans the operators of a call.
 * @param title of the picture, such as the name of the profile
 */
export function renderChrionTimeline(
  plan: ChrionPlan,
  { title, width }: { readonly title: string; readonly width?: number },
): string {
  const lanes = ['GPU', ...Array.from({ length: plan.cores }, (_, index) => `core ${index + 1}`)].map((name, row) => ({
    name,
    bars: [
      // First, so behind the operators: the visible rest of a call is its cost beside them.
      ...plan.segments.flatMap(({ core, startMs, endMs }) =>
        core === row ? [{ startMs, endMs, look: 'call' as const }] : [],
      ),
      ...plan.operators.flatMap(({ core = 0, device: look, ...bar }) => (core === row ? [{ ...bar, look }] : [])),
      ...(row === 0 ? plan.copies : []).map(({ from, to, direction: look, startMs, endMs }) => ({
        startMs,
        endMs,
        look,
        name: `${from} → ${to}`,
      })),
    ],
  }));
  const source = 'predicted from the profile';
  return renderTimeline({ headline: `${title}: ${headline(plan)}`, source, lanes, looks, width });
}

function headline({ latencyMs, gpuBytes, cores, segments, operators }: ChrionPlan): string {
  const calls = `${cores} ${cores === 1 ? 'core' : 'cores'} in ${segments.length} ${segments.length === 1 ? 'call' : 'calls'}`;
  const withGpu = cores === 0 ? 'the GPU alone' : `the GPU and ${calls}`;
  const where = operators.some(({ device }) => device === 'gpu') ? withGpu : calls;
  return `${latencyMs.toFixed(2)} ms on ${where}, ${memoryText(gpuBytes)}`;
}

function memoryText(bytes: number): string {
  if (bytes === 0) return 'no GPU memory';
  return `${bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} KB` : `${(bytes / 1e6).toFixed(1)} MB`} of GPU memory`;
}
